"""The claims as such: numbers of the right shape, in the right order, that add up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pate.arrays import FloatArray
from pate.release import Release
from pate.testing.report import NamedCheck, Violation
from pate.testing.subject import Subject, one_query

RELATIVE = 1e-6
ABSOLUTE = 1e-9
"""Costs that should be equal or ordered may be off by 1e-9 and a millionth: numeric margins, not mistakes."""

_ASKED_ALONE = 24


def claim_checks(subject: Subject) -> Iterator[NamedCheck]:
    """The checks of this module."""
    yield "claims: well formed", lambda: _well_formed(subject)
    yield "claims: rdp <= rdp_bound <= rdp_ahead", lambda: _ordered(subject)
    yield "claims: costs add up", lambda: _add_up(subject)


def exceeds(value: FloatArray, limit: FloatArray) -> FloatArray:
    """By how much ``value`` lies above ``limit`` beyond the tolerance; not positive where it does not."""
    with np.errstate(invalid="ignore"):
        excess = value - limit * (1 + RELATIVE) - ABSOLUTE
    # infinity against infinity is equality
    result: FloatArray = np.where(np.isinf(limit), 0.0, excess)
    return result


def _costs(subject: Subject) -> tuple[Release, FloatArray, FloatArray, FloatArray]:
    """A release of the battery, its rdp_ahead [order], rdp_bound and rdp [query, order]."""
    release = subject.release(subject.tables)
    ahead = subject.aggregator.rdp_ahead(subject.electorate, subject.orders)
    bound = subject.aggregator.rdp_bound(release, subject.orders)
    dependent = subject.aggregator.rdp(subject.votes(subject.tables), release, subject.orders)
    return release, ahead, bound, dependent


def _well_formed(subject: Subject) -> str:
    release, *costs = _costs(subject)
    n_orders = subject.orders.size
    shapes = ((n_orders,), (len(release), n_orders), (len(release), n_orders))
    for name, cost, shape in zip(("rdp_ahead", "rdp_bound", "rdp"), costs, shapes, strict=True):
        if np.shape(cost) != shape:
            raise Violation(f"{name} must have the shape {shape}, a row a query and a column an order, got {np.shape(cost)}.")
        if np.isnan(cost).any() or (cost < 0).any():
            raise Violation(f"{name} must not be negative or NaN, found {np.nanmin(cost):.4g} and {np.isnan(cost).sum()} NaN.")
        drop = exceeds(cost[..., :-1], cost[..., 1:])
        if (drop > 0).any():
            where = int(np.unravel_index(np.argmax(drop), drop.shape)[-1])
            raise Violation(
                f"{name} falls between the orders {subject.orders[where]:g} and {subject.orders[where + 1]:g}; "
                "a Rényi divergence never falls (van Erven and Harremoës 2014, arXiv:1206.2459, Theorem 3)."
            )
    return f"{n_orders} orders from {subject.orders[0]:g} to {subject.orders[-1]:g}, not falling"


def _ordered(subject: Subject) -> str:
    _, ahead, bound, dependent = _costs(subject)
    ceiling = np.broadcast_to(ahead, bound.shape)
    for low_name, low, high_name, high in (("rdp", dependent, "rdp_bound", bound), ("rdp_bound", bound, "rdp_ahead", ceiling)):
        excess = exceeds(low, high)
        if (excess > 0).any():
            query, order = np.unravel_index(np.argmax(excess), excess.shape)
            raise Violation(
                f"{low_name} {low[query, order]:.6g} exceeds {high_name} {high[query, order]:.6g} at order "
                f"{subject.orders[order]:g} for the counts {subject.tables[query].tolist()}. A ledger reserves rdp_ahead."
            )
    return f"within {RELATIVE:g} relative and {ABSOLUTE:g}"


def _add_up(subject: Subject) -> str:
    """A batch costs what its queries cost one by one: row for row, and so in the sum that a ledger charges."""
    rows = np.unique(np.linspace(0, len(subject.tables) - 1, _ASKED_ALONE).astype(int))
    tables = subject.tables[rows]
    release = subject.release(tables)
    aggregator, orders = subject.aggregator, subject.orders
    alone = [one_query(release, query) for query in range(len(release))]
    votes = [subject.votes(table[None, :]) for table in tables]
    costs = {
        "rdp_bound": (aggregator.rdp_bound(release, orders), [aggregator.rdp_bound(one, orders) for one in alone]),
        "rdp": (
            aggregator.rdp(subject.votes(tables), release, orders),
            [aggregator.rdp(vote, one, orders) for vote, one in zip(votes, alone, strict=True)],
        ),
    }
    for name, (batch, singles) in costs.items():
        total, separate = np.atleast_2d(batch).sum(axis=0), np.concatenate(singles).sum(axis=0)
        rows_agree = np.shape(batch) == (len(release), orders.size) and np.allclose(
            batch, np.concatenate(singles), rtol=RELATIVE, atol=ABSOLUTE
        )
        if not rows_agree:
            order = int(np.argmax(np.abs(total - separate)))
            raise Violation(
                f"{name} of {len(release)} queries is {total[order]:.6g} at order {orders[order]:g}, and {separate[order]:.6g} "
                "when each is asked alone. Every query has a row of its own, whatever else is in the batch."
            )
    return f"{len(release)} queries together and one by one"
