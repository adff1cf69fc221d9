"""The sparse vector technique as it was published with mistakes: each is caught, and the right one is not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from broken_svt import BROKEN, EPSILON, RIGHT, RIGHT_WITH_THREE, Exposed, Published

from pate.mechanisms import AboveThreshold
from pate.noise import SimulatedNoise
from pate.testing.audit import audit_mechanism

NUMERIC = 1e-6
PROVEN = {
    # Lyu, Su, Li 2017, section 3: not private at all, or (1 + 6 tops)/4 epsilon, which long lists of answers approach.
    "algorithm 3": 3.5,
    "algorithm 4": 6.0,
    "algorithm 5": math.inf,
    "algorithm 6": 5.0,
    "no noise on the threshold": 1.2,
    "noise not scaled by tops": 1.9,
}


def loss(version: Published, exposed: Exposed) -> float:
    """log of how much likelier the outcome is on one list of answers than on its neighbour."""
    p, q = (version.probability(values, exposed.told) for values in (exposed.one, exposed.two))
    return math.log(p / q) if q else math.inf


@pytest.mark.parametrize("exposed", BROKEN, ids=lambda each: each.version.name)
def test_the_probability_of_one_event_refutes_each_broken_version(exposed: Exposed) -> None:
    """Exactly: epsilon-DP says that no outcome is e^epsilon times likelier. By quadrature, which is right to NUMERIC."""
    assert max(abs(a - b) for a, b in zip(exposed.one, exposed.two, strict=True)) == 1
    assert loss(exposed.version, exposed) >= PROVEN[exposed.version.name] > EPSILON * (1 + NUMERIC)


@pytest.mark.parametrize("below", [1, 8, 40])
@pytest.mark.parametrize("version", [RIGHT, RIGHT_WITH_THREE], ids=lambda each: each.name)
@pytest.mark.parametrize("threshold", [-2, 0, 3])
def test_the_same_events_do_not_refute_the_right_one(version: Published, below: int, threshold: int) -> None:
    tops = version.tops or 0
    told = (*(False,) * below, *(True,) * tops)
    worst = Exposed(version, (0,) * below + (1,) * tops, (1,) * below + (0,) * tops, told)
    at = Published(version.name, version.threshold_scale, version.query_scale, version.tops, threshold=threshold)
    assert loss(at, worst) <= EPSILON * (1 + NUMERIC)
    if below == 40 and threshold == 0:
        assert loss(at, worst) > 0.99 * EPSILON  # and nothing is wasted


def test_what_the_package_offers_is_the_right_one() -> None:
    for version in (RIGHT, RIGHT_WITH_THREE):
        svt = AboveThreshold(0, version.threshold_scale or 0, version.query_scale or 0, version.tops or 0)
        assert svt.epsilon == pytest.approx(EPSILON)


@pytest.mark.parametrize("exposed", [BROKEN[0], BROKEN[2], BROKEN[3]], ids=lambda each: each.version.name)
def test_probabilities_are_those_of_releases(exposed: Exposed) -> None:
    """How often the first four answers are told as below, in 800 runs: within 6 standard errors, false-alarm rate 2e-9."""
    version, values = exposed.version, exposed.one[:4]
    told = tuple(False for _ in values)
    noise, n = SimulatedNoise(3), 800
    seen = sum(version(values, noise) == told for _ in range(n)) / n
    stated = version.probability(values, told)
    assert abs(seen - stated) < 6 * math.sqrt(stated * (1 - stated) / n)


def test_the_empirical_audit_catches_an_outcome_that_the_neighbour_never_gives() -> None:
    """1,000 runs a side at confidence 0.999; the right version, asked the same, is not refuted."""
    exposed = BROKEN[2]
    report = audit_mechanism(
        exposed.version, exposed.one, exposed.two, claim=EPSILON, delta=0.0, runs=1000, confidence=0.999, seed=1
    )
    assert not report.passed
    assert report.lower_bounds[0].lower > 2 * EPSILON
    right = audit_mechanism(RIGHT, exposed.one, exposed.two, claim=EPSILON, delta=0.0, runs=1000, confidence=0.999, seed=1)
    assert right.passed


@pytest.mark.parametrize(
    ("name", "one", "two"),
    [
        ("algorithm 4", (-2,) * 6 + (1,) * 4, (-1,) * 6 + (0,) * 4),
        ("algorithm 6", (-2,) * 4 + (1,) * 4, (-1,) * 4 + (0,) * 4),
    ],
)
def test_the_empirical_audit_catches_versions_whose_noise_is_too_small(
    name: str, one: tuple[int, ...], two: tuple[int, ...]
) -> None:
    """6,000 runs a side at confidence 0.99; the right version for as many tops is not refuted. The mistakes that are not here
    take tens of thousands of runs to show: the exact probabilities above have them."""
    version = next(each.version for each in BROKEN if each.version.name == name)
    right = Published("algorithm 1, four tops", 2.0, 16.0, tops=4)
    for each, passes in ((version, False), (right, True)):
        report = audit_mechanism(each, one, two, claim=EPSILON, delta=0.0, runs=6000, confidence=0.99, seed=1)
        assert report.passed is passes


def test_the_empirical_audit_passes_above_threshold_itself() -> None:
    """Strong noise is asked for little and keeps it: 1,000 runs a side at confidence 0.999; with a tenth of it, it does not."""
    honest = AboveThreshold(0, 4.0, 8.0)
    quiet = AboveThreshold(0, 0.4, 0.8)

    def released(svt: AboveThreshold):  # type: ignore[no-untyped-def]
        return lambda values, noise: tuple(svt.release(np.array(values), noise).above.tolist())

    for svt, passes in ((honest, True), (quiet, False)):
        report = audit_mechanism(
            released(svt), (0, 1), (1, 0), claim=honest.epsilon, delta=0.0, runs=1000, confidence=0.999, seed=2
        )
        assert report.passed is passes
