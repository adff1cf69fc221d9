"""The two comparison tables of docs/accounting.md: published bounds against the exact cost and the certified bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from pate.aggregators import Aggregator, ConfidentGNMax, GNMax, LNMax
from pate.errors import VotesError
from pate.experiments.accounting import Account, Line, account, published_costs
from pate.privacy.curve import DEFAULT_ORDERS, RdpCurve
from pate.privacy.published import lnmax_log_moments_2017, lnmax_q
from pate.votes import Votes

N_QUERIES = 640
MECHANISMS: tuple[Aggregator, ...] = (
    GNMax(40.0),
    ConfidentGNMax(200.0, 150.0, 40.0),
    ConfidentGNMax(300.0, 200.0, 40.0),
    LNMax(0.05),
)
LARGE_N_QUERIES = 3098


@dataclass(frozen=True)
class Comparison:
    """Section by section what the tables show; data-dependent figures are the owner's."""

    delta: float
    dependent: tuple[dict[str, Any], ...]
    independent: tuple[dict[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        return {"delta": self.delta, "data_dependent": list(self.dependent), "data_independent": list(self.independent)}

    def print(self) -> None:
        console = Console()
        first = Table(title=f"Data-dependent, {N_QUERIES} queries, delta = {self.delta:g}, classic / improved conversion")
        for column in ("mechanism", "expected (no bound)", "published bound", "2017 code", "exact"):
            first.add_column(column, justify="left" if column == "mechanism" else "right")
        for row in self.dependent:
            pairs = (_pair(row, "expected"), _pair(row, "published"), _cell(row["code_2017"]), _pair(row, "exact"))
            first.add_row(row["mechanism"], *pairs)
        second = Table(title=f"Data-independent, delta = {self.delta:g}, classic / improved conversion")
        for column in ("mechanism", "queries", "published bound", "ours"):
            second.add_column(column, justify="left" if column == "mechanism" else "right")
        for row in self.independent:
            second.add_row(row["mechanism"], str(row["queries"]), _pair(row, "published"), _pair(row, "ours"))
        console.print(first, second)


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _pair(row: dict[str, Any], key: str) -> str:
    classic, improved = row[f"{key}_classic"], row[f"{key}_improved"]
    return "–" if improved is None else f"{_cell(classic)} / {_cell(improved)}"


def _label(mechanism: Aggregator) -> str:
    """Such as "confident-gnmax 200/150/40": short enough for a table."""
    return f"{mechanism.name} {'/'.join(f'{value:g}' for value in mechanism.parameters.values() if isinstance(value, float))}"


def comparison(votes: Votes, delta: float) -> Comparison:
    """Both tables on the first 640 queries of ``votes``."""
    if len(votes) < N_QUERIES:
        raise VotesError(f"The comparison needs {N_QUERIES} queries, got {len(votes)}.")
    first = votes.rows(0, N_QUERIES)
    dependent = tuple(_dependent_row(account(first, mechanism, delta), delta) for mechanism in MECHANISMS)
    cases = (*((mechanism, N_QUERIES) for mechanism in MECHANISMS), (MECHANISMS[2], LARGE_N_QUERIES))
    independent = tuple(_independent_row(mechanism, queries, votes, delta) for mechanism, queries in cases)
    return Comparison(delta, dependent, independent)


def _dependent_row(report: Account, delta: float) -> dict[str, Any]:
    lines: dict[str, Line] = {line.key: line for line in report.lines}
    published = lines.get("theorem6", lines.get("theorem3_2017"))
    expected = lines.get("expected_2018")
    return {
        "mechanism": _label(report.aggregator),
        "published_classic": published and published.epsilon(delta, "classic").epsilon,
        "published_improved": published and published.epsilon(delta).epsilon,
        "expected_classic": expected and expected.epsilon(delta, "classic").epsilon,
        "expected_improved": expected and expected.epsilon(delta).epsilon,
        "code_2017": _epsilon_2017(report.aggregator, report.votes, delta) if isinstance(report.aggregator, LNMax) else None,
        "exact_classic": report.dependent.epsilon(delta, "classic").epsilon,
        "exact_improved": report.dependent.epsilon(delta).epsilon,
    }


def _epsilon_2017(aggregator: LNMax, votes: Votes, delta: float) -> float:
    """What the code published with PATE 2017 reports: moments up to 8 only."""
    moments = np.arange(1.0, 9.0)
    total = lnmax_log_moments_2017(lnmax_q(votes.counts, aggregator.gamma), aggregator.gamma, moments).sum(axis=0)
    return float(((total - np.log(delta)) / moments).min())


def _independent_row(mechanism: Aggregator, queries: int, votes: Votes, delta: float) -> dict[str, Any]:
    theirs = queries * RdpCurve(DEFAULT_ORDERS, np.asarray(published_costs(mechanism)[0].cost))
    ours = queries * RdpCurve(DEFAULT_ORDERS, mechanism.rdp_ahead(votes.electorate, DEFAULT_ORDERS))
    return {
        "mechanism": _label(mechanism),
        "queries": queries,
        "published_classic": theirs.epsilon(delta, "classic").epsilon,
        "published_improved": theirs.epsilon(delta).epsilon,
        "ours_classic": ours.epsilon(delta, "classic").epsilon,
        "ours_improved": ours.epsilon(delta).epsilon,
    }
