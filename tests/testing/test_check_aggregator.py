"""The conformance suite lets every right aggregator pass and catches every broken one, by the check meant for it.

Statistical checks run at the false-alarm rate 1e-6 of a run, with a fixed seed where the outcome must not vary.
"""

from __future__ import annotations

import broken
import numpy as np
import pytest

from pate.aggregators import Aggregator, Confident, ConfidentGNMax, GNMax, LNMax, NoisyHistogram
from pate.errors import ParameterError, PateError
from pate.testing import AggregatorCheckFailed, Check, CheckReport, check_aggregator

FEW = 100_000
MANY = 1_000_000
"""Noisy counts for each audited table: few where the exact audit has the say, the default where releases alone do."""

ONE_FAULT = {broken.CostNotSummed, broken.UnNoisedThreshold, broken.OneDirectionOnly, broken.TellsTheVotes}
"""What is right in these must not be blamed."""


@pytest.mark.parametrize(
    ("aggregator", "n_teachers", "n_classes"),
    [
        (GNMax(40), 250, 10),
        (GNMax(2), 20, 2),
        (GNMax(100), 500, 12),
        (LNMax(0.05), 250, 4),
        (LNMax(1.0), 20, 3),
        (ConfidentGNMax(200, 150, 40), 250, 10),
        (ConfidentGNMax(300, 200, 40), 500, 5),
        (ConfidentGNMax(12, 4, 2), 20, 3),
        (ConfidentGNMax(200, 150, 40, charging="realised"), 250, 10),
        (Confident(LNMax(0.1), 60, 20), 100, 2),
        (Confident(LNMax(0.1), 60, 20, charging="realised"), 100, 6),
        (Confident(broken.Plain(20), 60, 20), 100, 3),
        (NoisyHistogram(40), 250, 10),
        (NoisyHistogram(5), 20, 2),
        (broken.Plain(40), 250, 4),
    ],
    ids=repr,
)
def test_a_right_aggregator_passes(aggregator: Aggregator, n_teachers: int, n_classes: int) -> None:
    report = check_aggregator(aggregator, n_teachers=n_teachers, n_classes=n_classes, samples=FEW, seed=1)
    assert report.passed
    assert (report.evidence == "exact") == (aggregator.outcome_log_probs(np.array([[1, 1]])) is not None)


@pytest.mark.parametrize(
    ("aggregator", "meant"),
    [
        # The eight, some in two forms.
        (broken.HalfTheNoise(40), "exact: frequencies"),
        (broken.HalfTheNoiseUnknown(40), "empirical: claims"),
        (broken.UnNoisedThreshold(40), "empirical: claims"),
        (broken.FreeAbstention(200, 150, 40), "exact: rdp_bound"),
        (broken.OneDirectionOnly(20), "exact: rdp"),
        (broken.MissingLog(0.05), "exact: probabilities sum to one"),
        (broken.MissingLogInCost(0.05), "claims: rdp <= rdp_bound <= rdp_ahead"),
        (broken.PrecedenceSlip(0.05), "exact: rdp"),
        (broken.SeededNoise(40), "noise: fresh every release"),
        (broken.OwnGenerator(40), "noise: fresh every release"),
        (broken.SeededTest(200, 150, 40), "noise: fresh every release"),
        (broken.CostNotSummed(40), "claims: costs add up"),
        # Others that were thought of on the way.
        (broken.SharedNoise(40), "noise: fresh every query"),
        (broken.HistogramToo(40), "contract: outcomes"),
        (broken.PrefersClassZero(40), "contract: relabelling"),
        (broken.TellsTheVotes(40), "contract: mechanism"),
        (broken.AlwaysFails(40), "contract: release"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Aggregator) else value,
)
def test_a_broken_aggregator_is_caught_by_the_check_meant_for_it(aggregator: Aggregator, meant: str) -> None:
    samples = MANY if meant.startswith("empirical") else FEW
    report = check_aggregator(aggregator, n_classes=4, samples=samples, seed=1, raise_on_failure=False)
    failures = [check.name for check in report.failures]
    assert meant in failures, str(report)
    if type(aggregator) in ONE_FAULT:
        assert failures == [meant], str(report)


def test_all_failures_are_raised_at_once() -> None:
    with pytest.raises(AggregatorCheckFailed) as caught:
        check_aggregator(broken.AlwaysFails(40), n_classes=3)
    report = check_aggregator(broken.AlwaysFails(40), n_classes=3, raise_on_failure=False)
    assert len(report.failures) > 5
    for failure in report.failures:
        assert f"{failure.name}: {failure.detail}" in str(caught.value)
    assert "no release today" in str(caught.value)


def test_the_error_is_a_pate_error_and_an_assertion() -> None:
    assert issubclass(AggregatorCheckFailed, PateError)
    assert issubclass(AggregatorCheckFailed, AssertionError)


def test_an_empirical_report_says_how_sure_it_is() -> None:
    report = check_aggregator(NoisyHistogram(5), n_classes=2, samples=FEW, false_alarm=1e-4, seed=3)
    assert report.evidence == "empirical, confidence 1 - 0.0001"
    (claims,) = (check for check in report.checks if check.name == "empirical: claims")
    assert "times smaller would have been refuted" in claims.detail


def test_too_few_samples_are_owned_up_to() -> None:
    report = check_aggregator(NoisyHistogram(40), n_classes=2, samples=100, seed=3)
    (claims,) = (check for check in report.checks if check.name == "empirical: claims")
    assert "too few samples" in claims.detail


def test_a_report_reads_well() -> None:
    report = CheckReport("GNMax(sigma=1)", "exact", (Check("a", True, "fine"), Check("b", False, "wrong")))
    assert not report.passed
    assert str(report) == "GNMax(sigma=1) (exact)\n✓ a: fine\n✗ b: wrong"
    with pytest.raises(AggregatorCheckFailed, match="fails 1 of 2 checks"):
        report.raise_if_failed()
    assert report.to_json()["checks"][1] == {"name": "b", "passed": False, "detail": "wrong"}


def test_a_mechanism_that_never_answers_proves_nothing() -> None:
    report = check_aggregator(ConfidentGNMax(200, 1, 1), n_teachers=20, n_classes=3, samples=1000, raise_on_failure=False)
    assert "noise: outcomes vary" in [check.name for check in report.failures]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_teachers": 3}, "n_teachers must lie in 4"),
        ({"n_teachers": 10**6}, "n_teachers must lie in 4"),
        ({"n_classes": 1}, "n_classes must be at least 2"),
        ({"samples": 0}, "samples must be at least 1"),
        ({"false_alarm": 0.0}, "false_alarm must lie strictly"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        check_aggregator(GNMax(40), **arguments)  # type: ignore[arg-type]


def test_a_class_is_no_aggregator() -> None:
    with pytest.raises(ParameterError, match="needs an Aggregator"):
        check_aggregator(GNMax)  # type: ignore[arg-type]
