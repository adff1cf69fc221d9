"""Reading votes from disk: an integer array [query, class] in an .npy file, or in an .npz under the name ``counts``."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pate.arrays import IntArray
from pate.errors import VotesError
from pate.votes import Votes


class VoteFile(NamedTuple):
    """Votes, and who cast them where the file says so (``predictions`` in an .npz): int64[teacher, query]."""

    votes: Votes
    predictions: IntArray | None = None


def read_votes(
    path: Path, *, queries: int | None = None, teachers: int | None = None, participation: int | None = None
) -> VoteFile:
    """The votes in ``path``, the first ``queries`` rows of them.

    ``teachers`` is read off the rows' sum unless votes are partial, where it must be given.
    """
    arrays = _read_arrays(path)
    counts = arrays["counts"]
    if counts.ndim != 2:
        raise VotesError(f"{path}: votes must have the axes [query, class], got an array of shape {counts.shape}.")
    if queries is not None and not 1 <= queries <= len(counts):
        raise VotesError(f"{path}: --queries must lie between 1 and the {len(counts)} rows of the file, got {queries}.")
    counts = counts[:queries]
    if len(counts) == 0:
        raise VotesError(f"{path}: the file holds no query.")
    if participation is not None and teachers is None:
        raise VotesError("Partial votes need the number of voters: give --teachers beside --participation.")
    if counts.dtype.kind not in "iu":
        raise VotesError(f"{path}: votes must have an integer dtype, got {counts.dtype}. Votes are counted, not averaged.")
    # Unless given, read off the first row on purpose: Votes then checks that every other row agrees.
    votes = Votes(counts, int(counts[0].sum()) if teachers is None else teachers, participation)
    if "predictions" not in arrays or participation is not None:
        return VoteFile(votes)
    predictions = arrays["predictions"]
    if predictions.ndim != 2:
        raise VotesError(f"{path}: predictions must have the axes [teacher, query], got shape {predictions.shape}.")
    predictions = predictions[:, :queries]
    if not np.array_equal(Votes.from_predictions(predictions, votes.n_classes).counts, votes.counts):
        raise VotesError(f"{path}: the arrays 'counts' and 'predictions' disagree; counting the predictions gives other votes.")
    return VoteFile(votes, predictions.astype(np.int64))


def _read_arrays(path: Path) -> dict[str, Any]:
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            return {"counts": loaded}
        with loaded:
            arrays: dict[str, Any] = {name: loaded[name] for name in ("counts", "predictions") if name in loaded.files}
            if "counts" not in arrays:
                found = ", ".join(loaded.files) or "none"
                raise VotesError(f"{path}: an .npz of votes needs an array named 'counts', found {found}.")
            return arrays
    except FileNotFoundError as error:
        raise VotesError(f"{path}: no such file.") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, VotesError):
            raise
        raise VotesError(f"{path}: not a readable .npy or .npz file ({error}).") from error
