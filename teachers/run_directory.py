"""The directory of a run: what it was asked to do, one model and one record for each teacher, progress, a lock.

Every file is written under a temporary name and renamed, and a model counts as finished once its record, with the model's
checksum, is there. So a killed worker, node or driver costs only what it was doing. All of it is private.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pate.errors import TeacherError

FORMAT = 1
_TRIES = 5
Outcome = Literal["trained", "empty", "failed"]


@dataclass(frozen=True)
class TeacherRecord:
    """What is known of one teacher. Private: it depends on the teacher's records."""

    teacher: int
    outcome: Outcome
    seed: int
    data_hash: str
    records: int = 0
    held_out: int = 0
    accuracy: float | None = None
    """On the teacher's own held-out part; None where nothing was held out."""
    seconds: float = 0.0
    model: str = ""
    """SHA-256 of the model file."""
    trust_note: str = ""
    error: str = ""
    """What went wrong, for the owner's eyes: it may quote the data."""

    @property
    def error_kind(self) -> str:
        """The first word of the error, which quotes nothing."""
        return self.error.partition(":")[0]


class RunDirectory:
    """Paths and files of one run. Cheap to make; workers make their own."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()

    @property
    def progress_file(self) -> Path:
        return self.path / "progress.jsonl"

    @property
    def features_path(self) -> Path:
        return self.path / "features"

    def model_path(self, teacher: int, suffix: str) -> Path:
        return self.path / "models" / f"{teacher:06d}{suffix}"

    def create(self) -> None:
        """Make the directories, readable by their owner alone."""
        for folder in (self.path, self.path / "models", self.path / "records"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def exists(self) -> bool:
        return (self.path / "run.json").exists()

    def read_run(self) -> dict[str, Any]:
        return self._read_json("run.json")

    def write_run(self, run: dict[str, Any]) -> None:
        self._write_json("run.json", {"format": FORMAT, "private": True, **run})

    def read_partition(self) -> dict[str, Any]:
        return self._read_json("partition.json")

    def write_partition(self, manifest: dict[str, Any]) -> None:
        self._write_json("partition.json", manifest)

    def save_model(self, teacher: int, suffix: str, save: Callable[[Path], None]) -> str:
        """Write a model by ``save(path)`` and put it in its place whole; its checksum."""
        place = self.model_path(teacher, suffix)
        with self._temporary(place) as temporary:
            save(temporary)
            return checksum(temporary)

    def write_record(self, record: TeacherRecord) -> None:
        self._write_json(f"records/{record.teacher:06d}.json", asdict(record))

    def read_record(self, teacher: int, suffix: str) -> TeacherRecord | None:
        """The record of a finished teacher; None if it has none, or its model is missing or not the one recorded."""
        path = self.path / "records" / f"{teacher:06d}.json"
        try:
            record = TeacherRecord(**json.loads(path.read_text()))
        except (FileNotFoundError, ValueError, TypeError):  # absent, or torn by a power cut
            return None
        if record.outcome == "trained":
            model = self.model_path(teacher, suffix)
            if not model.exists() or checksum(model) != record.model:
                return None
        return record

    def is_locked(self) -> bool:
        """Whether a driver is training here now."""
        try:
            with self.locked():
                return False
        except TeacherError:
            return True

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One driver at a time. The lock goes with the process, however it ends."""
        with (self.path / "lock").open("a") as file:
            for patience in range(_TRIES, -1, -1):
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not patience:
                        raise TeacherError(
                            f"Run directory {self.path}: another process is training in it. Wait, or stop it."
                        ) from None
                    time.sleep(0.1)  # somebody may only be asking whether it is locked
            yield

    def _read_json(self, name: str) -> dict[str, Any]:
        try:
            value = json.loads((self.path / name).read_text())
        except FileNotFoundError:
            raise TeacherError(f"Run directory {self.path} has no {name}: nothing was trained here.") from None
        except ValueError as error:
            raise TeacherError(f"Run directory {self.path}: {name} is damaged ({error}). Train into a new directory.") from None
        if not isinstance(value, dict):
            raise TeacherError(f"Run directory {self.path}: {name} must hold an object. Train into a new directory.")
        return value

    def _write_json(self, name: str, value: dict[str, Any]) -> None:
        with self._temporary(self.path / name) as temporary:
            temporary.write_text(json.dumps(value, indent=1))

    @contextmanager
    def _temporary(self, place: Path) -> Iterator[Path]:
        # The suffix stays last: some formats choose by it. The random word keeps two tries of one task apart.
        temporary = place.with_name(f".{secrets.token_hex(4)}.{place.name}")
        try:
            yield temporary
            temporary.chmod(0o600)
            os.replace(temporary, place)
        finally:
            temporary.unlink(missing_ok=True)


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
