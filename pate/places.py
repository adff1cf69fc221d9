"""Where this package keeps what outlives a run: one place for each user, wherever commands are started."""

from __future__ import annotations

import os
from pathlib import Path

from pate.errors import ParameterError


def data_home() -> Path:
    """What must be kept: $PATE_HOME, else $XDG_DATA_HOME/pate, else ~/.local/share/pate. It need not exist."""
    found = _home("PATE_HOME", "XDG_DATA_HOME", Path(".local", "share"))
    if found is None:
        raise ParameterError("There is no home directory to keep ledgers and data in. Set the environment variable PATE_HOME.")
    return found


def cache_home() -> Path | None:
    """What may be lost: $PATE_CACHE, else $XDG_CACHE_HOME/pate, else ~/.cache/pate; None where there is not even a home."""
    return _home("PATE_CACHE", "XDG_CACHE_HOME", Path(".cache"))


def _home(own: str, shared: str, below: Path) -> Path | None:
    if named := os.environ.get(own):
        return Path(named)
    place = Path(os.environ.get(shared, ""))
    if place.is_absolute():  # others must be ignored, says the XDG base directory specification
        return place / "pate"
    try:
        return Path.home() / below / "pate"
    except RuntimeError:
        return None
