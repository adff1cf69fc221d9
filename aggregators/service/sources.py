"""Where votes come from: counted beforehand for a public pool, or cast by teachers when a question comes in."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from pate.errors import ParameterError, QueryError
from pate.release import Electorate
from pate.votes import Votes


class VoteSource(ABC):
    """Gives private votes on public questions. A question is known by its public name: the same name has the same answer."""

    takes: ClassVar[Literal["ids", "inputs"]]
    """What a question consists of: the number of a pool's record, or the record itself."""

    def __init__(self, electorate: Electorate, fingerprint: str, unit: str) -> None:
        if electorate.participation is not None:
            raise ParameterError(
                "A service answers questions as they come, so every teacher must vote on every one; partial votes are charged "
                "for a whole batch that is fixed in advance. Release that batch with `pate ask`."
            )
        self.electorate = electorate
        self.fingerprint = fingerprint
        self.unit = unit

    @abstractmethod
    def names(self, queries: Sequence[Any]) -> list[str]:
        """The public name of each question; raises QueryError for one that cannot be asked. Looks at no vote."""

    @abstractmethod
    def votes(self, queries: Sequence[Any]) -> Votes:
        """Private. Called with questions that ``names`` took."""

    @property
    def facts(self) -> dict[str, Any]:
        """What anybody may know about the questions."""
        return {"takes": self.takes, "classes": self.electorate.n_classes}


class Pool(VoteSource):
    """Votes counted beforehand on a fixed public pool; a question is a record's number in it."""

    takes: ClassVar[Literal["ids", "inputs"]] = "ids"

    def __init__(self, votes: Votes, fingerprint: str, unit: str = "record") -> None:
        super().__init__(votes.electorate, fingerprint, unit)
        self._votes = votes

    def names(self, queries: Sequence[Any]) -> list[str]:
        size = len(self._votes)
        for query in queries:
            if isinstance(query, bool) or not isinstance(query, int | np.integer) or not 0 <= query < size:
                raise QueryError(f"ids must be whole numbers from 0 to {size - 1}, the records of the pool.")
        return [str(int(query)) for query in queries]

    def votes(self, queries: Sequence[Any]) -> Votes:
        return Votes(self._votes.counts[np.asarray(queries, dtype=np.int64)], self.electorate.n_teachers)

    @property
    def facts(self) -> dict[str, Any]:
        return {**super().facts, "pool": len(self._votes)}

    def __repr__(self) -> str:
        return f"Pool({self._votes!r})"


class Live(VoteSource):
    """Teachers who vote when they are asked; a question is a public record itself.

    vote: records float32[query, ...] -> Votes. shape: of one record. Records are known by their float32 bytes.
    """

    takes: ClassVar[Literal["ids", "inputs"]] = "inputs"

    def __init__(
        self,
        vote: Callable[[NDArray[np.float32]], Votes],
        shape: Sequence[int],
        electorate: Electorate,
        fingerprint: str,
        unit: str = "record",
    ) -> None:
        super().__init__(electorate, fingerprint, unit)
        self._vote = vote
        self.shape = tuple(shape)

    def names(self, queries: Sequence[Any]) -> list[str]:
        return [hashlib.sha256(record.tobytes()).hexdigest()[:32] for record in self._records(queries)]

    def votes(self, queries: Sequence[Any]) -> Votes:
        found = self._vote(self._records(queries))
        if found.electorate != self.electorate or len(found) != len(queries):
            raise ParameterError("The teachers' votes are not those of the electorate that the service was opened with.")
        return found

    def _records(self, queries: Sequence[Any]) -> NDArray[np.float32]:
        try:
            with np.errstate(over="ignore"):
                records = np.asarray(queries, dtype=np.float64).astype(np.float32) + np.float32(0)  # no negative zero
        except (TypeError, ValueError, OverflowError):
            records = np.empty(0, dtype=np.float32)
        if records.shape != (len(queries), *self.shape) or not np.isfinite(records).all():
            raise QueryError(f"inputs must be records of shape {list(self.shape)}, finite numbers in float32.")
        return np.ascontiguousarray(records)

    @property
    def facts(self) -> dict[str, Any]:
        return {**super().facts, "shape": list(self.shape)}

    def __repr__(self) -> str:
        return f"Live(shape={self.shape}, {self.electorate})"
