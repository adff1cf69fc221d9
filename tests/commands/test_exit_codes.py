"""Each kind of trouble has an exit code of its own."""

from __future__ import annotations

import pytest

from pate import errors
from pate.cli import EXIT_CODES

CODES = {
    errors.ExecutionError: 1,
    errors.TeacherError: 1,
    errors.ParameterError: 2,
    errors.RecipeError: 2,
    errors.QueryError: 2,
    errors.KeyConflict: 2,
    errors.StudentError: 2,
    errors.ReferenceNotFound: 2,
    errors.NoiseError: 2,
    errors.BudgetExceeded: 3,
    errors.QuotaExceeded: 3,
    errors.LedgerError: 4,
    errors.DataError: 5,
    errors.PartitionError: 5,
    errors.VotesError: 5,
    errors.ClusterError: 6,
    errors.ServiceError: 6,
}


@pytest.mark.parametrize("kind", CODES, ids=lambda kind: kind.__name__)
def test_an_error_s_exit_code(kind: type[errors.PateError]) -> None:
    assert next(code for base, code in EXIT_CODES if issubclass(kind, base)) == CODES[kind]


def test_every_kind_is_in_the_table() -> None:
    every = {found for found in vars(errors).values() if isinstance(found, type) and issubclass(found, errors.PateError)}
    assert every - set(CODES) == {errors.PateError, errors.MissingExtra}
