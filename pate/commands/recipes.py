"""``pate recipes``: the built-in ones, what stands in them, and one of your own to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pate.commands.options import Json, print_json
from pate.commands.run import Changes, RecipeName
from pate.commands.settings import parse_changes
from pate.commands.trouble import in_words

app = typer.Typer(no_args_is_help=True)


@app.callback()
def recipes() -> None:
    """What a run is made of, in TOML."""


@app.command("list")
def list_recipes(json: Json = False) -> None:
    """The built-in recipes."""
    from pate.experiments.recipes.catalogue import descriptions

    known = descriptions()
    if json:
        print_json(known)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("recipe", "what it is", title="Recipes")
    for name, text in known.items():
        table.add_row(name, text)
    Console().print(table)
    typer.echo("Next: pate run NAME, pate recipes show NAME, pate recipes new my.toml")


@app.command("show")
def show(recipe: RecipeName, settings: Changes = [], json: Json = False) -> None:  # noqa: B006
    """A recipe as it would run: checked, with every default and every change in it."""
    from pate.experiments.recipes.reading import read_whole_recipe, recipe_text

    checked = read_whole_recipe(recipe, parse_changes(settings))
    if json:
        print_json(checked)
    else:
        typer.echo(recipe_text(checked), nl=False)


@app.command("new")
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file that ends in .toml.")],
    like: Annotated[
        str | None, typer.Option("--like", help="Begin with this built-in recipe instead of your own files.")
    ] = None,
) -> None:
    """Write a commented recipe for your own data, to be filled in."""
    from pate.experiments.recipes.catalogue import write_new

    with in_words(lambda: "No recipe was written."):
        write_new(file, like)
    typer.echo(f"{file}: fill it in, then: pate recipes show {file}, pate run {file}")
