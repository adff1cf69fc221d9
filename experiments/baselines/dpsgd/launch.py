"""A baseline run, from data to report: the same data, budget, ledger, test and report as a run of PATE."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pate.experiments.accounting import CONVERSION
from pate.experiments.array_files import write_text
from pate.experiments.baselines.dpsgd.accounting import ADD_REMOVE, Cost, Training, composition
from pate.experiments.baselines.dpsgd.settings import Settings
from pate.experiments.baselines.running import BaselineRun
from pate.experiments.pipeline.launch import DEFAULT_OUT, Finished
from pate.experiments.pipeline.summary import LARGE_EPSILON, ledger_name
from pate.experiments.recipes.checking import training_settings
from pate.experiments.recipes.model import DpsgdRecipe
from pate.experiments.recipes.reading import find_recipe, read_dpsgd_recipe
from pate.experiments.results import Curve, Evaluation, PrivacyFacts, Result, TrainingFacts
from pate.noise import noise_for
from pate.progress import Show

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pate.experiments.baselines.dpsgd.training.trainer import DPSGD

MODEL, COST = "model.zip", "cost.json"
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
    return _Run.launch(recipe, base, data, out, show, again)


@dataclass(frozen=True)
class _Trained:
    """What training leaves for the report."""

    model: DPSGD
    cost: Cost
    lost: int
    charged: str
    notes: list[str]
    private_notes: list[str]


class _Run(BaselineRun[DpsgdRecipe, _Trained]):
    library = "torch"

    @property
    def _settings(self) -> Settings:
        return training_settings(self._recipe.dpsgd)

    @property
    def _charge_name(self) -> str:
        return "dp-sgd"

    def _classifier(self, trained: _Trained) -> DPSGD:
        return trained.model

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
        key = self._charge_key
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
                self._write_rows(ledger, f"{key}, ")
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

    def _summary(self, trained: _Trained, evaluation: Evaluation | None) -> Result:
        privacy = self._privacy(trained)
        notes = [*trained.notes, *_warnings(privacy)]
        return self._result("dp-sgd", trained.model.title, privacy, evaluation, notes, trained.private_notes)

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


def _warnings(privacy: PrivacyFacts) -> list[str]:
    found = []
    if privacy.data_independent > LARGE_EPSILON:
        epsilon = f"{privacy.data_independent:.3g}"
        found.append(f"Publishable epsilon {epsilon} promises little: more noise or fewer steps make it smaller.")
    if privacy.training is not None and privacy.training.epsilon_pld is None:
        found.append("PLD was not computed: pip install 'pate[dpsgd]' gives a smaller epsilon for the same run.")
    return found
