"""One call that questions an aggregator in every way this package knows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pate.aggregators import Aggregator
from pate.errors import ParameterError
from pate.release import Electorate
from pate.testing.approximate import batch_checks
from pate.testing.claims import claim_checks
from pate.testing.contract import contract_checks
from pate.testing.empirical import empirical_checks
from pate.testing.exact import exact_checks
from pate.testing.randomness import noise_checks
from pate.testing.report import CheckReport, NamedCheck, run_checks
from pate.testing.subject import Subject
from pate.testing.tables import tied

_MOST_TEACHERS = 5000
_CROSS_CHECK = 5
"""Where the exact audit has the say, the empirical one draws this many times less."""


def check_aggregator(
    aggregator: Aggregator,
    *,
    n_teachers: int = 250,
    n_classes: int = 10,
    samples: int = 1_000_000,
    false_alarm: float = 1e-6,
    seed: int | None = None,
    raise_on_failure: bool = True,
) -> CheckReport:
    """Prove what an aggregator says about itself, or list everything that is wrong with it.

    It checks the contract (shapes, copies, no mutation, names of classes), the source of the noise, and the claims: that
    they are well formed, and that they cover the true Rényi divergence. With ``outcome_log_probs`` that is exact, for
    every neighbour and both directions on a battery of tables, and the probabilities are compared with real releases.
    Without it the releases alone speak, and ``CheckReport.evidence`` says at what confidence.

    n_teachers, n_classes: the electorate to test with; it should be one that the parameters are meant for.
    samples: noisy counts drawn for each audited table. false_alarm: the chance that a right aggregator fails, all
    statistical checks together. seed: None draws the operating system's noise; a number makes the run repeatable, but for
    the checks of the operating system's noise itself.
    Raises :class:`AggregatorCheckFailed`, which lists every failed check, unless ``raise_on_failure`` is False.

    >>> from pate.aggregators import GNMax
    >>> check_aggregator(GNMax(sigma=10), n_teachers=50, n_classes=3, samples=10_000).passed
    True
    """
    _validate(aggregator, n_teachers, n_classes, samples, false_alarm)
    subject = Subject(aggregator, n_teachers, n_classes, samples, false_alarm, seed)
    exact = _has_outcomes(subject)
    evidence = "exact" if exact else f"empirical, confidence 1 - {false_alarm:g}"
    report = CheckReport(repr(aggregator), evidence, run_checks(_all_checks(subject, exact=exact)))
    if raise_on_failure:
        report.raise_if_failed()
    return report


def _all_checks(subject: Subject, *, exact: bool) -> Iterator[NamedCheck]:
    # Three modules make statistical tests; each gets a third of the false-alarm rate.
    share = subject.false_alarm / 3
    yield from contract_checks(subject, exact=exact)
    slack = subject.aggregator.slack_ahead(subject.electorate) > 0
    if not subject.aggregator.adds_up or (slack and not exact):
        yield from claim_checks(subject)
        yield from batch_checks(subject, subject.false_alarm)
        return
    yield from noise_checks(subject, share)
    yield from claim_checks(subject)
    if exact:
        yield from exact_checks(subject, share)
    if slack:
        return  # the empirical audit is of Rényi divergences, which a slack need not bound
    audited = subject.with_samples(max(1, subject.samples // _CROSS_CHECK)) if exact else subject
    yield from empirical_checks(audited, share)


def _has_outcomes(subject: Subject) -> bool:
    try:
        return subject.aggregator.outcome_log_probs(tied(subject.n_teachers, subject.n_classes, 2)[None, :]) is not None
    except Exception:  # it is there but fails: the exact checks will say how
        return True


def _validate(aggregator: Aggregator, n_teachers: int, n_classes: int, samples: int, false_alarm: float) -> None:
    if not isinstance(aggregator, Aggregator):
        raise ParameterError(f"check_aggregator needs an Aggregator, such as GNMax(sigma=40), got {aggregator!r}.")
    if not 4 <= n_teachers <= _MOST_TEACHERS:
        raise ParameterError(f"n_teachers must lie in 4..{_MOST_TEACHERS}, got {n_teachers}; more would show nothing new.")
    if n_classes < 2:
        raise ParameterError(f"n_classes must be at least 2, got {n_classes}.")
    if aggregator.n_classes not in (None, n_classes):
        raise ParameterError(f"{aggregator!r} takes {aggregator.n_classes} classes; n_classes must say so, got {n_classes}.")
    # One that must first be told something of the queries would fail every check for that alone.
    aggregator.check_ready(Electorate(n_teachers, n_classes), 1)
    if samples < 1:
        raise ParameterError(f"samples must be at least 1, got {samples}.")
    if not (np.isfinite(false_alarm) and 0 < false_alarm < 1):
        raise ParameterError(f"false_alarm must lie strictly between 0 and 1, got {false_alarm}.")
