"""Optional dependencies: imported when used, and a one-line hint where they are missing."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from pate.errors import MissingExtra


def require(module: str, extra: str) -> ModuleType:
    """Import ``module``, which ``pip install 'pate[extra]'`` brings, or raise :class:`~pate.errors.MissingExtra`.

    >>> require("json", "plot").dumps([1])
    '[1]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:
            raise  # it is installed but lacks something of its own: the hint would lead astray
        raise MissingExtra(package, extra) from None


def require_all(extras: Mapping[str, str]) -> None:
    """Raise one :class:`~pate.errors.MissingExtra` that names every missing package of ``extras``, module to extra, at once.

    Nothing is imported, so that long work can ask at its beginning for all that its end will need.

    >>> require_all({"json": "plot", "numpy": "train"})
    """
    missing = [module for module in extras if not _is_there(module)]
    if missing:
        raise MissingExtra(", ".join(missing), ",".join(dict.fromkeys(extras[module] for module in missing)))


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
