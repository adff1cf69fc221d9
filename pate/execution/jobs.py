"""Ray's job server: send work to a cluster, follow it, and find it again. The one module that imports ray.job_submission."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pate.errors import ClusterError
from pate.execution.ray_setup import check_reachable, prepare_environment, send_token_if_there_is_one
from pate.extras import require

T = TypeVar("T")
ENDED = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})
_POLL_SECONDS = 1.0
_PATIENCE = 60.0  # seconds that a server may be out of reach while a job is followed
_PENDING_TOLD = 60.0
_ANSWER_SECONDS = 60.0  # in which the server must answer; without a limit a connection that died unnoticed hangs for ever


class _Away(ClusterError):
    """The server gave no answer, so asking again may help."""


@dataclass(frozen=True)
class Job:
    """What the server says of a job."""

    id: str
    status: str
    message: str
    exit_code: int | None
    started: float | None
    ended: float | None
    metadata: Mapping[str, str]


class JobServer:
    """The job server of a cluster, at the address of its dashboard: ``http://head:8265``."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ClusterError(f"A job server's address must look like http://head:8265, got {address!r}.")
        self.address = address
        check_reachable(f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}")
        prepare_environment(local=False)
        send_token_if_there_is_one()
        module = require("ray.job_submission", "ray")
        with _without_other_addresses():
            self._client: Any = self._told(lambda: module.JobSubmissionClient(address))
        self._client._do_request = partial(self._client._do_request, timeout=_ANSWER_SECONDS)  # Ray has no option for it

    def submit(
        self, entrypoint: str, submission_id: str, folder: Path, environment: Mapping[str, str], pip: Sequence[str], note: str
    ) -> None:
        """Start ``entrypoint`` in a copy of ``folder``. The id is the caller's, so a retry is recognised and not run twice."""
        settings: dict[str, Any] = {"working_dir": str(folder), "env_vars": dict(environment)}
        if pip:
            settings["pip"] = list(pip)
        if any(job.id == submission_id for job in self.list()):
            raise ClusterError(_THERE.format(submission_id))
        try:
            self._told(
                lambda: self._client.submit_job(
                    entrypoint=entrypoint, submission_id=submission_id, runtime_env=settings, metadata={"pate": note}
                )
            )
        except _Away as error:
            raise ClusterError(
                f"{error} Whether it took the job is unknown: ask with `pate jobs status {submission_id}`."
            ) from None
        except ClusterError as error:
            if "already exists" in str(error):  # another client was faster
                raise ClusterError(_THERE.format(submission_id)) from None
            raise

    def job(self, submission_id: str) -> Job:
        return _job(self._told(lambda: self._client.get_job_info(submission_id), submission_id))

    def list(self) -> list[Job]:
        found = self._told(self._client.list_jobs)
        return [_job(each) for each in found if each.submission_id]

    def logs(self, submission_id: str) -> str:
        text: str = self._told(lambda: self._client.get_job_logs(submission_id), submission_id)
        return text

    def follow(self, submission_id: str) -> Iterator[str]:
        """The lines of its log as they come, until it ends. A server that is away for a moment is waited for."""
        told, start, pending_told = 0, time.monotonic(), False
        while True:
            job, text = self._patiently(lambda: (self.job(submission_id), self.logs(submission_id)))
            whole = text if job.status in ENDED else text[: text.rfind("\n") + 1]
            yield from whole[told:].splitlines()
            told = max(told, len(whole))
            if job.status in ENDED:
                return
            if job.status == "PENDING" and not pending_told and time.monotonic() - start > _PENDING_TOLD:
                pending_told = True
                yield f"(still pending after {_PENDING_TOLD:.0f} s: {job.message or 'the cluster has not begun it'})"
            time.sleep(_POLL_SECONDS)

    def stop(self, submission_id: str) -> Job:
        """Stop it and wait until it has; a job that has ended stays as it is."""
        if self.job(submission_id).status not in ENDED:
            self._told(lambda: self._client.stop_job(submission_id), submission_id)
        end = time.monotonic() + _PATIENCE
        while (job := self.job(submission_id)).status not in ENDED and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
        if job.status not in ENDED:
            raise ClusterError(f"Job {submission_id!r} was told to stop and has not within {_PATIENCE:.0f} s: {job.status}.")
        return job

    def _patiently(self, ask: Callable[[], T]) -> T:
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                return ask()
            except _Away:
                if time.monotonic() > end:
                    raise
                time.sleep(_POLL_SECONDS)

    def _told(self, ask: Callable[[], T], submission_id: str | None = None) -> T:
        """Ask the server; whatever goes wrong is a ClusterError in one line."""
        try:
            return ask()
        except Exception as error:  # ray raises RuntimeError with the server's whole answer, and kinds of its own
            said = " ".join(str(error).split())
            # Only the code of the answer counts: addresses and ids may hold the same digits.
            answered = re.match(r"Request failed with status code (\d+)", said)
            code = int(answered[1]) if answered else None
            if submission_id is not None and code == 404:
                raise ClusterError(f"{self.address}: there is no job {submission_id!r}. See `pate jobs list`.") from None
            if type(error).__name__ == "AuthenticationError" or code in (401, 403):
                raise ClusterError(
                    f"{self.address}: the server wants another token. Set RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH to its file."
                ) from None
            if isinstance(error, OSError) or code in (502, 503, 504):  # what requests raises is an OSError
                raise _Away(f"{self.address}: the job server does not answer: {said[:300]}") from None
            raise ClusterError(f"{self.address}: the job server says: {said[:300]}") from None


_THERE = (
    "Job {0!r} is there already, so it is not sent again. Follow it with `pate jobs logs --follow {0}`, or give another "
    "--submission-id."
)


@contextmanager
def _without_other_addresses() -> Iterator[None]:
    """Ray's client prefers these variables to the address that it is given: the job would go to another cluster."""
    before = {name: os.environ.pop(name) for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS") if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(before)


def _job(details: Any) -> Job:
    return Job(
        id=str(details.submission_id),
        status=str(getattr(details.status, "value", details.status)),
        message=str(details.message or ""),
        exit_code=details.driver_exit_code,
        started=None if details.start_time is None else details.start_time / 1000,
        ended=None if not details.end_time else details.end_time / 1000,
        metadata=dict(details.metadata or {}),
    )
