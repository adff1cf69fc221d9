"""What ``pate account --sanitise`` does: one release, out of a ledger or of a seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from pate.aggregators import Aggregator
    from pate.experiments.sanitising import Sanitised
    from pate.experiments.vote_files import VoteFile
    from pate.privacy.smooth import Method


def sanitised(
    file: VoteFile,
    mechanism: Aggregator,
    delta: float,
    method: str,
    ledger: str | None,
    dataset: str | None,
    again: bool,
    simulate: int | None,
) -> Sanitised:
    """The sanitised epsilon of the votes in a file. Nothing is drawn unpaid: without a ledger, only a simulation."""
    from pate.errors import ParameterError
    from pate.experiments.asking import open_ledger
    from pate.experiments.sanitised_release import release_sanitised
    from pate.experiments.sanitising import Sanitiser
    from pate.noise import noise_for

    noise = noise_for("release") if simulate is None else noise_for("simulation", simulate)
    votes, named = file.votes, cast("Method", method)
    if ledger is None:
        if simulate is None:
            raise ParameterError(
                "--sanitise is a release, with noise, that costs privacy: name the --ledger that pays for it, or --simulate "
                "SEED for a figure that is not private."
            )
        return Sanitiser.plan(mechanism, votes.electorate, len(votes), delta, named).draw(votes, noise)
    with open_ledger(ledger, file, dataset, None, None) as opened:
        plan = Sanitiser.plan(mechanism, votes.electorate, len(votes), delta, named, opened.budget.order)
        return release_sanitised(plan, votes, opened, noise, again=again)
