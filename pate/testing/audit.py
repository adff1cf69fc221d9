"""The black-box audit: run anything twice as often as need be, on neighbouring data, and see what its outcomes prove.

The first third of the runs scouts: from its first half scores are learnt, from its second half events are chosen. The other two
thirds, which nobody has looked at, count how often the chosen events happen. So the choice costs no confidence, however many
events were tried.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.noise import Noise, OSNoise, SimulatedNoise
from pate.privacy.curve import Epsilon, GridEdgeWarning, RdpCurve
from pate.progress import Show, tracked
from pate.testing.audit_report import AuditReport, LowerBound
from pate.testing.bounds import Box, box, check_confidence, epsilon_floor, hits, proven_share
from pate.testing.scores import Scorer, scorers
from pate.validation import whole

Data = TypeVar("Data")
Outcome = TypeVar("Outcome", bound=Hashable)
View = Callable[[Any], Hashable]

_MORE_DELTAS = (1e-3, 1e-2, 0.05, 0.1, 0.2, 0.3)
LEAST_RUNS = 20
_MOST_CUTS = 400
_SCOUTS = 3  # one of so many runs
DEFAULT_CONFIDENCE = 0.99


@dataclass(frozen=True)
class Claim:
    """(epsilon, delta), and where it is known the Rényi curve behind it: that can be refuted at any order and any delta."""

    epsilon: float
    delta: float
    curve: RdpCurve | None = None

    @classmethod
    def of(cls, claim: float | RdpCurve, delta: float) -> Claim:
        """claim: an epsilon, or the curve from which it follows."""
        if not isinstance(claim, RdpCurve):
            if not claim >= 0:
                raise ParameterError(f"A claimed epsilon must not be negative, got {claim}.")
            return cls(float(claim), delta)
        return cls(best_epsilon(claim, delta).epsilon, delta, claim)

    @property
    def points(self) -> list[tuple[float, float]]:
        """(delta, epsilon) that must all hold."""
        if self.curve is None:
            return [(self.delta, self.epsilon)]
        more = [(delta, best_epsilon(self.curve, delta).epsilon) for delta in _MORE_DELTAS if delta > self.delta]
        return [(self.delta, self.epsilon), *more]


@dataclass(frozen=True)
class Event:
    """A score that is at least ``cut``. swapped: more likely without the canary (the score is negated)."""

    view: str
    see: View
    scorer: Scorer
    swapped: bool
    cut: float

    def happens(self, outcomes: Sequence[Hashable]) -> int:
        """In how many of these outcomes."""
        return int((self.scores(outcomes) >= self.cut).sum())

    def scores(self, outcomes: Sequence[Hashable]) -> FloatArray:
        found = self.scorer([self.see(each) for each in outcomes])
        return -found if self.swapped else found

    def __str__(self) -> str:
        side = "without the canary" if self.swapped else "with the canary"
        return f"{self.view} looks like {side}: {self.scorer.name} scores at least {self.cut:.4g}"


def audit_mechanism(
    mechanism: Callable[[Data, Noise], Hashable],
    data: Data,
    neighbour: Data,
    *,
    claim: float | RdpCurve,
    delta: float,
    runs: int = 10_000,
    confidence: float = DEFAULT_CONFIDENCE,
    views: Mapping[str, View] | None = None,
    seed: int | None = None,
    name: str = "mechanism",
    canary: str = "as given",
    show: Show = "none",
) -> AuditReport:
    """A lower bound on the epsilon of ``mechanism(data, noise) -> outcome`` from its outcomes on two neighbouring inputs.

    data, neighbour: what the claim says must be hard to tell apart. outcome: hashable, all that is published; numbers and
        tuples of numbers are also compared by size and place by place.
    claim: the claimed epsilon at ``delta``, or the RdpCurve behind it, which can be refuted at every order.
    runs: for each input. views: functions of an outcome by name: other things an observer may compute of it, such as a score.
    confidence: a right claim is refuted with probability at most 1 - confidence. What a small bound does not show: that there
        is no better event, or no worse pair of inputs.
    seed: None gives every run the operating system's noise; a number makes the audit repeatable.

    Randomised response that tells the truth in 3 of 4 runs has epsilon log(3) = 1.1, and not 0.5:

    >>> def response(bit, noise):
    ...     return bit ^ int(noise.words(1)[0] < 2**62)
    >>> audit_mechanism(response, 0, 1, claim=1.1, delta=0.0, runs=2000, seed=1).passed
    True
    >>> report = audit_mechanism(response, 0, 1, claim=0.5, delta=0.0, runs=2000, seed=1)
    >>> report.passed, report.lower_bounds[0].refuted
    (False, True)
    """
    whole(runs, "runs", LEAST_RUNS)
    sources = fresh_noise(seed)
    outcomes: tuple[list[Hashable], list[Hashable]] = ([], [])
    with tracked(name, 2 * runs, show=show) as progress:
        for _ in range(runs):
            for world, given in zip(outcomes, (data, neighbour), strict=True):
                world.append(mechanism(given, next(sources)))
                progress.advance(1)
    return audit_outcomes(*outcomes, claim=claim, delta=delta, confidence=confidence, views=views, name=name, canary=canary)


def audit_outcomes(
    inside: Sequence[Hashable],
    outside: Sequence[Hashable],
    *,
    claim: float | RdpCurve,
    delta: float,
    confidence: float = DEFAULT_CONFIDENCE,
    views: Mapping[str, View] | None = None,
    name: str = "mechanism",
    canary: str = "as given",
) -> AuditReport:
    """As :func:`audit_mechanism`, of outcomes that are there already: independent runs in one world and in the other."""
    bound = bound_of_outcomes(
        inside, outside, Claim.of(claim, delta), confidence=confidence, views=views, name=name, canary=canary
    )
    return AuditReport(name, (bound,))


def bound_of_outcomes(
    inside: Sequence[Hashable],
    outside: Sequence[Hashable],
    claim: Claim,
    *,
    confidence: float,
    views: Mapping[str, View] | None = None,
    name: str,
    canary: str,
) -> LowerBound:
    """One line of a report: the bound and what it proves about the claim."""
    check_confidence(confidence)
    if min(len(inside), len(outside)) < LEAST_RUNS:
        raise ParameterError(
            f"An audit needs at least {LEAST_RUNS} runs in each world, got {len(inside)} and {len(outside)}: fewer "
            "prove nothing."
        )
    scouted = [world[: len(world) // _SCOUTS] for world in (inside, outside)]
    tested = [world[len(world) // _SCOUTS :] for world in (inside, outside)]
    # The false-alarm rate is shared by the events that are tested, two at most; of orders and deltas no correction is due.
    events = choose_events(scouted[0], scouted[1], claim, 1 - confidence, views or {"the outcome": lambda outcome: outcome})
    lower, share, text, proof = 0.0, 0.0, "nothing that differs was found in the scouting runs", ""
    for event in events:
        known = tested_box(event, tested[0], tested[1], (1 - confidence) / len(events))
        found = float(epsilon_floor(known, claim.delta)[0])
        spent = float(_shares(known, claim)[0])
        seen = f"{event}; its probability is at least {known.low[0]:.3g} against at most {known.high[0]:.3g}"
        if found > lower or (lower == 0 and spent >= share):
            lower, text = max(lower, found), seen
        if spent > share:
            share, proof = spent, f"{_where(known, claim)}: {seen}"
    return LowerBound(
        name=name,
        method="black box",
        lower=lower,
        claim=claim.epsilon,
        delta=claim.delta,
        refuted=share > 1,
        share=share,
        proof=proof if share > 1 else "",
        event=text,
        canary=canary,
        runs=len(inside) + len(outside),
        confidence=confidence,
    )


def choose_events(
    inside: Sequence[Hashable], outside: Sequence[Hashable], claim: Claim, false_alarm: float, views: Mapping[str, View]
) -> list[Event]:
    """The event with the largest epsilon at the claim's delta, and the one that proves the largest share of the claim."""
    best: dict[str, tuple[float, Event]] = {}
    for view, see in views.items():
        worlds = [[see(each) for each in world] for world in (inside, outside)]
        for scorer in scorers():
            if not scorer.fit(*(world[: len(world) // 2] for world in worlds)):
                continue
            # A score looks too good on the runs that it was learnt from.
            scores = [scorer(world[len(world) // 2 :] if scorer.learns else world) for world in worlds]
            for swapped in (False, True):
                one, two = (-scores[1], -scores[0]) if swapped else (scores[0], scores[1])
                cuts = _cuts(np.concatenate([one, two]))
                if not cuts.size:
                    continue  # all outcomes score alike
                happened, other = hits(one, cuts), hits(two, cuts)
                known = box(happened, len(one), other, len(two), false_alarm)
                # Where nothing is proven yet, the larger difference is the better guess.
                tie = 1e-6 * (happened / len(one) - other / len(two))
                values = {"epsilon": epsilon_floor(known, claim.delta) + tie, "share": _shares(known, claim) + tie}
                for goal, value in values.items():
                    place = int(np.argmax(value))
                    if value[place] > 0 and (goal not in best or value[place] > best[goal][0]):
                        best[goal] = (float(value[place]), Event(view, see, scorer, swapped, float(cuts[place])))
    found = [event for _, event in best.values()]
    return found[:1] if len(found) == 2 and found[0] == found[1] else found


def tested_box(event: Event, inside: Sequence[Hashable], outside: Sequence[Hashable], false_alarm: float) -> Box:
    """What runs that the event was not chosen from say of its probabilities."""
    one, two = (outside, inside) if event.swapped else (inside, outside)
    return box(np.array([event.happens(one)]), len(one), np.array([event.happens(two)]), len(two), false_alarm)


def fresh_noise(seed: int | None) -> Iterator[Noise]:
    """A source for every run: the operating system's, or seeds that are never used twice."""
    run = 0
    while True:
        if seed is None:
            yield OSNoise()
        else:
            yield SimulatedNoise(np.random.SeedSequence([seed, run]).generate_state(1, np.uint64)[0].item())
        run += 1


def _shares(known: Box, claim: Claim) -> FloatArray:
    """float64[event]: the largest share of the claim that is proven, over all deltas and orders at which it is stated."""
    shares = [_of(epsilon_floor(known, delta), epsilon) for delta, epsilon in claim.points]
    if claim.curve is not None:
        shares.append(proven_share(known, claim.curve)[0])
    result: FloatArray = np.max(shares, axis=0)
    return result


def _where(known: Box, claim: Claim) -> str:
    """Where the share of a single event is largest, in words."""
    found = []
    for delta, epsilon in claim.points:
        floor = epsilon_floor(known, delta)
        found.append(
            (float(_of(floor, epsilon)[0]), f"at delta {delta:.3g} epsilon is at least {floor[0]:.3g}, claimed {epsilon:.3g}")
        )
    if claim.curve is not None:
        share, order = (float(each[0]) for each in proven_share(known, claim.curve))
        cost = float(claim.curve.values[np.searchsorted(claim.curve.orders, order)])
        found.append((share, f"at order {order:g} the Rényi cost is at least {share * cost:.3g}, claimed {cost:.3g}"))
    return max(found)[1]


def _of(floor: FloatArray, epsilon: float) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        result: FloatArray = np.where(floor > 0, floor / epsilon, 0.0)
    return result


def _cuts(scores: FloatArray) -> FloatArray:
    """Halfway between neighbouring values: where few runs scout, a cut at the outermost one would miss many of its like."""
    values = np.unique(scores)
    if values.size > _MOST_CUTS:
        values = values[np.unique(np.linspace(0, values.size - 1, _MOST_CUTS).astype(int))]
    below, above = values[:-1], values[1:]  # no cut below the smallest: there everything happens
    # A score of minus infinity says "not a number": nothing lies halfway to it.
    return np.where(np.isfinite(below), below / 2 + above / 2, above - 1e-9 * np.maximum(1.0, np.abs(above)))


def best_epsilon(curve: RdpCurve, delta: float) -> Epsilon:
    """The claim of a curve, and its order, which may lie at the edge of the grid."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GridEdgeWarning)
        return curve.epsilon(delta)
