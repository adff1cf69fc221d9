"""``pate data``: which data sets there are, fetching them, and whether they are whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from pate.commands.options import Json, print_json
from pate.commands.trouble import in_words

app = typer.Typer(no_args_is_help=True)

Folder = Annotated[
    Path | None, typer.Option("--data", help="Directory of the data sets; else $PATE_DATA, else a place of pate's own.")
]
Names = Annotated[list[str], typer.Argument(metavar="NAME…", help="Data sets of `pate data list`.")]


@app.callback()
def data() -> None:
    """The built-in data sets: list, fetch and verify them."""


@app.command("list")
def list_data(folder: Folder = None, json: Json = False) -> None:
    """The built-in data sets, and which of them are here."""
    from pate.experiments.datasets.fetching import ORIGINS
    from pate.experiments.datasets.registry import known_datasets

    place = _folder(folder)
    rows: list[dict[str, Any]] = []
    for name, what in known_datasets().items():
        files = _files(name)
        there = sum((place / file.path).is_file() for file in files)
        state = f"{there} of {len(files)} files" if there else "–"
        if there == len(files):
            state = "here" if files else "yours" if name == "files" else "built in"
        source = ORIGINS[name].source if name in ORIGINS else ""
        lengths = [file.length for file in files]
        size = None if not lengths or None in lengths else sum(lengths)  # some publishers state none
        rows.append({"name": name, "what": what, "source": source, "bytes": size, "here": state})
    if json:
        print_json({"data": str(place), "datasets": rows})
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("data set", "what it is", "source", "MB", "here", title=f"Data sets in {place}")
    for row in rows:
        size = "–" if row["bytes"] is None else f"{row['bytes'] / 1e6:.1f}"
        table.add_row(row["name"], row["what"], row["source"], size, row["here"])
    Console().print(table)


@app.command("fetch")
def fetch(names: Names, folder: Folder = None) -> None:
    """Download what is missing, check it, put it in its place. What stopped half-way goes on."""
    from pate.experiments.datasets.fetching import ORIGINS
    from pate.experiments.datasets.fetching import fetch as fetch_files

    place = _folder(folder)
    wanted = {name: _files(name) for name in _known(names, set(ORIGINS))}
    with in_words(lambda: "What is whole is kept; the same command goes on."):
        for name, files in wanted.items():
            fetched = fetch_files(name, files, place, lambda line: typer.echo(line, err=True))
            typer.echo(f"{name}: {f'{len(fetched)} files fetched' if fetched else 'all there already'}, in {place}")


@app.command("verify")
def verify(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME…]", help="All that are here unless given.")] = None,
    folder: Folder = None,
    json: Json = False,
) -> None:
    """Compare every file with its checksum. Exit code 5 if one that was asked for is missing, or any is wrong."""
    from pate.errors import DataError
    from pate.experiments.datasets.fetching import ORIGINS

    place = _folder(folder)
    rows: list[dict[str, Any]] = []
    for name in _known(names or list(ORIGINS), set(ORIGINS)):
        for file in _files(name):
            state = "ok"
            try:
                file.checked(place)
            except DataError as error:
                state = "missing" if not (place / file.path).exists() else f"wrong: {error}"
            rows.append({"name": name, "file": file.path, "state": state})
    bad = [row for row in rows if row["state"].startswith("wrong") or (names and row["state"] == "missing")]
    if json:
        print_json({"data": str(place), "files": rows})
    else:
        for row in rows:
            typer.echo(f"{row['state'].partition(':')[0]:8} {row['file']}")
    if bad:
        first = bad[0]
        raise DataError(f"{len(bad)} of {len(rows)} files are not sound; the first: {first['file']}: {first['state']}")


def _folder(given: Path | None) -> Path:
    from pate.places import data_home

    return given or Path(os.environ.get("PATE_DATA") or data_home() / "data")


def _files(name: str) -> Any:
    from pate.experiments.datasets.registry import BUILT_IN
    from pate.references import load_reference

    return load_reference(BUILT_IN[name]).files


def _known(names: list[str], known: set[str]) -> list[str]:
    from pate.errors import ParameterError
    from pate.references import did_you_mean

    for name in names:
        if name not in known:
            raise ParameterError(f"{name!r} is nothing to fetch{did_you_mean(name, known)} Known: {', '.join(sorted(known))}.")
    return names
