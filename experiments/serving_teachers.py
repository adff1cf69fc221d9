"""The teachers of a run behind a service: whatever a stranger asks, all of them vote, and only noisy answers leave."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate.arrays import IntArray
from pate.execution import Executor, Serial
from pate.execution.base import Shared
from pate.public import PublicData
from pate.teachers import Ensemble
from pate.teachers.chunks import QUERIES, VoteChunk, _load, _predictions, predict_chunk
from pate.votes import Votes


class AnsweringTeachers(Ensemble):
    """As :class:`~pate.teachers.Ensemble`, for questions that an analyst makes up.

    A record with huge numbers may be more than a teacher's own scaler can bear, and for which teachers it is depends on their
    records. An error, or none, would tell that without noise and unpaid. So who cannot vote on a question votes the default on
    it, however many they are, and nobody hears of it. And on that question only: others in the same group, perhaps another
    client's, are voted on as if it had not been asked.
    """

    def vote(self, queries: ArrayLike | PublicData, *, executor: Executor | None = None) -> Votes:
        x = self._inputs(queries)
        counts = (executor or Serial()).total(count_apart, self._vote_tasks(), {QUERIES: x})
        return Votes(counts.reshape(len(x), self.n_classes), self.n_teachers)


def count_apart(chunk: VoteChunk, shared: Shared) -> IntArray:
    """The chunk's histogram, int64[query * class]; a teacher votes the default on those questions alone that it cannot vote on.

    What one teacher does here depends on no other, so that the histogram is still of one vote a teacher.
    """
    settings, queries = chunk.settings, shared[QUERIES]
    votes, failed = predict_chunk(chunk, shared)
    for row, teacher in enumerate(chunk.teachers):
        if teacher in failed:
            votes[row] = _each_that_it_can(chunk, _load(settings, teacher), queries)
    cells = np.arange(len(queries))[None, :] * settings.n_classes + votes
    counts: IntArray = np.bincount(cells.ravel(), minlength=len(queries) * settings.n_classes).astype(np.int64)
    return counts


def _each_that_it_can(chunk: VoteChunk, model: Any, queries: NDArray[Any]) -> IntArray:
    try:
        votes: IntArray = _predictions(chunk.settings, [model], queries)[0]
        return votes
    except Exception:
        if len(queries) == 1:
            return np.full(1, chunk.settings.default_vote, dtype=np.int64)
        return np.concatenate([_each_that_it_can(chunk, model, half) for half in np.array_split(queries, 2)])
