"""Checks before a run begins or goes on: sound settings, public features, and the same run as before."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from pate.errors import ParameterError, PartitionError, TeacherError
from pate.execution import Executor
from pate.features import Features
from pate.teachers.data import PrivateData
from pate.teachers.partition_checks import check_manifest
from pate.teachers.partitioned import Partitioned
from pate.teachers.run_directory import FORMAT, RunDirectory
from pate.validation import whole

_MOST_ALIKE = 0.5  # honest public rows stay below it even in tables that repeat themselves: pate.features.checks.Overlap


def check_settings(n_classes: int, default_vote: int, holdout: float, retries: int, max_failures: float) -> None:
    """Raise on settings out of range."""
    whole(n_classes, "n_classes", 2)
    whole(default_vote, "default_vote", 0)
    whole(retries, "retries", 0)
    if default_vote >= n_classes:
        raise ParameterError(f"default_vote must be a class in 0..{n_classes - 1}, got {default_vote}.")
    for value, name in ((holdout, "holdout"), (max_failures, "max_failures")):
        if not 0 <= value < 1:
            raise ParameterError(f"{name} must be a share of at least 0 and below 1, got {value!r}.")


def refuse_private_features(features: object, data: PrivateData | Partitioned, executor: Executor) -> None:
    """Raise if features are no :class:`Features`, or were fitted on the very records they stand before.

    Rows are compared by content, see :class:`~pate.features.checks.Overlap`; where workers read them, by the workers.
    """
    if features is None:
        return
    if not isinstance(features, Features):
        raise ParameterError(
            f"features must be a pate.features.Features, declared or fitted on PublicData, got {type(features).__name__}. "
            "Statistics fitted on private data (a mean, a minimum, principal components) reach every vote at once."
        )
    fitted_digests = features.fitted_digests
    if not len(fitted_digests):
        return
    overlap = data.overlap(fitted_digests, executor)
    if overlap.larger <= _MOST_ALIKE:
        return
    if overlap.of_private >= overlap.of_fitted:
        found = f"which holds {overlap.of_private:.0%} of the private records"
    else:
        found = f"of which {overlap.of_fitted:.0%} are private records"
    raise PartitionError(
        f"features {features.title} were fitted on {features.fitted_on!r}, {found} (equal contents, common ones left out). "
        "What is learned from private data reaches every vote, and no noise covers it: fit on public data, or declare the "
        "numbers."
    )


def describe_features(features: Features) -> dict[str, Any]:
    """What a run remembers of its features: JSON. ``content``: a hash of all that was fitted."""
    digest = hashlib.sha256()
    for name, array in sorted(features.state().items()):
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return {"name": features.title, "settings": features.settings(), "content": digest.hexdigest()}


def references_in(value: Any) -> set[str]:
    """Every string with a colon in a JSON value: among them all references to classes."""
    if isinstance(value, str):
        return {value} if ":" in value else set()
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {found for each in inner for found in references_in(each)}


def check_same_run(run: RunDirectory, facts: dict[str, Any], parts: Partitioned, resume: bool) -> None:
    """Raise if the directory holds another run, or holds one that was not asked to go on."""
    if not run.exists():
        return
    if not resume:
        raise TeacherError(
            f"Run directory {run.path} holds a run already. Give resume=True (--resume) to go on, or another one."
        )
    before = run.read_run()
    if before.get("format") != FORMAT:
        raise TeacherError(f"Run directory {run.path} has format {before.get('format')}, this version writes {FORMAT}.")
    changed = [name for name, value in facts.items() if name != "max_failures" and before.get(name) != value]
    if changed:
        pairs = "; ".join(f"{name}: was {before.get(name)!r}, now {facts[name]!r}" for name in changed)
        raise TeacherError(
            f"Run directory {run.path} holds another run ({pairs}). Resume with its settings, or start a new one."
        )
    check_manifest(run.read_partition(), parts)
