"""A run's reports: the owner's, and the one that may be published."""

from __future__ import annotations

import json
from pathlib import Path

from pate.errors import DataError
from pate.experiments.array_files import write_text
from pate.experiments.reports.page import OWNER, PUBLIC, render
from pate.experiments.reports.plots import draw
from pate.experiments.results import Result

PUBLIC_RESULT = "result-public.json"
_PLOTS, PUBLIC_PLOTS = "plots", "plots-public"
_RECIPE, _LEDGER = "recipe.toml", "ledger.json"


def write_all(result: Result, folder: Path) -> None:
    """Both reports with their plots, and the public result, beside the recipe and the ledger's rows in ``folder``."""
    write_report(result, folder, folder / OWNER, _PLOTS)
    public = result.public()
    write_text(folder / PUBLIC_RESULT, public.model_dump_json(indent=1) + "\n")
    write_report(public, folder, folder / PUBLIC, PUBLIC_PLOTS)


def write_again(folder: Path, public: bool, path: Path | None = None) -> Path:
    """One of the two reports of a finished run, made anew; where it is."""
    result = Result.read(folder)
    place = path or folder / (PUBLIC if public else OWNER)
    write_report(result.public() if public else result, folder, place, PUBLIC_PLOTS if public else _PLOTS)
    return place


def write_report(result: Result, folder: Path, place: Path, plots: str) -> None:
    try:
        recipe = (folder / _RECIPE).read_text("utf-8")
        rows = json.loads((folder / _LEDGER).read_text("utf-8")) if (folder / _LEDGER).exists() else []
    except (OSError, ValueError) as error:
        raise DataError(f"{folder}: not the directory of a finished run ({error}). Run it again.") from error
    page = render(result, recipe, rows, draw(result, folder / plots))
    write_text(place, page, 0o600 if result.copy_for == "owner" else 0o666)
