"""Which aggregators of strangers have passed ``pate check``: remembered by their code, parameters and electorate."""

from __future__ import annotations

import hashlib
import inspect
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pate import __version__
from pate.aggregators import BUILT_IN, Aggregator
from pate.errors import RecipeError
from pate.experiments.array_files import write_text
from pate.experiments.results import Verified
from pate.places import data_home
from pate.release import Electorate

MOST_TEACHERS = 5000
"""What `pate check` takes at most: more voters would show nothing new."""


def is_built_in(aggregator: Aggregator) -> bool:
    return type(aggregator) in BUILT_IN.values()


def remember_check(aggregator: Aggregator, n_teachers: int, n_classes: int) -> None:
    """Write down that this aggregator passed."""
    facts = {**_facts(aggregator, n_teachers, n_classes), "at": datetime.now(UTC).isoformat(timespec="seconds")}
    path = _path(aggregator, n_teachers, n_classes)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(facts, indent=1, default=str))


def verified(aggregator: Aggregator, reference: str, electorate: Electorate, allow: bool) -> Verified:
    """How far an aggregator is to be trusted; an error if not at all and ``allow`` does not say otherwise."""
    if is_built_in(aggregator):
        return "built-in"
    teachers = min(max(electorate.n_teachers, 4), MOST_TEACHERS)
    if _path(aggregator, teachers, electorate.n_classes).exists():
        return "checked"
    if allow:
        return "unverified"
    settings = " ".join(f"-s {key}={value}" for key, value in aggregator.parameters.items())
    raise RecipeError(
        f"aggregator: {reference} has not passed `pate check` with these parameters and this code, so nobody knows whether its "
        f"costs are true. Run: pate check {reference} {settings} --teachers {teachers} --classes {electorate.n_classes}; or "
        "add --allow-unverified, and the report will say so."
    )


def _path(aggregator: Aggregator, n_teachers: int, n_classes: int) -> Path:
    text = json.dumps(_facts(aggregator, n_teachers, n_classes), sort_keys=True, default=str)
    return data_home() / "checks" / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def _facts(aggregator: Aggregator, n_teachers: int, n_classes: int) -> dict[str, Any]:
    kind = type(aggregator)
    return {
        "aggregator": f"{kind.__module__}:{kind.__qualname__}",
        "parameters": aggregator.parameters,
        "code": hashlib.sha256(Path(inspect.getfile(kind)).read_bytes()).hexdigest(),
        "n_teachers": n_teachers,
        "n_classes": n_classes,
        "pate": __version__,
    }
