"""Finished stages, kept by what they were made of, so that no run does again what another one did."""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate import __version__
from pate.errors import ExecutionError
from pate.experiments.array_files import write_text
from pate.references import load_reference

_DONE = "stage.json"
_DIGITS = 16
_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def digest(value: Any) -> str:
    """SHA-256 of a JSON value, hexadecimal."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, allow_nan=False).encode()).hexdigest()


def array_digest(*arrays: NDArray[Any]) -> str:
    """SHA-256 of arrays: their types, shapes and contents."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    return found.hexdigest()


def code_digests(value: Any) -> dict[str, str]:
    """The source of every module that a user's own part in a JSON value is named from, hashed, by reference."""
    if isinstance(value, Mapping):
        return {key: each for inner in value.values() for key, each in code_digests(inner).items()}
    if isinstance(value, list | tuple):
        return {key: each for inner in value for key, each in code_digests(inner).items()}
    if not isinstance(value, str) or not _REFERENCE.fullmatch(value) or value.startswith("pate."):
        return {}
    try:
        source = inspect.getsource(inspect.getmodule(load_reference(value)) or Path)
    except Exception:  # no reference after all, or a module without source
        return {}
    return {value: hashlib.sha256(source.encode()).hexdigest()}


class Stages:
    """A directory of finished stages. Private: teachers and votes are among them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, name: str, inputs: Mapping[str, Any]) -> Path:
        """Where the stage made of these inputs, JSON values, lies or will lie."""
        return self.root / f"{name}-{digest(inputs)[:_DIGITS]}"

    def kept(self, name: str, inputs: Mapping[str, Any], make: Callable[[Path], None]) -> tuple[Path, bool]:
        """The folder of a stage, and whether it was found finished. Else ``make(folder)`` does the work.

        A stage that was stopped half-way is made in the same folder, so that ``make`` can go on with what it finds there.
        Of two runs that want the same stage the second waits. Another version of this package makes it anew.
        """
        folder = self.folder(name, {**inputs, "pate": __version__})
        if (folder / _DONE).exists():
            return folder, True
        with self.locked(folder):
            if (folder / _DONE).exists():
                return folder, True
            make(folder)
            write_text(folder / _DONE, json.dumps({"stage": name, "inputs": inputs}, indent=1), 0o600)
        return folder, False

    @contextmanager
    def locked(self, folder: Path) -> Iterator[None]:
        """One process at a time works in ``folder``; the lock goes with the process, however it ends."""
        private_folder(self.root)
        private_folder(folder)
        with (folder / ".lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def private_folder(folder: Path) -> Path:
    """Make it, readable by its owner alone."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ExecutionError(
            f"{folder}: the directory cannot be made ({error.strerror or error}). Name another --out."
        ) from error
    return folder
