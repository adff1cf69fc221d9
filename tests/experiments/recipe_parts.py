"""Parts of a user's own, for recipes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pate.aggregators import Aggregator, GNMax
from pate.arrays import FloatArray
from pate.noise import Noise
from pate.release import Electorate, Release
from pate.votes import Votes


@dataclass(frozen=True, repr=False)
class Mine(GNMax):
    """GNMax under another name: sound, but a stranger."""

    name: ClassVar[str] = "mine"


@dataclass(frozen=True, repr=False)
class NoPartialVotes(Aggregator):
    """States the cost of a vote that moves, and none of a count that changes alone."""

    sigma: float = 10.0
    name: ClassVar[str] = "no-partial-votes"

    def release(self, votes: Votes, noise: Noise) -> Release:
        return GNMax(self.sigma).release(votes, noise)

    def rdp_ahead(self, electorate: Electorate, orders: FloatArray) -> FloatArray:
        return GNMax(self.sigma).rdp_ahead(electorate, orders)
