"""What a student predicts for the queries of a batch, from a file: for mechanisms that compare the teachers with it."""

from __future__ import annotations

from pathlib import Path

from pate.aggregators import Aggregator
from pate.errors import ParameterError
from pate.experiments.array_files import read_arrays

_NAME = "probabilities"


def told_of_student(mechanism: Aggregator, path: Path | None) -> Aggregator:
    """The mechanism for the batch that the file is about: float[query, class], what `pate student predict --proba` writes."""
    if path is None:
        return mechanism
    if type(mechanism).against is Aggregator.against:
        raise ParameterError(
            f"--scores belongs to mechanisms that compare the teachers with a student, such as interactive-gnmax; "
            f"{mechanism.name} does not. Leave it out."
        )
    arrays = read_arrays(path, alone=_NAME, error=ParameterError)
    if _NAME not in arrays:
        raise ParameterError(
            f"{path}: the predictions of a student are the array '{_NAME}', found {', '.join(arrays) or 'none'}. Write them "
            "with `pate student predict --proba`."
        )
    return mechanism.against(arrays[_NAME])
