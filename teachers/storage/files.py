"""Files of private data through fsspec: listing shards, and arrays written whole, kept private, and read by rows.

Credentials and options of a file system come from fsspec's own configuration, so that they are in no task and no manifest.
"""

from __future__ import annotations

import json
import os
import platform
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pate.errors import ExecutionError, PartitionError
from pate.extras import require
from pate.teachers.storage.shards import SUFFIXES, shard_suffix

_VERSIONS = ("ETag", "etag", "md5", "md5Hash", "content_hash", "mtime", "LastModified", "last_modified", "updated", "created")
"""By which entry a file system tells that a file was written anew; the first that it has."""
_READ_BYTES = 1 << 24


@dataclass(frozen=True)
class StoredFile:
    """One shard: where it is, and how one sees that it has changed."""

    url: str
    size: int
    version: str


def file_system(url: str) -> tuple[Any, str]:
    """The fsspec file system of ``url`` and the path there. It forgets old listings: other workers write too."""
    fs, path = require("fsspec.core", "storage").url_to_fs(url)
    fs.invalidate_cache()
    return fs, str(path)


def list_shards(url: str) -> tuple[StoredFile, ...]:
    """The shards that ``url`` (a file, a directory, a glob) means, sorted by URL. Names that begin with . or _ are skipped."""
    fs, path = file_system(url)
    found: dict[str, Mapping[str, Any]] = {}
    for start in _starts(fs, path, url):
        for name, info in fs.find(start, detail=True).items():
            if not _skipped(name.removeprefix(start) or PurePosixPath(name).name):
                found[name] = info or fs.info(name)  # fsspec tells nothing of a path that is itself a file
    if not found:
        raise PartitionError(f"Stored data {url}: no shards found. A shard ends in {', '.join(SUFFIXES)}.")
    unknown = sorted(name for name in found if shard_suffix(name) not in SUFFIXES)
    if unknown:
        raise PartitionError(
            f"Stored data {url}: every file must be a shard ({', '.join(SUFFIXES)}), found {len(unknown)} other(s), "
            f"for example {PurePosixPath(unknown[0]).name!r}. Move them, begin their names with _, or give a glob."
        )
    return tuple(sorted((_stored_file(fs, name, info) for name, info in found.items()), key=lambda shard: shard.url))


def list_entries(url: str) -> dict[str, str]:
    """The files and sub-directories right in a directory, or that match a glob: URL by name without suffix, sorted by name."""
    fs, path = file_system(url)
    starts = _starts(fs, path, url)
    if starts == [path] and not fs.isdir(path):
        raise PartitionError(f"Stored data {url}: silos are a directory's sub-directories and files, but this is one file.")
    names = fs.ls(path, detail=False) if starts == [path] else starts
    return named_entries([fs.unstrip_protocol(name) for name in names if not _skipped(PurePosixPath(name).name)])


def named_entries(urls: list[str]) -> dict[str, str]:
    """URL by file name without suffix, sorted by name; two of one name are an error."""
    entries: dict[str, str] = {}
    for url in urls:
        path = PurePosixPath(url.rstrip("/"))
        name = path.stem if path.suffix.lower() in SUFFIXES else path.name
        if name in entries:
            raise PartitionError(f"Silo {name!r}: names must differ, got {entries[name]} and {url}. Give a mapping name: URL.")
        entries[name] = url
    return dict(sorted(entries.items()))


def check_unchanged(shard: StoredFile) -> None:
    """Raise if the shard is not what was listed."""
    fs, path = file_system(shard.url)
    if _stored_file(fs, path, fs.info(path)) != shard:
        raise PartitionError(f"Shard {shard.url}: it has changed since the shards were listed. Make the partition again.")


def _starts(fs: Any, path: str, url: str) -> list[str]:
    """The path itself, or what it matches if it is a glob; a file may well have a bracket in its name."""
    if fs.exists(path):
        return [path]
    if not any(letter in path for letter in "*?["):
        raise PartitionError(f"Stored data {url}: there is no such file or directory.")
    return [str(name) for name in sorted(fs.glob(path))]


def _stored_file(fs: Any, path: str, info: Mapping[str, Any]) -> StoredFile:
    return StoredFile(str(fs.unstrip_protocol(path)), int(info["size"]), _version(info))


def _skipped(relative: str) -> bool:
    return any(part.startswith((".", "_")) for part in PurePosixPath(relative).parts)


def _version(info: Mapping[str, Any]) -> str:
    value = next((info[key] for key in _VERSIONS if info.get(key)), "")
    return str(value.timestamp() if isinstance(value, datetime) else value)  # some file systems list the one and tell the other


# Writing and reading ------------------------------------------------------------------------------------------------------


def make_private_directory(url: str) -> None:
    """Make it and its parents; on a local file system only the owner may enter it."""
    fs, path = file_system(url)
    fs.makedirs(path, exist_ok=True)
    if _is_local(fs):
        os.chmod(path, 0o700)


def write_private(url: str, write: Callable[[BinaryIO], None]) -> None:
    """A file that is there whole or not at all; on a local file system only its owner may read it.

    It is written under a name of its own beside ``url`` and moved (on an object store the copy appears whole too). What is
    there already was written by the same task before it was retried, and holds the same.
    """
    fs, path = file_system(url)
    parent, _, name = path.rpartition("/")
    temporary = f"{parent}/.{name}.{uuid.uuid4().hex}"
    if _is_local(fs):
        with open(temporary, "xb", opener=lambda file, flags: os.open(file, flags, 0o600)) as local:
            write(local)
            local.flush()
            os.fsync(local.fileno())  # a marker must not outlive a power cut that its data did not
        os.replace(temporary, path)
        return
    with fs.open(temporary, "wb") as remote:
        write(remote)
    if fs.exists(path):  # some file systems do not move onto a file
        fs.rm(temporary)
    else:
        fs.mv(temporary, path)


def write_json(url: str, value: Any) -> None:
    write_private(url, lambda file: _write_all(file, json.dumps(value).encode()))


def read_json(url: str) -> Any | None:
    """What :func:`write_json` wrote; None if there is no such file."""
    fs, path = file_system(url)
    try:
        return json.loads(fs.cat_file(path))
    except FileNotFoundError:
        return None


def write_rows(url: str, array: NDArray[Any]) -> None:
    """One array as ``.npy``, row after row."""
    plain = np.ascontiguousarray(array)
    write_private(url, lambda file: np.lib.format.write_array(file, plain, version=(1, 0), allow_pickle=False))


def read_rows(url: str, start: int, stop: int) -> NDArray[Any]:
    """Rows start..stop-1 of what :func:`write_rows` wrote; no other row is read."""
    fs, path = file_system(url)
    try:
        file = fs.open(path, "rb")
    except FileNotFoundError:
        raise ExecutionError(
            f"{url}: there is no such file, as seen from {platform.node()}. Was the split removed? Make the partition again, "
            "with a work directory that every worker sees."
        ) from None
    with file:
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        out = np.empty((stop - start, *shape[1:]), dtype=dtype)
        file.seek(file.tell() + start * (out.nbytes // max(stop - start, 1)))
        _fill(file, out.reshape(-1).view(np.uint8), url)
    return out


def remove(url: str) -> None:
    """Remove a file, or a directory with all that is in it; nothing if there is none."""
    fs, path = file_system(url)
    if fs.exists(path):
        fs.rm(path, recursive=True)


def join(url: str, *names: str) -> str:
    return "/".join([url.rstrip("/"), *names])


def as_url(location: str | Path) -> str:
    """With a protocol and an absolute path, so that it means the same in every process."""
    fs, path = file_system(str(location))
    return str(fs.unstrip_protocol(path))


def _is_local(fs: Any) -> bool:
    return isinstance(fs, require("fsspec.implementations.local", "storage").LocalFileSystem)


def _write_all(file: BinaryIO, content: bytes) -> None:
    file.write(content)


def _fill(file: BinaryIO, room: NDArray[np.uint8], url: str) -> None:
    """Read until ``room`` is full: a file system may give less than it was asked for."""
    while len(room):
        piece = np.frombuffer(file.read(min(len(room), _READ_BYTES)), dtype=np.uint8)
        if not len(piece):
            raise PartitionError(f"{url}: the file is shorter than its header says. Remove the work directory and begin again.")
        room[: len(piece)] = piece
        room = room[len(piece) :]
