"""Votes on disk: an integer array [query, class] in an .npy file, or in an .npz under the name ``counts``.

An .npz that this package wrote also says how many may vote, how often each, and whose data they were trained on.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.errors import VotesError
from pate.experiments.array_files import read_arrays, write_private_arrays
from pate.votes import Votes


class VoteFile(NamedTuple):
    """Votes, and what else the file says.

    predictions: who cast them, int64[teacher, query]. fingerprint, unit: of the private data, for the ledger.
    """

    votes: Votes
    predictions: IntArray | None = None
    fingerprint: str | None = None
    unit: str | None = None


def read_votes(
    path: Path, *, queries: int | None = None, teachers: int | None = None, participation: int | None = None
) -> VoteFile:
    """The votes in ``path``, the first ``queries`` rows of them.

    ``teachers`` and ``participation`` are those that the file states; where it states none, ``teachers`` is read off the
    rows' sum, unless votes are partial, where both must be given.
    """
    arrays = read_arrays(path, alone="counts", error=VotesError)
    if "counts" not in arrays:
        raise VotesError(f"{path}: an .npz of votes needs an array named 'counts', found {', '.join(arrays) or 'none'}.")
    counts = arrays["counts"]
    if counts.ndim != 2:
        raise VotesError(f"{path}: votes must have the axes [query, class], got an array of shape {counts.shape}.")
    if queries is not None and not 1 <= queries <= len(counts):
        raise VotesError(f"{path}: --queries must lie between 1 and the {len(counts)} rows of the file, got {queries}.")
    counts = counts[:queries]
    if len(counts) == 0:
        raise VotesError(f"{path}: the file holds no query.")
    teachers = _stated(path, arrays, "n_teachers", teachers, "--teachers")
    participation = _stated(path, arrays, "participation", participation, "--participation")
    fingerprint, unit = (str(arrays[name]) if name in arrays else None for name in ("fingerprint", "unit"))
    if participation is not None and teachers is None:
        raise VotesError("Partial votes need the number of voters: give --teachers beside --participation.")
    if counts.dtype.kind not in "iu":
        raise VotesError(f"{path}: votes must have an integer dtype, got {counts.dtype}. Votes are counted, not averaged.")
    # Unless given, read off the first row on purpose: Votes then checks that every other row agrees.
    votes = Votes(counts, int(counts[0].sum()) if teachers is None else teachers, participation)
    if "predictions" not in arrays or participation is not None:
        return VoteFile(votes, None, fingerprint, unit)
    predictions = arrays["predictions"]
    if predictions.ndim != 2:
        raise VotesError(f"{path}: predictions must have the axes [teacher, query], got shape {predictions.shape}.")
    predictions = predictions[:, :queries]
    if not np.array_equal(Votes.from_predictions(predictions, votes.n_classes).counts, votes.counts):
        raise VotesError(f"{path}: the arrays 'counts' and 'predictions' disagree; counting the predictions gives other votes.")
    return VoteFile(votes, predictions.astype(np.int64), fingerprint, unit)


def write_votes(
    path: Path,
    votes: Votes,
    predictions: NDArray[Any] | None = None,
    *,
    fingerprint: str | None = None,
    unit: str | None = None,
) -> None:
    """Votes as :func:`read_votes` reads them, with each teacher's own [teacher, query] and the data's name where given."""
    stated = {
        "n_teachers": votes.n_teachers,
        "participation": votes.participation,
        "predictions": predictions,
        "fingerprint": fingerprint,
        "unit": unit,
    }
    arrays = {name: np.asarray(value) for name, value in stated.items() if value is not None}
    write_private_arrays(path, {"counts": votes.counts, **arrays})


def _stated(path: Path, arrays: Mapping[str, NDArray[Any]], name: str, given: int | None, option: str) -> int | None:
    """The number that the file states under ``name``, or that is given; both, if they agree."""
    if name not in arrays:
        return given
    array = arrays[name]
    if array.shape != () or array.dtype.kind not in "iu":
        raise VotesError(f"{path}: {name!r} must be one whole number, got {array.dtype} of shape {array.shape}.")
    stated = int(array)
    if given is not None and given != stated:
        raise VotesError(f"{path}: the file states {name} = {stated}, but {option} {given} was given. Leave the option out.")
    return stated
