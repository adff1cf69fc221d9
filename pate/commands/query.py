"""``pate query``: questions to an aggregator service, and its answers as a file that a student learns from."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pate.commands.options import Json, print_json
from pate.commands.trouble import in_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.client import Client


def query(
    url: Annotated[str, typer.Argument(metavar="URL", help="Address of the service: http(s)://host[:port].")],
    ids: Annotated[str | None, typer.Option("--ids", help="Rows of the service's public pool: 0,1,2.")] = None,
    ids_file: Annotated[
        Path | None, typer.Option("--ids-file", help="Rows from a file of `pate student queries`, or .npy.")
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option("--inputs", help="Public records themselves: a file of `pate student queries`, .npz or .npy.")
    ] = None,
    budget: Annotated[bool, typer.Option("--budget", help="Ask nothing; show what is left of the budget.")] = False,
    key: Annotated[
        str | None, typer.Option("--key", help="The same key and questions give the same answers, paid for once.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="A new file for the answers (public), for `pate student train`.")
    ] = None,
    token_file: Annotated[Path | None, typer.Option("--token-file", help="Holds the token; else $PATE_TOKEN.")] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds that a try may take.")] = 60.0,
    retries: Annotated[int, typer.Option("--retries", min=0, help="Tries after the first, with growing pauses.")] = 8,
    json: Json = False,
) -> None:
    """Ask a service that `pate serve` runs. It pays from its owner's budget; you need its address and a token.

    Example: pate query https://ward.example --ids-file queries.npz --out release.json
    """
    from pate.client import Client
    from pate.errors import BudgetExceeded, ParameterError, ServiceError
    from pate.experiments.array_files import check_place_for
    from pate.experiments.release_files import write_release

    if sum(each is not None for each in (ids, ids_file, inputs)) + budget != 1:
        raise ParameterError("pate query: give one of --ids, --ids-file, --inputs and --budget.")
    if budget and (key is not None or out is not None):
        raise ParameterError("pate query: --budget asks no question, so --key and --out do not belong to it.")
    with Client(url, _token(token_file), timeout=timeout, retries=retries) as client:
        if budget:
            _show_budget(client, json)
            return
        questions, rows = _questions(ids, ids_file, inputs)
        if out is not None:
            check_place_for(out)
            if out.exists():
                raise ParameterError(f"{out}: there is a file already, and it is not overwritten. Name another one.")
        name = secrets.token_hex(16) if key is None else key
        again = f"The same command with --key {name} asks again, and pays for nothing twice."
        with in_words(lambda: again):
            try:
                release = client.release(questions, name)
            except (ServiceError, BudgetExceeded) as error:  # some pieces may be answered already
                raise type(error)(f"{error} {again}") from None
            if out is not None:
                write_release(out, release, rows)
    if json:
        labels = [None if label < 0 else label for label in release.labels.tolist()]
        print_json(
            {
                "key": name,
                "labels": labels,
                "asked": len(release),
                "answered": int(release.answered.sum()),
                "mechanism": dict(release.mechanism),
                "stamp": release.stamp,
                "release": None if out is None else str(out),
            }
        )
        return
    if out is None:
        typer.echo(" ".join("-" if label < 0 else str(label) for label in release.labels.tolist()))
    typer.echo(f"{release!r}{'' if out is None else f' in {out}'}. Key: {name}", err=out is None)


def _token(path: Path | None) -> str | None:
    from pate.errors import ParameterError

    if path is None:
        return None
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path}: the token cannot be read ({type(error).__name__}).") from None


def _questions(ids: str | None, ids_file: Path | None, inputs: Path | None) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """The questions, and which rows of the public records they are, where that is known."""
    import numpy as np

    from pate.errors import ParameterError
    from pate.experiments.array_files import read_arrays
    from pate.experiments.student_jobs import read_rows
    from pate.experiments.teacher_jobs import read_inputs

    if inputs is not None:
        rows = read_arrays(inputs, alone="x", error=ParameterError).get("rows")
        return read_inputs(inputs), rows
    if ids_file is not None:
        found = read_rows(ids_file)
    else:
        words = [word.strip() for word in (ids or "").split(",") if word.strip()]
        if not words or not all(word.isascii() and word.isdecimal() for word in words):
            raise ParameterError(f"--ids must be whole numbers from 0 with commas between them, got {ids!r}.")
        found = np.array([int(word) for word in words], dtype=np.int64)
    return found, found


def _show_budget(client: Client, json: bool) -> None:
    facts = client.budget()
    if json:
        print_json(facts)
        return
    for name, value in facts.items():
        shown = f"{value:.6g}" if isinstance(value, float) else value
        typer.echo(f"{name.replace('_', ' ')}: {shown}")
