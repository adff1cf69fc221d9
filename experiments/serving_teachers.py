"""The teachers of a run behind a service: whatever a stranger asks, all of them vote, and only noisy answers leave."""

from __future__ import annotations

from numpy.typing import ArrayLike

from pate.execution import Executor
from pate.public import PublicData
from pate.teachers import Ensemble
from pate.votes import Votes


class AnsweringTeachers(Ensemble):
    """As :class:`~pate.teachers.Ensemble`, for questions that an analyst makes up.

    A record with huge numbers may be more than a teacher's own scaler can bear, and for which teachers it is depends on their
    records. An error, or none, would tell that without noise and unpaid. So who cannot vote on a question votes the default on
    it, however many they are, and nobody hears of it. And on that question only: others in the same group, perhaps another
    client's, are voted on as if it had not been asked.
    """

    def vote(self, queries: ArrayLike | PublicData, *, executor: Executor | None = None) -> Votes:
        return self.vote_apart(queries, executor=executor)
