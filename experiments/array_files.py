"""Arrays on disk: .npy, or .npz with named arrays. Nothing is unpickled."""

from __future__ import annotations

import os
import secrets
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pate.errors import ParameterError, PateError


def read_arrays(path: Path, alone: str, error: type[PateError]) -> dict[str, NDArray[Any]]:
    """The arrays in ``path`` by name; that of an .npy file is called ``alone``. What cannot be read is an ``error``."""
    try:
        with path.open("rb") as file:  # opened here: NumPy leaves a torn file open
            loaded = np.load(file, allow_pickle=False)
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                return {alone: loaded}
            with loaded:
                return {name: loaded[name] for name in loaded.files}
    except FileNotFoundError:
        raise error(f"{path}: no such file.") from None
    except OSError as fault:
        raise error(f"{path}: it cannot be read ({fault.strerror or fault}).") from fault
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as fault:  # NumPy's own text advises to unpickle
        raise error(
            f"{path}: not a readable .npy or .npz file. It must be a whole file of plain arrays; Python objects (dtype=object) "
            "are never unpickled."
        ) from fault


def check_place_for(path: Path) -> None:
    """Raise unless a file can be written at ``path``: better before long work than after it."""
    if path.is_dir():
        raise ParameterError(f"{path}: a file is to be written here, but it is a directory. Name a file in it.")
    if not path.parent.is_dir():
        raise ParameterError(f"{path}: there is no directory {path.parent}. Make it first.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ParameterError(f"{path}: the directory {path.parent} may not be written to. Name another one.")


def check_array_place(path: Path) -> None:
    """As :func:`check_place_for`, for :func:`write_public_arrays`."""
    if path.suffix not in (".npy", ".npz"):
        raise ParameterError(f"{path}: the name of a file of arrays must end in .npy or .npz.")
    check_place_for(path)


def write_private_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """An .npz that only its owner can read, put in its place whole."""
    write_whole(path, 0o600, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))


def write_public_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """By the name's ending an .npz of all, or an .npy of the first alone; put in its place whole."""
    check_array_place(path)
    if path.suffix == ".npz":
        write_whole(path, 0o666, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))
    else:
        write_whole(path, 0o666, lambda file: np.save(file, next(iter(arrays.values())), allow_pickle=False))


def write_text(path: Path, text: str, permissions: int = 0o666) -> None:
    """A text file, put in its place whole."""
    write_whole(path, permissions, lambda file: file.write(text.encode()))


def write_whole(path: Path, permissions: int, write: Callable[[IO[bytes]], object]) -> None:
    """What ``write`` writes, on the disk before it is called ``path``: after a crash there is all of it or nothing."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        # Of its own name and new, so that nobody has it open already.
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, permissions), "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
