"""A service from what is on disk: votes or a run of teachers, an aggregator's name, and a ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pate.aggregators import Aggregator, make_aggregator
from pate.aggregators.service.desk import Service
from pate.aggregators.service.sources import Live, Pool, VoteSource
from pate.errors import ParameterError
from pate.execution import Executor
from pate.experiments.verification import verified
from pate.experiments.vote_files import read_votes
from pate.ledger import Budget
from pate.release import Electorate


@dataclass(frozen=True)
class ServeOptions:
    """All that a service is made of. Plain values, so that it can be opened in another process.

    votes, run: one of them; a file of votes on a public pool, or a run directory of teachers who vote on what they are sent.
    fingerprint, unit: of the private data, for a file of votes that does not state them. shape: of one record, for a run that
        does not state it.
    quotas: questions that each client may have paid for.
    """

    aggregator: str
    ledger: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    votes: str | None = None
    run: str | None = None
    fingerprint: str | None = None
    unit: str | None = None
    shape: tuple[int, ...] | None = None
    budget_epsilon: float | None = None
    delta: float | None = None
    slack: float = 0.0
    quotas: Mapping[str, int] = field(default_factory=dict)
    allow_unverified: bool = False

    def __post_init__(self) -> None:
        if (self.votes is None) == (self.run is None):
            raise ParameterError("A service needs either votes that were counted (--votes FILE) or teachers (--run RUN_DIR).")
        if self.budget_epsilon is None and self.delta is not None:
            raise ParameterError("--delta belongs to --budget-epsilon: give both, or none for a ledger that has its budget.")
        if self.budget_epsilon is None and self.slack:
            raise ParameterError("--slack belongs to --budget-epsilon: a ledger that has its budget has its slack.")
        if self.votes is not None and self.shape is not None:
            raise ParameterError("--shape belongs to --run: the questions to counted votes are numbers of records.")
        if self.run is not None and (self.fingerprint or self.unit):
            raise ParameterError("--fingerprint and --unit belong to --votes: a run states its own. Leave them out.")

    @property
    def budget(self) -> Budget | None:
        if self.budget_epsilon is None:
            return None
        return Budget(self.budget_epsilon, 1e-5 if self.delta is None else self.delta, slack=self.slack)

    def with_quotas(self, quotas: Mapping[str, int]) -> ServeOptions:
        return replace(self, quotas=dict(quotas))


def open_service(options: ServeOptions, executor: Executor | None = None) -> Service:
    """The service that ``options`` describe; the only one on its ledger. executor: where a run's teachers vote."""
    aggregator = make_aggregator(options.aggregator, options.settings)
    source = _pool(options) if options.votes is not None else _teachers(options, executor)
    if type(aggregator).against is not Aggregator.against:
        raise ParameterError(
            f"{options.aggregator} compares the teachers with a student, which a service is not told of. Ask with it in a "
            "recipe with rounds, or with `pate ask --scores`."
        )
    verified(aggregator, options.aggregator, source.electorate, options.allow_unverified)
    return Service(aggregator, source, options.ledger, options.budget, quotas=options.quotas)


def _pool(options: ServeOptions) -> VoteSource:
    file = read_votes(Path(options.votes or ""))
    for what, given, stated in (("fingerprint", options.fingerprint, file.fingerprint), ("unit", options.unit, file.unit)):
        if given is not None and stated is not None and given != stated:
            raise ParameterError(
                f"The votes state the {what} {stated!r}, but --{what} {given} was given. Leave the option out."
            )
    fingerprint = options.fingerprint or file.fingerprint
    if fingerprint is None:
        raise ParameterError(
            "The votes do not say whose data they come from, and every answer is charged to a data set: name its fingerprint "
            "with --fingerprint, or vote again with `pate teachers vote`, which states it."
        )
    return Pool(file.votes, fingerprint, options.unit or file.unit or "record")


def _teachers(options: ServeOptions, executor: Executor | None) -> VoteSource:
    from pate.experiments.serving_teachers import AnsweringTeachers

    ensemble = AnsweringTeachers.open(options.run or "")
    shape = options.shape or ensemble.record_shape
    if shape is None:
        raise ParameterError(
            "This run does not say what its teachers learned from: give the shape of one record with --shape, such as 28,28."
        )
    if shape != (ensemble.record_shape or shape):
        raise ParameterError(
            f"The teachers of this run learned from records of shape {ensemble.record_shape}, but --shape {shape} was given. "
            "Leave it out."
        )
    electorate = Electorate(ensemble.n_teachers, ensemble.n_classes)
    return Live(
        lambda records: ensemble.vote(records, executor=executor),
        shape,
        electorate,
        ensemble.fingerprint,
        ensemble.unit,
    )
