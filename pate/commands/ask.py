"""``pate ask``: answers to queries, paid for from a ledger, as a file that may be published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pate.commands.inputs import of_files
from pate.commands.options import (
    AggregatorName,
    BudgetDelta,
    BudgetEpsilon,
    BudgetSlack,
    Json,
    LedgerPlace,
    Scores,
    Settings,
    Unit,
    print_json,
)
from pate.commands.settings import parse_settings
from pate.commands.trouble import in_words

if TYPE_CHECKING:
    from pate.ledger import Budget


def ask(
    votes: Annotated[Path, typer.Option("--votes", help="The file of `pate teachers vote` (private).")],
    aggregator: AggregatorName,
    ledger: LedgerPlace,
    out: Annotated[Path, typer.Option("--out", help="A new file for the answers (public), for `pate student train`.")],
    settings: Settings = [],  # noqa: B006  (typer reads the default)
    scores: Scores = None,
    budget_epsilon: BudgetEpsilon = None,
    delta: BudgetDelta = None,
    slack: BudgetSlack = 0.0,
    queries: Annotated[
        Path | None, typer.Option("--queries", help="The file of `pate student queries`: its rows go into the answers' file.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset", help="Fingerprint of the private data, where the votes do not state it.")
    ] = None,
    unit: Unit = None,
    teachers: Annotated[
        int | None, typer.Option("--teachers", min=1, help="Number of voters, where partial votes do not state it.")
    ] = None,
    participation: Annotated[
        int | None, typer.Option("--participation", min=1, help="Most votes of a voter, where partial votes do not state it.")
    ] = None,
    simulate: Annotated[
        int | None, typer.Option("--simulate", min=0, metavar="SEED", help="Seeded noise: repeatable, stamped, not private.")
    ] = None,
    json: Json = False,
) -> None:
    """Answer every query of a file of votes with noise, after charging the ledger for it.

    If the budget does not cover it, nothing is drawn, charged or written. Prints no vote and no data-dependent figure.

    Example: pate ask --votes votes.npz -a gnmax -s sigma=40 --ledger ledger.db --budget-epsilon 1 --out release.json
    """
    from pate.aggregators import make_aggregator
    from pate.aggregators.interrupts import uninterrupted
    from pate.experiments.array_files import check_place_for
    from pate.experiments.asking import AnswersNotWritten, ask_into, open_ledger
    from pate.experiments.score_files import told_of_student
    from pate.experiments.student_jobs import read_rows
    from pate.experiments.vote_files import read_votes
    from pate.ledger.names import public_name
    from pate.noise import noise_for

    mechanism = told_of_student(make_aggregator(aggregator, parse_settings(settings)), scores)
    noise = noise_for("release") if simulate is None else noise_for("simulation", simulate)
    budget = _budget(budget_epsilon, delta, slack)
    written = False

    def after_ctrl_c() -> str:
        if written:
            return f"The answers are charged, and written: {out}."
        return "`pate ledger show` tells what was charged; no answers were written."

    with in_words(after_ctrl_c):
        check_place_for(out)
        file = read_votes(votes, teachers=teachers, participation=participation)
        with of_files():
            rows = None if queries is None else read_rows(queries)
        with open_ledger(ledger, file, dataset, unit, budget) as opened:
            with uninterrupted():
                try:
                    release = ask_into(out, mechanism, file.votes, opened, queries=rows, noise=noise)
                except AnswersNotWritten as error:
                    typer.echo(error.text)  # public and paid for: better on the terminal than lost
                    raise
                written = True
            spent, left = opened.spent(), opened.remaining()
            facts = {
                "release": str(out),
                "asked": len(release),
                "answered": int(release.answered.sum()),
                "stamp": release.stamp,
                "mechanism": dict(release.mechanism),
                "dataset": public_name(opened.fingerprint),
                "unit": opened.unit,
                "budget": {"epsilon": opened.budget.epsilon, "delta": opened.budget.delta},
                "spent": {"epsilon": spent.epsilon, "order": spent.order},
                "remaining": left.fraction,
            }
    if json:
        print_json(facts)
        return
    typer.echo(f"{release!r} in {out}.")
    typer.echo(
        f"Data set {facts['dataset']}: data-independent epsilon {spent.epsilon:.4f} spent of {opened.budget.epsilon:g} at "
        f"delta {opened.budget.delta:g}, {left.fraction:.1%} of the budget left."
    )


def _budget(epsilon: float | None, delta: float | None, slack: float) -> Budget | None:
    from pate.errors import ParameterError
    from pate.ledger import Budget

    if epsilon is None:
        if delta is not None:
            raise ParameterError("--delta belongs to --budget-epsilon: give both, or none for a ledger that has its budget.")
        if slack:
            raise ParameterError("--slack belongs to --budget-epsilon: a ledger that has its budget has its slack.")
        return None
    return Budget(epsilon, 1e-5 if delta is None else delta, slack=slack)
