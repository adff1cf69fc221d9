"""The audit of DP-SGD: many small trainings with a canary and without, and one training with many canaries."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pate.arrays import BoolArray, FloatArray, IntArray
from pate.experiments.baselines.dpsgd.accounting import Training
from pate.experiments.baselines.dpsgd.settings import Settings
from pate.experiments.pipeline.launch import load_material
from pate.experiments.pipeline.telling import Teller
from pate.experiments.pipeline.voting import fitted_features
from pate.experiments.recipes.checking import training_settings
from pate.experiments.recipes.model import DpsgdRecipe
from pate.extras import require_all
from pate.ledger import Budget
from pate.noise import Noise
from pate.progress import Show, tracked
from pate.testing.audit import DEFAULT_CONFIDENCE, LEAST_RUNS, Claim, bound_of_outcomes, fresh_noise
from pate.testing.audit_report import AuditReport, LowerBound
from pate.testing.bounds import best_one_run, check_confidence
from pate.validation import whole

if TYPE_CHECKING:
    from pate.experiments.baselines.dpsgd.training.trainer import DPSGD

RUNS = 200
MOST_STEPS = 20
_OTHERS = 16  # records beside the canary
_MOST_CANARIES = 1000
_LONG = 20.0  # a canary's gradient, in clipping bounds
_REACH = 0.2  # how far an update may move what the model says of a canary: the model stays linear there


@dataclass(frozen=True)
class Bench:
    """Small private data, their canaries, and how they are trained on. All of it is the auditor's own choice.

    x: [record, ...], y: int64[record], the records beside the canaries. canary_x: [canary, ...], each in a direction of its
    own as far as there are such; canary_y: int64[canary].
    """

    recipe: DpsgdRecipe
    settings: Settings
    training: Training
    n_classes: int
    x: NDArray[np.float32]
    y: IntArray
    canary_x: NDArray[np.float32]
    canary_y: IntArray

    def train(self, present: BoolArray, noise: Noise) -> DPSGD:
        """One run with the canaries that are ``present``, bool[canary]."""
        from pate.experiments.baselines.dpsgd.training.trainer import DPSGD

        model = DPSGD(
            self.recipe.dpsgd.model,
            self.n_classes,
            delta=self.recipe.privacy.delta,
            seed=self.recipe.seed,
            settings=self.settings,
        )
        x, y = (np.concatenate(pair) for pair in ((self.x, self.canary_x[present]), (self.y, self.canary_y[present])))
        return model.fit(x, y, noise=noise)

    def margins(self, model: DPSGD) -> FloatArray:
        """float64[canary]: by how much the model prefers each canary's label at the canary: anybody can ask it."""
        logs = np.log(np.maximum(model.predict_proba(self.canary_x), 1e-300))
        own = logs[np.arange(len(logs)), self.canary_y]
        others = (logs.sum(axis=1) - own) / (self.n_classes - 1)
        margins: FloatArray = own - others
        return margins


def audit_dpsgd(
    recipe: DpsgdRecipe,
    *,
    base: Path | None = None,
    data: str | os.PathLike[str] | None = None,
    runs: int = RUNS,
    steps: int = MOST_STEPS,
    confidence: float = DEFAULT_CONFIDENCE,
    seed: int | None = 0,
    show: Show = "none",
) -> AuditReport:
    """Lower bounds on the epsilon of a DP-SGD run beside the claim: by many runs, and by one run with many canaries.

    runs: in each of two worlds, with the canary and without. steps: of each, at most; the claim is that of so many steps.
    """
    require_all({"torch": "train"})
    whole(runs, "runs", LEAST_RUNS)
    whole(steps, "steps", 1)
    check_confidence(confidence)
    bench = make_bench(recipe, base=base, data=data, steps=steps)
    each = 1 - (1 - confidence) / 2
    cost = bench.training.cost(recipe.privacy.delta)
    claim = Claim(cost.epsilon, cost.delta, bench.training.curve())
    noise = fresh_noise(seed)
    many = _many_runs(bench, claim, runs, each, noise, show)
    coins = np.random.default_rng(seed)
    one = _one_run(bench, claim, each, next(noise), coins)
    notes = (
        f"Audited are {bench.training.steps} steps at sampling rate {bench.training.rate:.4g} and noise multiplier "
        f"{bench.training.sigma:g} on {len(bench.y)} records and canaries, with plain small updates, so that the model tells "
        "the sums it has seen. Neither the updates nor the records beside a canary have a part in the claim.",
    )
    return AuditReport(f"{recipe.run_name}: {recipe.dpsgd.model}", (many, one), (), notes)


def make_bench(
    recipe: DpsgdRecipe, *, base: Path | None = None, data: str | os.PathLike[str] | None = None, steps: int = MOST_STEPS
) -> Bench:
    """The training of a recipe, cut to ``steps``, on a few of its records and on canaries along directions that they lack."""
    from pate.experiments.baselines.dpsgd.training.trainer import DPSGD

    split = load_material(recipe, base, data).split
    table = recipe.features_before_training
    features = None if table is None else fitted_features(table, split, Teller("none"))

    def inputs(x: NDArray[np.float32]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = np.asarray(x if features is None else features.transform(x), dtype=np.float32)
        return found

    wanted = training_settings(recipe.dpsgd)
    plan = DPSGD(recipe.dpsgd.model, split.n_classes, delta=recipe.privacy.delta, settings=wanted).plan(
        len(split.private.unit_ids), Budget(recipe.privacy.epsilon, recipe.privacy.delta), "add-remove"
    )
    training = replace(plan, steps=min(plan.steps, steps))
    x, y = inputs(split.private.x[:_OTHERS]), split.private.y[:_OTHERS]
    canary_x, canary_y = _canaries(inputs(split.public_x), split.n_classes, wanted.clip)
    length = float(np.linalg.norm(canary_x[0]))
    # The sums a canary's direction may see: its own gradients, and noise.
    most = wanted.clip * (training.steps * training.rate + 3 * training.sigma * training.steps**0.5) / wanted.lot_size
    settings = wanted.model_copy(
        update={
            "rate": training.rate,
            "noise_multiplier": training.sigma,
            "steps": training.steps,
            "epochs": None,
            "optimiser": "sgd",
            "momentum": 0.0,
            "weight_decay": 0.0,
            "schedule": "constant",
            "average": 0.0,
            "learning_rate": _REACH / (length * most),
        }
    )
    return Bench(recipe, settings, training, split.n_classes, x, y, canary_x, canary_y)


def _canaries(public: NDArray[np.float32], n_classes: int, clip: float) -> tuple[NDArray[np.float32], IntArray]:
    """Inputs along the directions in which public records vary least, least first, each with every label."""
    flat = public.reshape(len(public), -1).astype(np.float64)
    _, vectors = np.linalg.eigh(flat.T @ flat)  # by rising eigenvalue
    labels = np.arange(min(n_classes * vectors.shape[1], _MOST_CANARIES)) % n_classes
    directions = vectors.T[np.arange(len(labels)) // n_classes]
    x = (_LONG * clip * directions).astype(np.float32)
    return x.reshape(-1, *public.shape[1:]), labels.astype(np.int64)


def _many_runs(bench: Bench, claim: Claim, runs: int, confidence: float, noise: Iterator[Noise], show: Show) -> LowerBound:
    worlds: tuple[list[Hashable], list[Hashable]] = ([], [])
    only_first = np.arange(len(bench.canary_y)) == 0
    with tracked("trainings", 2 * runs, show=show) as progress:
        for _ in range(runs):
            for world, present in zip(worlds, (only_first, np.zeros_like(only_first)), strict=True):
                world.append(float(bench.margins(bench.train(present, next(noise)))[0]))
                progress.advance(1)
    return bound_of_outcomes(
        *worlds,
        claim,
        confidence=confidence,
        views={"the model's margin at the canary": lambda margin: margin},
        name="many trainings",
        canary=f"a record of class {bench.canary_y[0]} along the direction that public records use least",
    )


def _one_run(bench: Bench, claim: Claim, confidence: float, noise: Noise, coins: np.random.Generator) -> LowerBound:
    present = coins.random(len(bench.canary_y)) < 0.5
    scores = bench.margins(bench.train(present, noise))
    n_canaries = len(present)
    guesses = sorted({max(2, n_canaries // part) for part in (1, 2, 4, 8)})
    lower, guessed, right = best_one_run(scores, present, guesses, delta=claim.delta, confidence=confidence)
    refuted = lower > claim.epsilon
    seen = f"{right} of {guessed} guesses were right, who of {n_canaries} canaries is in"
    return LowerBound(
        name="one training, many canaries",
        method="one run",
        lower=lower,
        claim=claim.epsilon,
        delta=claim.delta,
        refuted=refuted,
        share=lower / claim.epsilon if claim.epsilon > 0 else (float("inf") if lower > 0 else 0.0),
        proof=f"at delta {claim.delta:.3g}: {seen}" if refuted else "",
        event=seen,
        canary=f"{n_canaries} records, one for each direction and class, each in by the toss of a coin",
        runs=1,
        confidence=confidence,
    )
