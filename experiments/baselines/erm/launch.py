"""A run of private empirical risk minimisation: the same data, budget, ledger, test and report as a run of PATE."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pate.errors import DataError
from pate.execution.threads import one_thread
from pate.experiments.accounting import CONVERSION
from pate.experiments.baselines.erm.settings import ErmSettings
from pate.experiments.baselines.running import BaselineRun
from pate.experiments.pipeline.launch import DEFAULT_OUT, Finished
from pate.experiments.pipeline.summary import LARGE_EPSILON, ledger_name
from pate.experiments.recipes.checking import erm_settings
from pate.experiments.recipes.model import ErmRecipe
from pate.experiments.recipes.reading import find_recipe, read_erm_recipe
from pate.experiments.results import ErmFacts, Evaluation, PrivacyFacts, Result
from pate.noise import noise_for
from pate.privacy.curve import GridEdgeWarning, RdpCurve
from pate.progress import Show

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pate.experiments.baselines.erm.models import LinearModel

MODEL = "model.json"
REPLACED = "one record (or user) replaced"
NEIGHBOURS = f"{REPLACED}, or one more or less"
"""Where the number of records is declared. A counted one stands in the report, and would tell of one more or less."""


def run_erm(
    recipe: str | Path | Mapping[str, Any],
    *,
    data: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] = DEFAULT_OUT,
    show: Show = "auto",
    again: bool = False,
    **overrides: Any,
) -> Result:
    """Learn the private linear model of a recipe, its table ``[erm]``: private data in, weights and their epsilon out.

    Arguments as for :func:`pate.run`.
    """
    base = None if isinstance(recipe, dict) else find_recipe(recipe).parent  # type: ignore[arg-type]
    checked = read_erm_recipe(recipe, overrides)
    return launch_erm(checked, base=base, data=data, out=Path(out), show=show, again=again).result


def launch_erm(
    recipe: ErmRecipe,
    *,
    base: Path | None = None,
    data: str | os.PathLike[str] | None = None,
    out: Path = DEFAULT_OUT,
    show: Show = "auto",
    again: bool = False,
) -> Finished:
    """As :func:`run_erm`, from a checked recipe."""
    return _Run.launch(recipe, base, data, out, show, again)


class _Run(BaselineRun[ErmRecipe, "LinearModel"]):
    library = "sklearn"

    @property
    def _settings(self) -> ErmSettings:
        return erm_settings(self._recipe.erm)

    @property
    def _charge_name(self) -> str:
        return "erm"

    def _classifier(self, trained: LinearModel) -> LinearModel:
        return trained

    def _check(self) -> None:
        if self._split.n_classes != 2:
            raise DataError(
                f"Data set {self._split.name!r} has {self._split.n_classes} classes, and pate erm separates two. Take "
                "`pate run` or `pate dpsgd`, which know more."
            )

    def _train(self) -> LinearModel:
        from pate.experiments.baselines.erm.models import LinearModel

        file = self._folder.file(MODEL)
        key = self._charge_key
        what = f"{self._settings.method} perturbation: charging the ledger, then noise"
        with self._teller.stage("training", what) as note, self._desk.open(order=self._settings.order) as ledger:
            if file.exists():
                note.cached = True
                model = LinearModel.load(file)
            else:
                model = self._learn(ledger, key)
                model.save(file)
            with _at_any_order():
                self._write_rows(ledger, key)
            note.text = f"epsilon {model.facts['epsilon']:.4g}, regularisation {model.facts['regularisation']:.3g}"
        return model

    def _learn(self, ledger: Any, key: str) -> LinearModel:
        from pate.experiments.baselines.erm.models import LinearModel, estimator_of, kernel_of
        from pate.experiments.baselines.erm.tuning import PrivateTuning

        recipe, private = self._recipe, self._split.private
        estimator = estimator_of(recipe.erm.model, self._settings, recipe.privacy.delta)
        x = np.asarray(self._inputs(private.x), dtype=np.float64).reshape(len(private), -1)
        if (kernel := kernel_of(self._settings)) is not None:
            x = kernel.fit_transform(x)
        users = None if private.unit == "record" else private.unit_of
        more: dict[str, Any] = {}
        if isinstance(estimator, PrivateTuning):  # parts by ids, which nobody else's presence moves
            ids = np.array(private.unit_ids, dtype=object)[private.unit_of]
            more["ids"] = ids
        noise = noise_for(self._mode, recipe.seed if self._mode == "simulation" else None)
        with one_thread():
            estimator.fit(x, private.y, units=users, noise=noise, ledger=ledger, key=key, **more)
        tuned = isinstance(estimator, PrivateTuning)
        curve = estimator.curve if tuned else estimator.mechanism_.curve
        delta = recipe.privacy.delta
        facts = {
            "epsilon": estimator.epsilon_at(delta) if tuned else estimator.mechanism_.epsilon(delta),
            "rdp": curve.values.tolist(),
            "pure": self._settings.method != "gaussian",
            "regularisation": estimator.task_.regularisation,
            "records": int(estimator.task_.records),
            "columns": estimator.task_.columns,
            "candidates": list(estimator.candidates) if tuned else None,
            "choice_epsilon": estimator.choice_epsilon_ if tuned else None,
            "noise": estimator.mechanism_.facts(estimator.task_),
            "charged": "one record (or user) replaced"
            if ledger.neighbours == "replace"
            else "one record (or user) more or less",
        }
        return LinearModel(estimator.best_.weights_ if tuned else estimator.weights_, self._settings, facts)

    def _summary(self, trained: LinearModel, evaluation: Evaluation | None) -> Result:
        privacy = self._privacy(trained)
        large = privacy.data_independent > LARGE_EPSILON
        notes = [f"Publishable epsilon {privacy.data_independent:.3g} promises little."] if large else []
        student = f"{self._recipe.erm.model}, {self._settings.method} perturbation"
        return self._result("erm", student, privacy, evaluation, notes, [])

    def _privacy(self, model: LinearModel) -> PrivacyFacts:
        facts, delta, settings = model.facts, self._recipe.privacy.delta, self._settings
        with _at_any_order():
            rdp = RdpCurve.of(np.array(facts["rdp"])).epsilon(delta)
        with self._desk.open(order=settings.order) as ledger:
            spent, budget = ledger.spent().epsilon, ledger.budget.epsilon
        noise = {name: float(value) for name, value in facts["noise"].items()}
        return PrivacyFacts(
            delta=delta,
            data_independent=min(facts["epsilon"], rdp.epsilon),
            data_dependent=None,
            sanitised=None,
            order=rdp.order,
            order_at_grid_edge=False,
            budget_epsilon=budget,
            spent=spent,
            ledger=ledger_name(self._mode),
            mechanism={
                "mechanism": f"erm {settings.method}",
                "model": self._recipe.erm.model,
                "regularisation": facts["regularisation"],
                "data_norm": settings.data_norm,
                "records": facts["records"],
                **noise,
            },
            n_teachers=None,
            participation=None,
            asked=None,
            answered=None,
            neighbours=REPLACED if settings.records is None else NEIGHBOURS,
            conversion=CONVERSION,
            published={},
            private_published=None,
            curve=None,
            erm=ErmFacts(
                method=settings.method,
                data_norm=settings.data_norm,
                noise=noise,
                epsilon_direct=facts["epsilon"],
                epsilon_rdp=rdp.epsilon,
                **{
                    key: facts[key]
                    for key in ("pure", "regularisation", "records", "columns", "candidates", "choice_epsilon", "charged")
                },
            ),
        )


@contextmanager
def _at_any_order() -> Iterator[None]:
    """Of a pure mechanism the best order is the largest there is: no news, its own epsilon stands beside it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridEdgeWarning)
        yield
