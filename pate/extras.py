"""Optional dependencies: imported when used, and a one-line hint where they are missing."""

from __future__ import annotations

from importlib import import_module
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
