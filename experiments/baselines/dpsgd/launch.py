"""A baseline run, from data to report: the same data, budget, ledger, test and report as a run of PATE."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pate.arrays import FloatArray
from pate.execution import Serial
from pate.experiments.accounting import CONVERSION
from pate.experiments.array_files import write_text
from pate.experiments.baselines.dpsgd.accounting import ADD_REMOVE, Cost, Training, composition
from pate.experiments.evaluation import evaluate
from pate.experiments.pipeline import folder as files
from pate.experiments.pipeline.answering import Desk, entry_facts
from pate.experiments.pipeline.folder import RunFolder
from pate.experiments.pipeline.launch import DEFAULT_OUT, Finished, load_material
from pate.experiments.pipeline.store import digest
from pate.experiments.pipeline.summary import LARGE_EPSILON, data_facts, environment, ledger_name
from pate.experiments.pipeline.telling import Teller
from pate.experiments.pipeline.voting import fitted_features
from pate.experiments.recipes.checking import mode_of, training_settings
from pate.experiments.recipes.model import DpsgdRecipe
from pate.experiments.recipes.reading import find_recipe, read_dpsgd_recipe
from pate.experiments.reports.writing import write_all
from pate.experiments.results import Curve, Evaluation, PrivacyFacts, Result, TrainingFacts
from pate.extras import require_all
from pate.noise import noise_for
from pate.progress import Show
from pate.release import SIMULATION_STAMP
from pate.student.records import float_records
from pate.teachers.resuming import refuse_private_features

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pate.experiments.baselines.dpsgd.training.trainer import DPSGD

STAGES = ("data", "features", "training", "evaluation", "report")
MODEL, COST = "model.zip", "cost.json"
_NEEDED = {"torch": "train", "matplotlib": "plot", "jinja2": "plot"}
_POINTS = 20  # of the curve of epsilon over steps


def run_dpsgd(
    recipe: str | Path | Mapping[str, Any],
    *,
    data: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] = DEFAULT_OUT,
    show: Show = "auto",
    again: bool = False,
    **overrides: Any,
) -> Result:
    """Train the baseline of a recipe, its table ``[dpsgd]``: private data in, a model and its epsilon out.

    Arguments as for :func:`pate.run`.
    """
    base = None if isinstance(recipe, dict) else find_recipe(recipe).parent  # type: ignore[arg-type]
    return launch_dpsgd(
        read_dpsgd_recipe(recipe, overrides), base=base, data=data, out=Path(out), show=show, again=again
    ).result


def launch_dpsgd(
    recipe: DpsgdRecipe,
    *,
    base: Path | None = None,
    data: str | os.PathLike[str] | None = None,
    out: Path = DEFAULT_OUT,
    show: Show = "auto",
    again: bool = False,
) -> Finished:
    """As :func:`run_dpsgd`, from a checked recipe."""
    require_all(_NEEDED)
    folder = RunFolder(recipe, out, again)
    run = _Run(recipe, folder, Teller(show, STAGES))
    run.load(base, data)
    with folder.opened(recipe):
        return Finished(run.all(), folder.path)


@dataclass(frozen=True)
class _Trained:
    """What training leaves for the report."""

    model: DPSGD
    cost: Cost
    lost: int
    charged: str
    notes: list[str]
    private_notes: list[str]


class _Run:
    """The stages in order. What one leaves for the next is an attribute."""

    def __init__(self, recipe: DpsgdRecipe, folder: RunFolder, teller: Teller) -> None:
        self._recipe, self._folder, self._teller = recipe, folder, teller
        self._mode = mode_of(recipe)
        self._settings = training_settings(recipe.dpsgd)

    def load(self, base: Path | None, data: Any) -> None:
        with self._teller.stage("data", f"reading and checking {self._recipe.data.source}") as note:
            self._material = load_material(self._recipe, base, data)
            self._split = self._material.split
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
        trained = self._train()
        evaluation = self._test(trained.model)
        with self._teller.stage("report", "figures, plots and a page to read") as note:
            result = self._summary(trained, evaluation)
            write_text(self._folder.file(files.ENVIRONMENT), json.dumps(environment(), indent=1))
            result.write(self._folder.file(files.RESULT))
            write_all(result, self._folder.path)
            note.text = str(self._folder.path)
        return result

    def _train(self) -> _Trained:
        from pate.experiments.baselines.dpsgd.training.trainer import DPSGD

        recipe, private = self._recipe, self._split.private
        model = DPSGD(
            recipe.dpsgd.model,
            self._split.n_classes,
            delta=recipe.privacy.delta,
            seed=recipe.seed,
            settings=self._settings,
        )
        units = None if private.unit == "record" else private.unit_of
        key = f"dp-sgd {self._folder.run()['run_id']}" if self._mode == "release" else "dp-sgd"
        file, facts_file = self._folder.file(MODEL), self._folder.file(COST)
        with self._teller.stage("training", f"{model.title}: charging the ledger, then clipping and adding noise") as note:
            with self._desk.open(neighbours_if_new="add-remove") as ledger:
                if facts_file.exists():
                    note.cached = True
                    facts = json.loads(facts_file.read_text())
                    model = DPSGD.load(file)
                else:
                    training = model.plan(len(private.unit_ids), ledger.budget, ledger.neighbours)
                    checkpoint = self._folder.file("training")
                    if not checkpoint.exists():
                        ledger.afford(training.curve(ledger.neighbours))
                    model.fit(
                        self._inputs(private.x),
                        private.y,
                        units=units,
                        noise=noise_for(self._mode, recipe.seed if self._mode == "simulation" else None),
                        ledger=ledger,
                        key=key,
                        checkpoint=checkpoint,
                        show=self._teller.show,
                    )
                    model.save(file)
                    facts = self._facts(model)
                    write_text(facts_file, json.dumps(facts, indent=1), 0o600)
                rows = [row for row in ledger.entries() if row.kind == "open" or (row.key or "").startswith(f"{key}, ")]
                write_text(
                    self._folder.file(files.LEDGER_ROWS),
                    json.dumps([entry_facts(row, recipe.privacy.delta) for row in rows], indent=1),
                )
                neighbours = ledger.neighbours
            cost = Training(facts["rate"], facts["noise_multiplier"], facts["steps"]).cost(recipe.privacy.delta)
            note.text = f"{facts['steps']} steps, noise multiplier {facts['noise_multiplier']:g}"
        charged = "one record (or user) replaced" if neighbours == "replace" else ADD_REMOVE
        return _Trained(model, cost, facts["lost"], charged, facts["notes"], facts["private_notes"])

    def _facts(self, model: DPSGD) -> dict[str, Any]:
        """What is kept of the training: a run that is resumed after it needs no more."""
        books, training = model.books_, model.cost_.training
        notes = []
        if books.ended_by_budget:
            notes.append(f"Others spent from the same budget: it ended the training after {books.done} steps.")
        if books.lost:
            notes.append(f"{books.lost} steps were charged, and lost when the run was stopped.")
        return {
            "rate": training.rate,
            "noise_multiplier": training.sigma,
            "steps": training.steps,
            "lost": books.lost,
            "notes": notes,
            # What fell back to slower gradients was found on records of a lot.
            "private_notes": [*model.notes_, *model.private_notes],
            "diagnostics": books.diagnostics,
        }

    def _inputs(self, x: Any) -> Any:
        return x if self._features is None else self._features.transform(x)

    def _test(self, model: DPSGD) -> Evaluation | None:
        file, test = self._folder.file(files.EVALUATION), self._split.test
        with self._teller.stage(
            "evaluation", "the test records, opened once" if test else "no test records were given"
        ) as note:
            if test is None:
                return None
            if file.exists():
                note.cached = True
                return Evaluation(**json.loads(file.read_text())["evaluation"])
            told = evaluate(_WithFeatures(model, self._features), test, self._split.n_classes)[0]
            write_text(file, json.dumps({"evaluation": told.model_dump()}, indent=1), 0o600)
            return told

    def _summary(self, trained: _Trained, evaluation: Evaluation | None) -> Result:
        recipe, split = self._recipe, self._split
        run = self._folder.run()
        privacy = self._privacy(trained)
        return Result(
            kind="dp-sgd",
            title=recipe.run_name,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            run_id=run["run_id"],
            mode=self._mode,
            stamp=SIMULATION_STAMP if self._mode == "simulation" else "noise from the operating system",
            verified="built-in",
            data=data_facts(split, recipe, evaluation),
            student=trained.model.title,
            teachers="one model on all records",
            privacy=privacy,
            evaluation=evaluation,
            label_noise=None,
            consensus=None,
            upper_bounds=None,
            stages=list(self._teller.facts),
            warnings=[*trained.notes, *_warnings(privacy)],
            private_warnings=trained.private_notes,
            environment=environment(),
            seed=recipe.seed,
            test_is_public=split.test_is_public,
        )

    def _privacy(self, trained: _Trained) -> PrivacyFacts:
        cost, delta = trained.cost, self._recipe.privacy.delta
        training = cost.training
        with self._desk.open(neighbours_if_new="add-remove") as ledger:
            spent, budget = ledger.spent().epsilon, ledger.budget.epsilon
        line = composition(training, delta, np.linspace(1, training.steps, _POINTS))
        return PrivacyFacts(
            delta=delta,
            data_independent=cost.epsilon,
            data_dependent=None,
            sanitised=None,
            order=cost.rdp.order,
            order_at_grid_edge=False,
            budget_epsilon=budget,
            spent=spent,
            ledger=ledger_name(self._mode),
            mechanism={
                "mechanism": "dp-sgd",
                "model": self._recipe.dpsgd.model,
                "noise_multiplier": training.sigma,
                "rate": training.rate,
                "steps": training.steps,
                "clip": self._settings.clip,
                "clipping": "automatic" if self._settings.automatic else "per layer" if self._settings.per_layer else "flat",
            },
            n_teachers=None,
            participation=None,
            asked=None,
            answered=None,
            neighbours=ADD_REMOVE,
            conversion=CONVERSION,
            published={},
            private_published=None,
            curve=Curve(
                over="steps", queries=line.steps.tolist(), independent=[*line.best[:-1].tolist(), cost.epsilon], dependent=None
            ),
            training=TrainingFacts(
                steps=training.steps,
                lost=trained.lost,
                lot_size=self._settings.lot_size,
                rate=training.rate,
                noise_multiplier=training.sigma,
                clip=self._settings.clip,
                epsilon_rdp=cost.rdp.epsilon,
                epsilon_pld=cost.pld,
                accountant=cost.accountant,
                charged=trained.charged,
            ),
        )


@dataclass(frozen=True)
class _WithFeatures:
    """The model behind the features that it was trained on."""

    model: DPSGD
    features: Any

    def predict_proba(self, x: NDArray[np.float32]) -> FloatArray:
        records = float_records(x)
        return self.model.predict_proba(records if self.features is None else self.features.transform(records))


def _warnings(privacy: PrivacyFacts) -> list[str]:
    found = []
    if privacy.data_independent > LARGE_EPSILON:
        epsilon = f"{privacy.data_independent:.3g}"
        found.append(f"Publishable epsilon {epsilon} promises little: more noise or fewer steps make it smaller.")
    if privacy.training is not None and privacy.training.epsilon_pld is None:
        found.append("PLD was not computed: pip install 'pate[dpsgd]' gives a smaller epsilon for the same run.")
    return found
