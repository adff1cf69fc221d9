"""PATE: private aggregation of teacher ensembles.

The names below are the public face of the package. Each is imported on first use, so that ``import pate`` and
``pate --help`` stay fast. Code inside the package imports from the module that holds the name, never from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pate.aggregators import (
        Aggregator,
        Confident,
        ConfidentGNMax,
        GNMax,
        InteractiveGNMax,
        LNMax,
        NoisyHistogram,
        SparseVector,
        StableMax,
        ask,
    )
    from pate.errors import BudgetExceeded, PateError, VotesError
    from pate.execution import OnRay, Serial
    from pate.experiments.accounting import account
    from pate.experiments.baselines.dpsgd.launch import run_dpsgd
    from pate.experiments.baselines.dpsgd.training.trainer import DPSGD
    from pate.experiments.baselines.erm.estimators import PrivateHuberSVM, PrivateLogisticRegression
    from pate.experiments.baselines.erm.launch import run_erm
    from pate.experiments.pipeline.launch import run
    from pate.experiments.results import Result
    from pate.ledger import Budget, Ledger
    from pate.noise import OSNoise, SimulatedNoise
    from pate.privacy.curve import DEFAULT_ORDERS, RdpCurve
    from pate.public import PublicData
    from pate.release import ABSTAIN, Electorate, Release
    from pate.student import Student, select_queries
    from pate.teachers import Ensemble, Partition, PrivateData, StoredData, StoredPartition, nearest_votes
    from pate.votes import Votes

    __version__: str

__all__ = [
    "ABSTAIN",
    "DEFAULT_ORDERS",
    "DPSGD",
    "Aggregator",
    "Budget",
    "BudgetExceeded",
    "Confident",
    "ConfidentGNMax",
    "Electorate",
    "Ensemble",
    "GNMax",
    "InteractiveGNMax",
    "LNMax",
    "Ledger",
    "NoisyHistogram",
    "OSNoise",
    "OnRay",
    "Partition",
    "PateError",
    "PrivateData",
    "PrivateHuberSVM",
    "PrivateLogisticRegression",
    "PublicData",
    "RdpCurve",
    "Release",
    "Result",
    "Serial",
    "SimulatedNoise",
    "SparseVector",
    "StableMax",
    "StoredData",
    "StoredPartition",
    "Student",
    "Votes",
    "VotesError",
    "__version__",
    "account",
    "ask",
    "nearest_votes",
    "run",
    "run_dpsgd",
    "run_erm",
    "select_queries",
]

_HOME = {
    "ABSTAIN": "pate.release",
    "Aggregator": "pate.aggregators",
    "Budget": "pate.ledger",
    "BudgetExceeded": "pate.errors",
    "Confident": "pate.aggregators",
    "ConfidentGNMax": "pate.aggregators",
    "DEFAULT_ORDERS": "pate.privacy.curve",
    "DPSGD": "pate.experiments.baselines.dpsgd.training.trainer",
    "Electorate": "pate.release",
    "Ensemble": "pate.teachers",
    "GNMax": "pate.aggregators",
    "InteractiveGNMax": "pate.aggregators",
    "LNMax": "pate.aggregators",
    "Ledger": "pate.ledger",
    "NoisyHistogram": "pate.aggregators",
    "OSNoise": "pate.noise",
    "OnRay": "pate.execution",
    "Partition": "pate.teachers",
    "PateError": "pate.errors",
    "PrivateData": "pate.teachers",
    "PrivateHuberSVM": "pate.experiments.baselines.erm.estimators",
    "PrivateLogisticRegression": "pate.experiments.baselines.erm.estimators",
    "PublicData": "pate.public",
    "RdpCurve": "pate.privacy.curve",
    "Release": "pate.release",
    "Result": "pate.experiments.results",
    "Serial": "pate.execution",
    "SimulatedNoise": "pate.noise",
    "SparseVector": "pate.aggregators",
    "StableMax": "pate.aggregators",
    "StoredData": "pate.teachers",
    "StoredPartition": "pate.teachers",
    "Student": "pate.student",
    "Votes": "pate.votes",
    "VotesError": "pate.errors",
    "account": "pate.experiments.accounting",
    "ask": "pate.aggregators",
    "nearest_votes": "pate.teachers",
    "run": "pate.experiments.pipeline.launch",
    "run_dpsgd": "pate.experiments.baselines.dpsgd.launch",
    "run_erm": "pate.experiments.baselines.erm.launch",
    "select_queries": "pate.student",
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
