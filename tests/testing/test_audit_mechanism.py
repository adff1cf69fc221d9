"""The black-box audit: it catches what leaks, and raises no more false alarms than it says."""

from __future__ import annotations

import math
from collections.abc import Hashable

import numpy as np
import pytest
from scipy.stats import binom

from pate import RdpCurve
from pate.errors import ParameterError
from pate.noise import Noise, OSNoise
from pate.testing import AuditFailed, audit_mechanism, audit_outcomes
from pate.testing.audit import Claim, choose_events
from pate.testing.scores import scorers

GAUSS = RdpCurve.of(lambda orders: orders / 2)
"""The claim of one number of sensitivity 1 with noise of standard deviation 1."""


def truthful(bit: int, noise: Noise) -> int:
    """The bit in three of four runs: epsilon log(3)."""
    return bit ^ int(noise.words(1)[0] < 2**62)


def noisy(value: float, noise: Noise) -> float:
    return value + float(noise.gaussian(1.0, (1,)).values[0])


def test_no_more_false_alarms_than_stated() -> None:
    """100 audits of a claim that holds with equality, 60 runs a world, confidence 0.8: at most 20% alarms, so more than
    39 come with probability below 1e-5."""
    reports = [
        audit_mechanism(truthful, 0, 1, claim=math.log(3), delta=0.0, runs=60, confidence=0.8, seed=s) for s in range(100)
    ]
    alarms = sum(not report.passed for report in reports)
    assert binom.sf(39, 100, 0.2) < 1e-5
    assert alarms <= 39
    assert any(report.lower_bounds[0].lower > 0 for report in reports)


def test_no_false_alarm_on_a_curve_that_is_spent() -> None:
    """40 audits of a Gaussian at its very curve, confidence 0.8: more than 21 alarms have probability below 1e-5."""
    generator = np.random.default_rng(0)
    alarms = 0
    for _ in range(40):
        worlds = [(shift + generator.normal(size=80)).tolist() for shift in (0.0, 1.0)]
        alarms += not audit_outcomes(*worlds, claim=GAUSS, delta=1e-5, confidence=0.8).passed
    assert binom.sf(21, 40, 0.2) < 1e-5
    assert alarms <= 21


def test_twice_the_shift_is_refuted_at_some_order() -> None:
    """Half the sigma: 400 runs a world, confidence 0.99."""
    report = audit_mechanism(noisy, 0.0, 2.0, claim=GAUSS, delta=1e-5, runs=400, seed=3)
    bound = report.lower_bounds[0]
    assert bound.refuted
    assert bound.lower < bound.claim  # at delta 1e-5 alone so few runs could not tell
    assert "order" in bound.proof or "delta" in bound.proof
    with pytest.raises(AuditFailed, match="fails 1 of 1 checks"):
        report.raise_if_failed()


@pytest.mark.parametrize("swap", [False, True])
def test_either_world_may_be_the_likelier(swap: bool) -> None:
    def sometimes(present: bool, noise: Noise) -> bool:
        return present and noise.words(1)[0] < 2**61

    one, two = (False, True) if swap else (True, False)
    report = audit_mechanism(sometimes, one, two, claim=0.2, delta=0.0, runs=400, seed=5)
    assert report.lower_bounds[0].refuted


def test_the_same_seed_is_the_same_audit_and_noise_is_never_used_twice() -> None:
    seen: list[int] = []

    def remember(_: object, noise: Noise) -> int:
        seen.append(int(noise.words(1)[0]))
        return seen[-1] % 4

    reports = [audit_mechanism(remember, None, None, claim=1.0, delta=0.0, runs=40, seed=9).to_json() for _ in range(2)]
    assert reports[0] == reports[1]
    assert len(set(seen[:80])) == 80
    assert seen[:80] == seen[80:]


def test_without_a_seed_the_operating_system_s_noise_is_drawn() -> None:
    sources: list[Noise] = []

    def remember(_: object, noise: Noise) -> int:
        sources.append(noise)
        return 0

    report = audit_mechanism(remember, 1, 2, claim=0.0, delta=0.0, runs=20)
    assert all(isinstance(each, OSNoise) for each in sources)
    assert report.passed
    assert report.lower_bounds[0].lower == 0
    assert "nothing that differs" in report.lower_bounds[0].event


def test_tuples_are_compared_place_by_place() -> None:
    """Ten fair places and ten that lean: no outcome comes twice, and no single place tells enough."""
    generator = np.random.default_rng(2)

    def draw(share: float) -> list[Hashable]:
        places = np.concatenate([generator.random((400, 20)) < 0.5, generator.random((400, 20)) < share], axis=1)
        return [tuple(row) for row in places.astype(int).tolist()]

    report = audit_outcomes(draw(0.65), draw(0.35), claim=1.0, delta=1e-5)
    assert report.lower_bounds[0].refuted
    assert "place by place" in report.lower_bounds[0].event


def test_outcomes_of_several_kinds_are_told_apart() -> None:
    """A refusal, where there are answers otherwise: only whole outcomes can be compared."""
    inside: list[Hashable] = ["refused", (1, 2)] * 60
    report = audit_outcomes(inside, [(1, 2)] * 120, claim=0.1, delta=0.0)
    assert report.lower_bounds[0].refuted


def test_a_rare_refusal_does_not_hide_the_runs_beside_it() -> None:
    """100 audits of one mechanism against itself, 150 runs a world, confidence 0.99: more than 8 alarms, and more than 8 wrong
    bounds, have probability below 1e-5 each. One run in 200 refuses, mostly none that scouts."""
    generator = np.random.default_rng(4)

    def draw() -> list[Hashable]:
        rows = generator.normal(size=(150, 3)).tolist()
        return ["refused" if late else tuple(row) for row, late in zip(rows, generator.random(150) < 0.005, strict=True)]

    bounds = [audit_outcomes(draw(), draw(), claim=0.5, delta=1e-5).lower_bounds[0] for _ in range(100)]
    assert binom.sf(8, 100, 0.01) < 1e-5
    assert sum(each.refuted for each in bounds) <= 8
    assert sum(each.lower > 0 for each in bounds) <= 8


def test_an_outcome_scores_alike_in_any_company() -> None:
    generator = np.random.default_rng(5)
    worlds = [[tuple(row) for row in (shift + generator.normal(size=(60, 2))).tolist()] for shift in (0.0, 1.0)]
    strange: list[Hashable] = ["refused", (1.0,), (1.0, 2.0, 3.0), (math.inf, 0.0), 10**400, None]
    for scorer in scorers():
        if scorer.fit(*worlds):
            together = scorer([*worlds[0], *strange])
            alone = [scorer([each])[0] for each in (*worlds[0], *strange)]
            np.testing.assert_allclose(together, alone, rtol=1e-12, atol=1e-12)


def test_a_view_finds_what_the_outcome_hides() -> None:
    """The sum of two numbers that are each uniform modulo 8 tells the input; neither alone does, nor both place by place."""

    def shares(secret: int, noise: Noise) -> tuple[int, int]:
        one = int(noise.words(1)[0] % 8)
        return one, (secret - one) % 8

    def audit(views: object) -> float:
        found = audit_mechanism(shares, 0, 1, claim=0.1, delta=0.0, runs=60, seed=1, views=views)  # type: ignore[arg-type]
        return found.lower_bounds[0].lower

    assert audit({"the sum": lambda outcome: sum(outcome) % 8}) > 1.5


def test_the_event_is_never_chosen_from_the_runs_that_count() -> None:
    """Swapping the halves changes the event, and the halves that count are not looked at."""
    claim = Claim.of(0.5, 0.0)
    looked: list[int] = []

    def see(outcome: int) -> int:
        looked.append(outcome)
        return outcome % 3

    choose_events(list(range(50)), list(range(50)), claim, 0.05, {"seen": see})
    assert set(looked) == set(range(50))


def test_the_report_is_json_with_stable_keys() -> None:
    report = audit_outcomes([0, 1] * 20, [0, 1] * 20, claim=RdpCurve.zero(), delta=1e-5, name="coin", canary="none")
    found = report.to_json()
    assert sorted(found) == ["audited", "lower_bounds", "notes", "passed", "rules"]
    expected = "name method lower claim delta refuted share proof event canary runs confidence private"
    assert list(found["lower_bounds"][0]) == expected.split()
    assert "no proof of privacy" in found["notes"][-1]
    assert found["lower_bounds"][0]["claim"] == 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runs": 5}, "runs must be a whole number of at least 20"),
        ({"claim": -1.0}, "must not be negative"),
        ({"confidence": 0.0}, "confidence must lie"),
        ({"claim": GAUSS}, "delta must lie strictly"),
    ],
)
def test_mistakes(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        audit_mechanism(truthful, 0, 1, **{"claim": 1.0, "delta": 0.0, "runs": 20, **changes})  # type: ignore[arg-type]


def test_too_few_outcomes() -> None:
    with pytest.raises(ParameterError, match="at least 20 runs in each world"):
        audit_outcomes([1] * 30, [1] * 5, claim=1.0, delta=0.0)


@pytest.mark.slow
def test_no_more_false_alarms_than_stated_over_many_audits() -> None:
    """1,500 audits of 200 runs a world at confidence 0.95: more than 120 alarms have probability below 1e-6."""
    alarms = sum(
        not audit_mechanism(truthful, 0, 1, claim=math.log(3), delta=0.0, runs=200, confidence=0.95, seed=s).passed
        for s in range(1500)
    )
    assert binom.sf(120, 1500, 0.05) < 1e-6
    assert alarms <= 120
