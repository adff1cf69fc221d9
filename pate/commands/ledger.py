"""``pate ledger show|verify|export|backup|restore``: look at a ledger without changing it.

For its owner: costs are data-independent, but fingerprints are hashes of ids, and an export holds the secret of the hashes.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pate.commands.options import Json, print_json
from pate.errors import LedgerError

if TYPE_CHECKING:  # SQLAlchemy and Rich are imported where they are used, so that `pate --help` stays fast.
    from pate.ledger import Ledger

app = typer.Typer(help="Show, verify, export, back up and restore a privacy ledger.", no_args_is_help=True)

Forget = Annotated[
    bool,
    typer.Option(
        "--i-know-what-was-spent-since-is-forgotten",
        help="Restore though rows are, or may be, missing from the backup. See docs/ledger.md.",
    ),
]
Place = Annotated[str, typer.Argument(metavar="PATH", help="The ledger: an SQLite file, or a PostgreSQL URL.")]
Dataset = Annotated[str | None, typer.Option("--dataset", help="Only the data set with this fingerprint.")]


@app.command()
def show(place: Place, dataset: Dataset = None, as_json: Json = False) -> None:
    """What was spent and what is left, for every data set in the ledger."""
    summaries = []
    for fingerprint in fingerprints(place, dataset):
        with opened(place, fingerprint) as ledger:
            summaries.append(summary_of(ledger))
    if as_json:
        print_json({"ledger": _where(place), "datasets": summaries})
    elif summaries:
        _print_table(summaries)
    else:
        typer.echo(f"Ledger {_where(place)} holds no data set yet.")


@app.command()
def verify(
    place: Place,
    as_json: Json = False,
    rebuild_head: Annotated[
        bool,
        typer.Option("--rebuild-head", help="First make a missing or damaged .head file anew. You say that no row is missing."),
    ] = False,
) -> None:
    """Check the database and recompute every hash and sum. Ends with 0 only if all is well."""
    try:
        if rebuild_head and "://" not in place:
            from pate.ledger.sqlite import rebuild_head as rebuild

            rebuild(Path(place))
        reports = []
        for fingerprint in fingerprints(place, None):
            with opened(place, fingerprint) as ledger:
                reports.append(ledger.verify())
    except LedgerError as error:
        if as_json:
            print_json({"ok": False, "ledger": _where(place), "error": str(error)})
        raise
    if as_json:
        print_json({"ok": True, "ledger": _where(place), "datasets": [vars(report) for report in reports]})
        return
    rows = sum(report.rows for report in reports)
    typer.echo(f"Ledger {_where(place)} is sound: {rows} rows of {len(reports)} data set(s), every hash and sum recomputed.")


@app.command()
def export(
    place: Place,
    dataset: Dataset = None,
    as_json: Annotated[bool, typer.Option("--json", help="Every row as stored, with hashes (the default).")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="One line a row, with the cost at the budget's order.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write to this file instead of the terminal.")] = None,
) -> None:
    """Write the rows out, for an auditor or a spreadsheet."""
    if as_json and as_csv:
        raise typer.BadParameter("choose one of --json and --csv")
    documents, lines = [], []
    for fingerprint in fingerprints(place, dataset):
        with opened(place, fingerprint) as ledger:
            if as_csv:
                lines.extend(_csv_lines(ledger))
            else:
                documents.append(_document(ledger))
    content = _csv_text(lines) if as_csv else json.dumps({"ledger": _where(place), "datasets": documents}, indent=2) + "\n"
    if out is None:
        typer.echo(content, nl=False)
        return
    try:
        out.write_text(content, encoding="utf-8")
    except OSError as error:
        raise LedgerError(f"The export cannot be written to {out} ({error.strerror}). Choose another --out.") from None


@app.command()
def backup(
    place: Place,
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="A new file; its head file goes beside it.")],
) -> None:
    """Copy an SQLite ledger, and the answers of a service in it, while it is in use. The copy is verified."""
    from pate.ledger.backup import back_up

    claims = back_up(place, destination, _check_answers)
    rows = sum(claim.sequence for claim in claims.values())
    typer.echo(f"{destination} holds {rows} rows of {len(claims)} data set(s), verified. Keep {destination}.head with it.")


@app.command()
def restore(
    copy: Annotated[Path, typer.Argument(metavar="BACKUP", help="A file that `pate ledger backup` made.")],
    place: Place,
    forget: Forget = False,
) -> None:
    """Put a backup where a ledger was lost. Never overwrites one, and forgets no spend unless you say so."""
    from pate.ledger.backup import restore as put_back

    claims = put_back(copy, place, forget=forget, check=_check_answers)
    rows = sum(claim.sequence for claim in claims.values())
    typer.echo(f"{place} holds {rows} rows of {len(claims)} data set(s), verified.")
    if forget:
        typer.echo(
            "What was spent after this backup is forgotten: charge it by hand, from the releases that exist, before anybody "
            "asks again (docs/ledger.md, After restoring a backup).",
            err=True,
        )


def _check_answers(path: Path) -> None:
    """Every answer of a service in a copy must be the one that the chain vouches for."""
    from pate.aggregators.service.book import AnswerBook

    for fingerprint in fingerprints(str(path), None):
        with opened(str(path), fingerprint) as ledger:
            if any(entry.memo.get("service") for entry in ledger.entries()):
                AnswerBook(ledger).verify()


@contextmanager
def opened(place: str, fingerprint: str) -> Iterator[Ledger]:
    """One that exists."""
    from pate.ledger import Ledger

    with Ledger.open(place, fingerprint) as ledger:
        yield ledger


def fingerprints(place: str, dataset: str | None) -> list[str]:
    """Of the data sets in a ledger, or the one that was asked for."""
    from pate.ledger import Ledger

    return Ledger.datasets(place) if dataset is None else [dataset]


def _where(place: str) -> str:
    """The place without a password."""
    if "://" not in place:
        return place
    from sqlalchemy.engine import make_url

    return make_url(place).render_as_string(hide_password=True)


def _budget(ledger: Ledger) -> dict[str, float]:
    budget = ledger.budget
    figures = {"epsilon": budget.epsilon, "delta": budget.delta, "order": budget.order, "cap": budget.cap}
    return {**figures, "slack": budget.slack} if budget.slack else figures


def summary_of(ledger: Ledger) -> dict[str, Any]:
    """What a ledger adds up to, after reading it anew. For the owner: the fingerprint is a hash of who is in the data."""
    spent, remaining, checked = ledger.spent(), ledger.remaining(), ledger.verify()
    summary: dict[str, Any] = {
        "fingerprint": ledger.fingerprint,
        "unit": ledger.unit,
        "neighbours": ledger.neighbours,
        "budget": _budget(ledger),
        "spent": {"rdp": checked.spent, "epsilon": spent.epsilon, "order": spent.order},
        "remaining": {"rdp": remaining.rdp, "fraction": remaining.fraction},
        "entries": checked.rows,
        "pending": checked.pending,
        "claim": _claim(ledger),
        "head": checked.head,
    }
    from pate.experiments.sanitised_release import recorded

    if told := [each.to_json() for each in recorded(ledger)]:
        summary["sanitised"] = told
    if ledger.budget.slack:
        summary["spent"]["slack"], summary["remaining"]["slack"] = ledger.spent_curve().slack, remaining.slack
    return summary


def _claim(ledger: Ledger) -> str:
    """Which of the figures may be claimed for all that was released."""
    entries = ledger.entries()
    costs = {entry.sequence: entry.cost.values.tolist() for entry in entries if entry.cost is not None}
    lowered = any(costs[entry.sequence] != costs[entry.settles] for entry in entries if entry.settles is not None)
    if lowered or any(entry.memo.get("service") for entry in entries):
        return "the budget: costs, or who asked, followed from earlier answers"
    return "what is spent, if all of it was fixed in advance; else the budget"


def _document(ledger: Ledger) -> dict[str, Any]:
    rows = [
        {"sequence": row.sequence, "kind": row.kind, "payload": json.loads(row.payload), "hash": row.hash}
        for row in ledger.rows()
    ]
    return {"fingerprint": ledger.fingerprint, "budget": _budget(ledger), "rows": rows}


_COLUMNS = ("dataset", "sequence", "kind", "at", "order", "rdp", "settles", "key", "memo", "hash", "slack")


def _csv_lines(ledger: Ledger) -> list[tuple[object, ...]]:
    index = ledger.budget.order_index
    return [
        (
            ledger.fingerprint,
            entry.sequence,
            entry.kind,
            entry.at,
            ledger.budget.order,
            "" if entry.cost is None else float(entry.cost.values[index]),
            entry.settles,
            entry.key,
            json.dumps(entry.memo, sort_keys=True),
            entry.hash,
            "" if entry.cost is None else entry.cost.slack,
        )
        for entry in ledger.entries()
    ]


def _csv_text(lines: list[tuple[object, ...]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(lines)
    return buffer.getvalue()


def _print_table(summaries: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from pate.experiments.sanitising import Sanitised

    table = Table(caption="spent: epsilon if all costs were fixed in advance; otherwise the claim is the budget")
    table.add_column("data set", overflow="fold")
    slack = any("slack" in summary["budget"] for summary in summaries)
    for title in ("unit", "budget ε", "δ", "spent ε", "left", "entries", "open", *(("slack left",) if slack else ())):
        table.add_column(title, justify="left" if title == "unit" else "right")
    for summary in summaries:
        table.add_row(
            summary["fingerprint"],
            summary["unit"],
            f"{summary['budget']['epsilon']:g}",
            f"{summary['budget']['delta']:g}",
            f"{summary['spent']['epsilon']:.4f}",
            f"{summary['remaining']['fraction']:.1%}",
            str(summary["entries"]),
            str(summary["pending"]),
            *((f"{summary['remaining'].get('slack', 0.0):.3g}",) if slack else ()),
        )
    console = Console()
    console.print(table)
    for summary in summaries:
        for told in summary.get("sanitised", ()):
            console.print(f"{summary['fingerprint']}: {Sanitised.of(told)}", highlight=False, markup=False)
