"""A student as one file: a zip with a JSON header and whatever files the student writes."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pate.errors import StudentError

_HEADER = "student.json"
_FORMAT = 1


@contextmanager
def packed(path: str | os.PathLike[str], header: Mapping[str, Any]) -> Iterator[Path]:
    """A folder to write files into; at the end of the block they become ``path``, in one step."""
    final = Path(path)
    with tempfile.TemporaryDirectory(prefix="pate-student-") as name:
        folder = Path(name)
        (folder / _HEADER).write_text(json.dumps({"format": _FORMAT, **header}))
        yield folder
        temporary = final.with_name(f".{final.name}.{os.getpid()}")
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(folder.iterdir()):
                # A fixed date: the same student is the same bytes.
                archive.writestr(zipfile.ZipInfo(file.name, (1980, 1, 1, 0, 0, 0)), file.read_bytes(), zipfile.ZIP_DEFLATED)
        temporary.replace(final)


@contextmanager
def unpacked(path: str | os.PathLike[str]) -> Iterator[tuple[dict[str, Any], Path]]:
    """The header and a folder with the files, for the length of the block."""
    with tempfile.TemporaryDirectory(prefix="pate-student-") as name:
        folder = Path(name)
        try:
            with zipfile.ZipFile(path) as archive:
                for entry in archive.namelist():
                    if Path(entry).name != entry:  # files may be strangers'
                        raise StudentError(f"{os.fspath(path)} holds {entry!r}, which is no plain file name. Do not trust it.")
                    (folder / entry).write_bytes(archive.read(entry))
            header = json.loads((folder / _HEADER).read_text())
            version = header["format"]
        except (zipfile.BadZipFile, KeyError, ValueError, FileNotFoundError) as error:
            if not Path(path).exists():
                raise
            if isinstance(error, StudentError):
                raise
            raise StudentError(f"{os.fspath(path)} holds no student; write one with save(path).") from error
        if version != _FORMAT:
            raise StudentError(f"{os.fspath(path)} has format {version}; this version reads {_FORMAT}. Fit and save it again.")
        yield header, folder
