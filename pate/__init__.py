"""PATE: private aggregation of teacher ensembles.

The names below are the public face of the package. Each is imported on first use, so that ``import pate`` and
``pate --help`` stay fast. Code inside the package imports from the module that holds the name, never from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pate.aggregators import Aggregator, Confident, ConfidentGNMax, GNMax, LNMax, NoisyHistogram, ask
    from pate.errors import BudgetExceeded, PateError, VotesError
    from pate.experiments.accounting import account
    from pate.ledger import Budget, Ledger
    from pate.noise import OSNoise, SimulatedNoise
    from pate.privacy.curve import DEFAULT_ORDERS, RdpCurve
    from pate.release import ABSTAIN, Electorate, Release
    from pate.votes import Votes

    __version__: str

__all__ = [
    "ABSTAIN",
    "DEFAULT_ORDERS",
    "Aggregator",
    "Budget",
    "BudgetExceeded",
    "Confident",
    "ConfidentGNMax",
    "Electorate",
    "GNMax",
    "LNMax",
    "Ledger",
    "NoisyHistogram",
    "OSNoise",
    "PateError",
    "RdpCurve",
    "Release",
    "SimulatedNoise",
    "Votes",
    "VotesError",
    "__version__",
    "account",
    "ask",
]

_HOME = {
    "ABSTAIN": "pate.release",
    "Aggregator": "pate.aggregators",
    "Budget": "pate.ledger",
    "BudgetExceeded": "pate.errors",
    "Confident": "pate.aggregators",
    "ConfidentGNMax": "pate.aggregators",
    "DEFAULT_ORDERS": "pate.privacy.curve",
    "Electorate": "pate.release",
    "GNMax": "pate.aggregators",
    "LNMax": "pate.aggregators",
    "Ledger": "pate.ledger",
    "NoisyHistogram": "pate.aggregators",
    "OSNoise": "pate.noise",
    "PateError": "pate.errors",
    "RdpCurve": "pate.privacy.curve",
    "Release": "pate.release",
    "SimulatedNoise": "pate.noise",
    "Votes": "pate.votes",
    "VotesError": "pate.errors",
    "account": "pate.experiments.accounting",
    "ask": "pate.aggregators",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'pate' has no attribute {name!r}; if it is a module, import pate.{name} first.")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pate")
    except PackageNotFoundError:  # a bare checkout on the path, never installed
        return "0+uninstalled"
