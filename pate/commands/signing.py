"""``pate ledger key|sign|check``: a signed statement of what was spent, for whoever has to take somebody's word for it."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated

import typer

from pate.commands.ledger import Dataset, Place, fingerprints, opened, summary_of
from pate.commands.options import Json, print_json
from pate.errors import LedgerError

PrivateKey = Annotated[Path, typer.Option("--key", help="The private key of `pate ledger key`, or any Ed25519 key in PEM.")]
PublicKey = Annotated[Path, typer.Option("--key", help="The owner's public key.")]


def key(private: Annotated[Path, typer.Argument(metavar="KEY", help="A new file; the public key goes to KEY.pub.")]) -> None:
    """Make a pair of keys: one to sign with, and one to give away."""
    from pate.ledger.statement import make_keys

    public = make_keys(private)
    typer.echo(f"{private} signs: keep it to yourself. {public} checks: give it to whoever will read your statements.")


def sign(
    place: Place,
    key: PrivateKey,
    out: Annotated[Path, typer.Option("--out", help="Where the statement is written.")],
    dataset: Dataset = None,
) -> None:
    """State, signed, what was spent and what is left. Data-independent figures only: it may be published.

    Example: pate ledger sign ledger.db --key owner.key --out statement.json
    """
    from pate.ledger.statement import check_names, public_facts
    from pate.ledger.statement import sign as signed

    facts = []
    wanted = fingerprints(place, dataset)
    check_names(wanted)
    for fingerprint in wanted:
        with opened(place, fingerprint) as ledger:
            facts.append(public_facts(ledger, summary_of(ledger)))
    text = json_text.dumps(signed(facts, key), indent=2) + "\n"
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LedgerError(f"The statement cannot be written to {out} ({error.strerror}). Choose another --out.") from None
    typer.echo(f"{out} states {len(facts)} data set(s). Keep a copy where the ledger is not: it shows up a ledger put back.")


def check(
    statement: Annotated[Path, typer.Argument(metavar="STATEMENT", help="A file that `pate ledger sign` wrote.")],
    key: PublicKey,
    ledger: Annotated[
        str | None, typer.Option("--ledger", help="Also check that this ledger still has every row that is stated.")
    ] = None,
    json: Json = False,
) -> None:
    """Check who signed a statement, and print it. Ends with 0 only if all is well.

    Example: pate ledger check statement.json --key owner.key.pub --ledger ledger.db
    """
    from pate.ledger.statement import check as checked
    from pate.ledger.statement import check_held

    try:
        document = json_text.loads(statement.read_text(encoding="utf-8"))
    except OSError as error:
        raise LedgerError(f"Statement {statement}: the file cannot be read ({error.strerror}).") from None
    except ValueError:
        raise LedgerError(f"Statement {statement}: it is no JSON. Ask for it again.") from None
    found = checked(document, key)
    if ledger is not None:
        for entry in found["datasets"]:
            check_held(ledger, entry)
    if json:
        print_json(found)
        return
    for entry in found["datasets"]:
        budget = entry["budget"]
        typer.echo(
            f"{entry['dataset']}: epsilon {entry['spent']['epsilon']:.4f} spent of {budget['epsilon']:g} at delta "
            f"{budget['delta']:g}; the claim is {entry['claim']}. {entry['entries']} rows, unit {entry['unit']}, neighbours "
            f"{entry['neighbours']}"
        )
    held_too = "" if ledger is None else f", and {ledger} has every row of it"
    typer.echo(f"Signed with the key of {key} at {found['at']}{held_too}.")
