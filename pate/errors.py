"""Every error this package raises on purpose: one small tree with one root.

A message names the subject, the rule, what was found, and the next step.
"""

from __future__ import annotations


class PateError(Exception):
    """Root of all errors raised on purpose by this package."""


class VotesError(PateError, ValueError):
    """Votes that break the rule the privacy proof stands on."""


class ParameterError(PateError, ValueError):
    """A parameter outside the range in which the mechanism or the bound is defined."""


class RecipeError(ParameterError):
    """A recipe that cannot be run. The message lists all that is wrong with it."""


class DataError(ParameterError):
    """Files or records that are missing, damaged, or not of the kind that was promised."""


class NoiseError(PateError, RuntimeError):
    """A noise source asked to do something that would not be private, or not be what it says."""


class BudgetExceeded(PateError, ValueError):
    """The data-independent cost does not fit in the budget. Raised before any noise is drawn."""


class QueryError(ParameterError):
    """A question to the service that cannot be asked: malformed, unknown, or too many at once."""


class KeyConflict(ParameterError):
    """An idempotency key that belongs to another request."""


class QuotaExceeded(BudgetExceeded):
    """A client's own share of the budget is used up."""


class ServiceError(PateError, RuntimeError):
    """An aggregator service that cannot be reached, does not let one in, or does not speak as it should."""


class LedgerError(PateError, RuntimeError):
    """The durable record cannot be read or written safely."""


class PartitionError(PateError, ValueError):
    """Private data that cannot be split into disjoint parts, or parts that are not disjoint."""


class TeacherError(PateError, RuntimeError):
    """Teachers that cannot be trained or asked: too many failed, or the run directory does not fit."""


class StudentError(PateError, ValueError):
    """A student that cannot learn from what it was given, or is asked before it has learnt."""


class ExecutionError(PateError, RuntimeError):
    """Work that could not be run: no cluster, no memory, or processes that keep dying."""


class ClusterError(ExecutionError):
    """A Ray cluster or its job server that cannot be reached or will not take the work."""


class ReferenceNotFound(PateError, LookupError):
    """A name that is no built-in, no entry point and no importable ``package.module:Class``."""


class MissingExtra(PateError, ImportError):
    """An optional dependency is not installed; or several, named with commas between them."""

    def __init__(self, package: str, extra: str) -> None:
        are, them = ("are", "them") if "," in package else ("is", "it")
        super().__init__(f"{package} {are} not installed. Install {them} with: pip install 'pate[{extra}]'")
        self.package = package
        self.extra = extra
