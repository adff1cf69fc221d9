"""From a file of votes to a file of answers that is paid for: what ``pate ask`` does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from pate.aggregators import Aggregator, ask
from pate.errors import ExecutionError, ParameterError
from pate.experiments.release_files import new_file, release_text
from pate.experiments.vote_files import VoteFile
from pate.ledger import Budget, Ledger
from pate.noise import Noise, OSNoise
from pate.release import Electorate, Mode, Release
from pate.votes import Votes

_LONGEST = -1.2345678901234567e-300  # no float takes more characters


class AnswersNotWritten(ExecutionError):
    """Answers that are paid for, but could not be written. ``text`` is what the file was to hold."""

    def __init__(self, path: Path, error: OSError, text: str) -> None:
        super().__init__(
            f"{path}: the answers are charged to the ledger, but the file could not be written ({error}). They stand on "
            "standard output: keep them."
        )
        self.text = text


def open_ledger(place: str, file: VoteFile, dataset: str | None, unit: str | None, budget: Budget | None) -> Ledger:
    """The ledger of the data that voted; begun with ``budget`` if there is none yet.

    dataset: the data's fingerprint, for a file that states none. Beside one that does, it must be in the ledger already: for
    data that grew and go on spending from their first budget. A misspelt one must not begin a new budget.
    """
    fingerprint = dataset or file.fingerprint
    if fingerprint is None:
        raise ParameterError(
            "The votes do not say whose data they come from, and every answer is charged to a data set: name its fingerprint "
            "with --dataset (`pate teachers status` shows it), or vote again with `pate teachers vote`, which states it."
        )
    if unit is not None and file.unit is not None and unit != file.unit:
        raise ParameterError(f"The votes protect a {file.unit}, but --unit {unit} was given. Leave the option out.")
    if file.fingerprint not in (None, fingerprint) and fingerprint not in Ledger.datasets(place):
        raise ParameterError(
            f"The votes come from data set {file.fingerprint!r}. To charge them to another, --dataset must name one that the "
            f"ledger holds already, got {fingerprint!r}."
        )
    return Ledger.open(place, fingerprint, budget, unit=unit or file.unit)


def ask_into(
    path: Path,
    aggregator: Aggregator,
    votes: Votes,
    ledger: Ledger,
    *,
    queries: ArrayLike | None = None,
    noise: Noise | None = None,
) -> Release:
    """:func:`pate.aggregators.ask`, with the answers in a new release file at ``path``.

    The file is opened, and its room on the disk taken, before anything is charged. If it fails even so, the error,
    :class:`AnswersNotWritten`, carries the answers.
    """
    source = OSNoise() if noise is None else noise
    # Also says, before it costs anything, that the queries do not fit or that the mechanism cannot be written down.
    longest = _longest_text(aggregator, votes.electorate, len(votes), source.mode, queries)
    release: Release | None = None
    try:
        with new_file(path, room=len(longest)) as file:
            release = ask(aggregator, votes, ledger, source)
            file.write(release_text(release, queries).encode())
    except OSError as error:
        if release is None:
            raise
        raise AnswersNotWritten(path, error, release_text(release, queries)) from error
    return release


def _longest_text(
    aggregator: Aggregator, electorate: Electorate, n_queries: int, mode: Mode, queries: ArrayLike | None
) -> bytes:
    """No release file of this mechanism is longer."""
    labels = np.full(n_queries, electorate.n_classes - 1)
    histogram = np.full((n_queries, electorate.n_classes), _LONGEST)
    text = release_text(Release(labels, electorate, aggregator.mechanism, mode, histogram), queries)
    return text.encode() + b" " * n_queries  # ABSTAIN takes a character more than a digit
