"""What the runs of all baselines have in common: the recipe's data, public features, ledger, test and report."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from pate.aggregators.interrupts import uninterrupted
from pate.arrays import FloatArray
from pate.execution import Serial
from pate.experiments.array_files import write_text
from pate.experiments.evaluation import Classifier, evaluate
from pate.experiments.pipeline import folder as files
from pate.experiments.pipeline.answering import Desk, entry_facts
from pate.experiments.pipeline.folder import RunFolder
from pate.experiments.pipeline.launch import Finished, load_material
from pate.experiments.pipeline.store import digest
from pate.experiments.pipeline.summary import data_facts, delta_warnings, environment
from pate.experiments.pipeline.telling import Teller
from pate.experiments.pipeline.voting import fitted_features
from pate.experiments.recipes.checking import mode_of
from pate.experiments.recipes.model import DpsgdRecipe, ErmRecipe
from pate.experiments.reports.writing import write_all
from pate.experiments.results import Evaluation, PrivacyFacts, Result
from pate.extras import require_all
from pate.ledger import Ledger
from pate.progress import Show
from pate.release import SIMULATION_STAMP
from pate.student.records import float_records
from pate.teachers.resuming import refuse_private_features

STAGES = ("data", "features", "training", "evaluation", "report")
_NEEDED = {"matplotlib": "plot", "jinja2": "plot"}

R = TypeVar("R", bound=DpsgdRecipe | ErmRecipe)
T = TypeVar("T")


class BaselineRun(ABC, Generic[R, T]):
    """The stages in order. What one leaves for the next is an attribute; what training leaves is a T."""

    library: str
    """Without which nothing can be trained."""

    def __init__(self, recipe: R, folder: RunFolder, teller: Teller) -> None:
        self._recipe, self._folder, self._teller = recipe, folder, teller
        self._mode = mode_of(recipe)

    @classmethod
    def launch(
        cls, recipe: R, base: Path | None, data: str | os.PathLike[str] | None, out: Path, show: Show, again: bool
    ) -> Finished:
        """From a checked recipe; arguments as for :func:`pate.experiments.pipeline.launch.launch`."""
        require_all({cls.library: "train", **_NEEDED})
        folder = RunFolder(recipe, out, again)
        run = cls(recipe, folder, Teller(show, STAGES))
        run.load(base, data)
        with folder.opened(recipe):
            return Finished(run.all(), folder.path)

    def load(self, base: Path | None, data: str | os.PathLike[str] | None) -> None:
        with self._teller.stage("data", f"reading and checking {self._recipe.data.source}") as note:
            self._material = load_material(self._recipe, base, data)
            self._split = self._material.split
            self._check()
            note.text = f"{len(self._split.public_x)} public records"

    def all(self) -> Result:
        private = self._split.private
        self._folder.bind_data(digest([self._material.public_digest, self._material.private_digest]))
        self._desk = Desk.of(self._recipe, self._mode, self._folder.file(files.LEDGER), private.fingerprint, private.unit)
        wanted = self._recipe.features_before_training
        with self._teller.stage("features", "made of public records only, free of privacy cost") as note:
            self._features = None if wanted is None else fitted_features(wanted, self._split, self._teller)
            refuse_private_features(self._features, private, Serial())
            note.text = "none: the records themselves" if self._features is None else self._features.title
        # DP-SGD pays piece by piece, and loses the piece that it is at; where all is paid for at once, Ctrl-C waits for it.
        with uninterrupted() if isinstance(self._recipe, ErmRecipe) else nullcontext():
            trained = self._train()
        evaluation = self._test(self._classifier(trained))
        with self._teller.stage("report", "figures, plots and a page to read") as note:
            result = self._summary(trained, evaluation)
            write_text(self._folder.file(files.ENVIRONMENT), json.dumps(environment(), indent=1))
            result.write(self._folder.file(files.RESULT))
            write_all(result, self._folder.path)
            note.text = str(self._folder.path)
        return result

    def _check(self) -> None:
        """Raise where this baseline cannot learn from the data that were read."""
        return

    @abstractmethod
    def _train(self) -> T:
        """The stage "training": charges the ledger, then learns; or finds what was learned."""

    @abstractmethod
    def _classifier(self, trained: T) -> Classifier: ...

    @abstractmethod
    def _summary(self, trained: T, evaluation: Evaluation | None) -> Result: ...

    @property
    def _charge_key(self) -> str:
        """With what the keys of this run's charges begin: a simulation repeats itself, so it needs no name of its own."""
        name = self._charge_name
        return f"{name} {self._folder.run()['run_id']}" if self._mode == "release" else name

    @property
    @abstractmethod
    def _charge_name(self) -> str: ...

    def _write_rows(self, ledger: Ledger, prefix: str) -> None:
        """The ledger's rows that concern this run, beside it."""
        rows = [row for row in ledger.entries() if row.kind == "open" or (row.key or "").startswith(prefix)]
        facts = [entry_facts(row, self._recipe.privacy.delta) for row in rows]
        write_text(self._folder.file(files.LEDGER_ROWS), json.dumps(facts, indent=1))

    def _inputs(self, x: Any) -> Any:
        return x if self._features is None else self._features.transform(x)

    def _test(self, model: Classifier) -> Evaluation | None:
        file, test = self._folder.file(files.EVALUATION), self._split.test
        what = "the test records, opened once" if test else "no test records were given"
        with self._teller.stage("evaluation", what) as note:
            if test is None:
                return None
            if file.exists():
                note.cached = True
                return Evaluation(**json.loads(file.read_text())["evaluation"])
            told = evaluate(_WithFeatures(model, self._features), test, self._split.n_classes)[0]
            write_text(file, json.dumps({"evaluation": told.model_dump()}, indent=1), 0o600)
            return told

    def _result(
        self,
        kind: str,
        student: str,
        privacy: PrivacyFacts,
        evaluation: Evaluation | None,
        warnings: list[str],
        private_warnings: list[str],
    ) -> Result:
        """The owner's copy of the result."""
        return Result(
            kind=kind,
            title=self._recipe.run_name,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            run_id=self._folder.run()["run_id"],
            mode=self._mode,
            stamp=SIMULATION_STAMP if self._mode == "simulation" else "noise from the operating system",
            verified="built-in",
            data=data_facts(self._split, self._recipe, evaluation),
            student=student,
            teachers="one model on all records",
            privacy=privacy,
            evaluation=evaluation,
            label_noise=None,
            consensus=None,
            upper_bounds=None,
            stages=list(self._teller.facts),
            warnings=warnings,
            private_warnings=[*delta_warnings(self._recipe.privacy.delta, self._split), *private_warnings],
            environment=environment(),
            seed=self._recipe.seed,
            test_is_public=self._split.test_is_public,
        )


@dataclass(frozen=True)
class _WithFeatures:
    """The model behind the features that it was trained on."""

    model: Classifier
    features: Any

    def predict_proba(self, x: NDArray[np.float32]) -> FloatArray:
        records = float_records(x)
        return self.model.predict_proba(records if self.features is None else self.features.transform(records))
