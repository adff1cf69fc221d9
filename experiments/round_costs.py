"""What several rounds cost together, where later queries were chosen in view of earlier answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pate.aggregators import Aggregator, curve_ahead
from pate.arrays import FloatArray, IntArray
from pate.experiments.accounting import Account, Line, account, published_costs
from pate.privacy.curve import DEFAULT_ORDERS, RdpCurve
from pate.votes import Votes

_POINTS = 100  # of a plot, in each round


def account_rounds(rounds: Sequence[tuple[Votes, Aggregator]], delta: float) -> Account:
    """As :func:`pate.experiments.accounting.account`, of several rounds.

    Data-independent costs of adaptively chosen queries add up (Mironov 2017, arXiv:1702.07476, Proposition 1): each round's
    holds whatever was asked before. Data-dependent ones do not: another data set would have given other answers, and so other
    queries. Their realised sum is no bound, so with more than one round it is not even computed.
    """
    if len(rounds) == 1:
        return account(*rounds[0], delta)
    asked: list[IntArray] = []
    curves: list[RdpCurve] = []
    before, spent = 0, 0 * curve_ahead(rounds[0][1], rounds[0][0].electorate, 1)
    for votes, aggregator in rounds:
        points = np.unique(np.linspace(1, len(votes), min(_POINTS, len(votes))).astype(np.int64))
        own = [spent + curve_ahead(aggregator, votes.electorate, int(n)) for n in points]
        asked.append(before + points)
        curves += own
        before, spent = before + len(votes), own[-1]
    slack = np.array([each.slack for each in curves])
    independent = Line(
        "data_independent",
        "data-independent",
        np.concatenate(asked),
        np.array([each.values for each in curves]),
        publishable=True,
        slack=slack if slack.any() else None,
    )
    title = "data-dependent: none is a bound where queries depend on answers"
    return Account(
        rounds[-1][1],
        joined_votes([votes for votes, _ in rounds]),
        delta,
        independent,
        replace(independent, key="data_dependent", title=title, publishable=False),
        None,
        tuple(_papers(rounds)),
        None,
    )


def joined_votes(parts: Sequence[Votes]) -> Votes:
    """The votes of several batches as one."""
    limits = [each.participation for each in parts]
    limit = None if None in limits else sum(each for each in limits if each is not None)
    return Votes(np.concatenate([each.counts for each in parts]), parts[0].n_teachers, limit)


def _papers(rounds: Sequence[tuple[Votes, Aggregator]]) -> list[Line]:
    """The data-independent bound of the papers, where they have one for every round."""
    total: FloatArray = np.zeros(DEFAULT_ORDERS.size)
    keys, title = set(), ""
    for votes, aggregator in rounds:
        known = [each for each in published_costs(aggregator) if not callable(each.cost)]
        if not known or votes.participation is not None:  # the papers know no partial votes
            return []
        keys.add(known[0].key)
        title, total = known[0].title, total + len(votes) * np.asarray(known[0].cost)
    if len(keys) > 1:
        return []
    return [Line(keys.pop(), title, np.array([sum(len(votes) for votes, _ in rounds)]), total[None, :], publishable=True)]
