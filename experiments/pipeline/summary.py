"""What a run found, put together: figures, what they mean, and what to be wary of."""

from __future__ import annotations

import platform
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib import metadata
from typing import Any

import numpy as np

from pate import __version__
from pate.aggregators import Aggregator, curve_ahead
from pate.arrays import IntArray
from pate.experiments.accounting import CONVERSION, NEIGHBOURS, VOTERS_DECLARED, VOTERS_NEIGHBOURS, Account
from pate.experiments.datasets import Split
from pate.experiments.evaluation import consensus
from pate.experiments.pipeline.answering import Desk
from pate.experiments.pipeline.rounds import Round, joined_release
from pate.experiments.pipeline.voting import plurality
from pate.experiments.planning import least_sigma
from pate.experiments.recipes.checking import make_source
from pate.experiments.recipes.model import Recipe, RunRecipe
from pate.experiments.results import (
    Curve,
    DataFacts,
    Evaluation,
    LabelNoise,
    PrivacyFacts,
    Result,
    RoundFacts,
    SanitisedFacts,
    StageFact,
    UpperBounds,
    Verified,
)
from pate.experiments.round_costs import account_rounds, joined_votes
from pate.experiments.sanitising import Sanitised
from pate.ledger import Budget
from pate.privacy.curve import GridEdgeWarning
from pate.release import ABSTAIN, Mode, Release
from pate.student import Student
from pate.teachers import Ensemble
from pate.votes import Votes

LARGE_EPSILON = 5.0
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "ray")


@dataclass(frozen=True)
class Facts:
    """All that a result is made of."""

    recipe: Recipe
    mode: Mode
    verified: Verified
    split: Split
    rounds: tuple[Round, ...]
    student: Student
    ensemble: Ensemble | None
    sanitised: Sanitised | None = None

    @property
    def mechanism(self) -> Aggregator:
        """Of the last round, the only one in most cases."""
        return self.rounds[-1].mechanism

    @property
    def adaptive(self) -> bool:
        """Whether queries were chosen in view of answers, so that no data-dependent cost is a bound."""
        return len(self.rounds) > 1

    @cached_property
    def votes(self) -> Votes:
        """Of all rounds, one after another; so are ``release`` and ``rows``."""
        return joined_votes([each.votes for each in self.rounds])

    @cached_property
    def release(self) -> Release:
        return joined_release([each.release for each in self.rounds], self.votes.electorate)

    @cached_property
    def rows(self) -> IntArray:
        return np.concatenate([each.rows for each in self.rounds])


@dataclass(frozen=True)
class Tested:
    evaluation: Evaluation | None
    upper_bounds: UpperBounds | None


def summarise(
    facts: Facts, desk: Desk, tested: Tested, stages: Sequence[StageFact], notes: Sequence[str], run: Mapping[str, Any]
) -> Result:
    """The owner's copy of the result."""
    recipe, split, release = facts.recipe, facts.split, facts.release
    report = account_rounds([(each.votes, each.mechanism) for each in facts.rounds], recipe.privacy.delta)
    privacy = _privacy(report, desk, release, _rounds(facts))
    if recipe.teachers.nearest:
        told = VOTERS_NEIGHBOURS if recipe.teachers.voters is None else VOTERS_DECLARED
        privacy = privacy.model_copy(update={"neighbours": told})
    if facts.sanitised is not None:
        drawn = SanitisedFacts(**facts.sanitised.to_json())
        privacy = privacy.model_copy(update={"sanitised": facts.sanitised.epsilon, "sanitising": drawn})
    return Result(
        kind="pate",
        title=recipe.title or split.name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        run_id=run["run_id"],
        mode=facts.mode,
        stamp=release.stamp,
        verified=facts.verified,
        data=data_facts(split, recipe, tested.evaluation),
        student=facts.student.title,
        teachers="single records" if facts.ensemble is None else f"{facts.ensemble.n_teachers} x {recipe.teachers.model}",
        privacy=privacy,
        evaluation=tested.evaluation,
        label_noise=_label_noise(facts),
        consensus=consensus(facts.votes),
        upper_bounds=tested.upper_bounds,
        stages=list(stages),
        warnings=[*notes, *_public_warnings(facts, privacy)],
        private_warnings=_private_warnings(facts),
        environment=environment(),
        seed=recipe.seed,
        test_is_public=split.test_is_public,
    )


def data_facts(split: Split, recipe: RunRecipe, evaluation: Evaluation | None) -> DataFacts:
    return DataFacts(
        name=split.name,
        protocol=split.protocol,
        benchmark=make_source(recipe.data).benchmark,
        fingerprint=split.private.fingerprint,
        unit=split.private.unit,
        class_names=list(split.class_names),
        private_records=len(split.private),
        public_records=len(split.public_x),
        test_records=None if evaluation is None else evaluation.tested,
    )


def ledger_name(mode: Mode) -> str:
    return "in the run directory" if mode == "simulation" else "the durable ledger of these data"


def environment() -> dict[str, str]:
    """By what the run was made: it can be repeated on the same."""
    found = {"pate": __version__, "python": sys.version.split()[0], "platform": platform.platform()}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _rounds(facts: Facts) -> list[RoundFacts] | None:
    """Of each round, where there were several."""
    if len(facts.rounds) == 1:
        return None
    queries, found = facts.recipe.queries, []
    for number, each in enumerate(facts.rounds):
        told, release = each.release.reinforced, each.release
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GridEdgeWarning)
            cost = curve_ahead(each.mechanism, release.electorate, len(release)).epsilon(facts.recipe.privacy.delta)
        found.append(
            RoundFacts(
                strategy=queries.later_strategy if number else queries.strategy,
                asked=len(release),
                answered=int(release.answered.sum()),
                reinforced=None if told is None else int((told != ABSTAIN).sum()),
                mechanism=dict(release.mechanism),
                epsilon=cost.epsilon,
            )
        )
    return found


def _privacy(report: Account, desk: Desk, release: Release, rounds: list[RoundFacts] | None) -> PrivacyFacts:
    delta, bounded = report.delta, rounds is None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        independent = report.independent.epsilon(delta)
    at_edge = any(issubclass(each.category, GridEdgeWarning) for each in caught)
    with desk.open() as ledger:
        spent, budget = ledger.spent().epsilon, ledger.budget.epsilon
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridEdgeWarning)
        dependent = report.dependent.epsilon(delta).epsilon
        papers = {line.key: (line.epsilon(delta).epsilon, line.publishable) for line in report.published}
    curve = None
    if release.electorate.participation is None:
        line = report.independent
        curve = Curve(
            queries=line.queries.tolist(),
            independent=line.epsilons(delta).tolist(),
            dependent=report.dependent.epsilons(delta).tolist() if bounded else None,
        )
    return PrivacyFacts(
        delta=delta,
        data_independent=independent.epsilon,
        data_dependent=dependent if bounded else None,
        sanitised=None,
        order=independent.order,
        order_at_grid_edge=at_edge,
        budget_epsilon=budget,
        spent=spent,
        ledger=ledger_name(desk.mode),
        mechanism=dict(release.mechanism),
        n_teachers=release.electorate.n_teachers,
        participation=release.electorate.participation,
        asked=len(release),
        answered=int(release.answered.sum()),
        neighbours=NEIGHBOURS,
        conversion=CONVERSION,
        published={key: value for key, (value, public) in papers.items() if public},
        private_published={key: value for key, (value, public) in papers.items() if not public},
        curve=curve,
        rounds=rounds,
    )


def _label_noise(facts: Facts) -> LabelNoise:
    answered = facts.release.answered
    said, rows = facts.release.labels[answered], facts.rows[answered]
    right = None
    if facts.mode == "simulation" and facts.split.public_labels is not None and len(rows):
        right = float((facts.split.public_labels.of(rows) == said).mean())
    winners = plurality(facts.votes)[answered]
    return LabelNoise(
        answered=int(answered.sum()), right=right, plurality=float((winners == said).mean()) if len(rows) else None
    )


def _public_warnings(facts: Facts, privacy: PrivacyFacts) -> list[str]:
    """What follows from the recipe and the release alone."""
    found = []
    epsilon = privacy.promised
    if facts.verified == "unverified":
        found.append("The aggregator has not passed `pate check`: its costs are claims that nobody has tested.")
    if epsilon > LARGE_EPSILON:
        found.append(f"Publishable epsilon {epsilon:.3g} promises little: {_more_noise(facts)}.")
    if privacy.order_at_grid_edge:
        found.append(
            f"The best Rényi order, {privacy.order:g}, lies at the edge of the grid: epsilon holds, but a wider grid might "
            "show a smaller one."
        )
    if facts.mechanism.parameters.get("charging") == "realised":
        found.append("Charged as realised: epsilon here is the worst case; the ledger's budget is the other valid claim.")
    if facts.sanitised is not None and not facts.sanitised.helps:
        found.append(
            f"The sanitised epsilon is no smaller than the data-independent one, {privacy.data_independent:.4g}: that holds "
            f"for the answers alone, without this page; with the sanitised one all costs {epsilon:.4g}."
        )
    if facts.adaptive:
        found.append(
            f"Asked in {len(facts.rounds)} rounds, the later ones in view of earlier answers: no data-dependent figure is a "
            "bound then, so none is given."
        )
    answered, asked = int(facts.release.answered.sum()), len(facts.release)
    corrections = any(each.release.reinforced is not None for each in facts.rounds)  # few answers are then a good sign
    if answered * 2 < asked and not corrections:
        found.append(f"Only {answered} of {asked} queries were answered, and all were paid for.")
    return found


def _more_noise(facts: Facts) -> str:
    if facts.adaptive or facts.mechanism.name not in ("gnmax", "noisy-histogram"):
        return "more noise, fewer queries or more teachers make it smaller; `pate plan` tells how much"
    needed = least_sigma(
        facts.mechanism.name, len(facts.release), Budget(1.0, facts.recipe.privacy.delta), facts.release.electorate
    )
    sigma = facts.mechanism.parameters["sigma"]
    return f"sigma {sigma:g} is too small for a strong claim, epsilon 1 takes {needed:g} for these {len(facts.release)} queries"


def delta_warnings(delta: float, split: Split) -> list[str]:
    """What the exact number of records says of a delta: private, as that number is."""
    units, unit = len(split.private.unit_ids), split.private.unit
    return [] if delta < 1 / units else [f"delta {delta:g} is not below 1/{units}, one over the number of protected {unit}s."]


def _private_warnings(facts: Facts) -> list[str]:
    """What depends on private records: for the owner's eyes."""
    found = delta_warnings(facts.recipe.privacy.delta, facts.split)
    if facts.ensemble is not None and facts.ensemble.failures:
        count = len(facts.ensemble.failures)
        found.append(f"{count} of {facts.ensemble.n_teachers} teachers failed and vote the fixed default class.")
    silent = int((facts.votes.counts.sum(axis=1) == 0).sum())
    if silent:
        found.append(f"On {silent} of {len(facts.votes)} queries nobody voted, so their answers are noise alone.")
    return found
