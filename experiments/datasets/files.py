"""Files of data sets, known by their length and SHA-256: a truncated or foreign file is named, not trained on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pate.errors import DataError

_IDX_BYTES = 0x08  # the type code of unsigned bytes


@dataclass(frozen=True)
class KnownFile:
    """A file of a data set: where it lies under the root, how long it is, and its SHA-256 in hexadecimal.

    length: None where its publisher states none. md5: where its publisher states that and no SHA-256.
    """

    path: str
    length: int | None
    sha256: str | None
    md5: str | None = None

    @property
    def known_by(self) -> str:
        """How to tell the original, in words."""
        length = "" if self.length is None else f"{self.length:,} bytes, "
        return f"{length}SHA-256 {self.sha256}" if self.sha256 else f"{length}MD5 {self.md5}"

    def checked(self, root: Path) -> Path:
        """Where it is; or an error that says what was expected and what was found."""
        place = root / self.path
        if not place.is_file():
            raise DataError(
                f"{place} does not exist. Fetch it with `pate data fetch`, or put the original ({self.known_by}) there."
            )
        self.check(place)
        return place

    def check(self, place: Path) -> None:
        """Raise unless ``place`` holds the original."""
        length = place.stat().st_size
        if self.length is not None and length != self.length:
            state = "truncated" if length < self.length else "another file"
            raise DataError(f"{place} must have {self.length:,} bytes, found {length:,}: {state}. Fetch the original again.")
        kind, wanted = ("sha256", self.sha256) if self.sha256 else ("md5", self.md5)
        with place.open("rb") as file:
            found = hashlib.file_digest(file, kind).hexdigest()
        if found != wanted:
            raise DataError(
                f"{place} must have the {'SHA-256' if self.sha256 else 'MD5'} {wanted}, found {found}: changed or damaged. "
                "Fetch the original again."
            )


def read_idx(path: Path, axes: int) -> NDArray[np.uint8]:
    """An array of unsigned bytes with ``axes`` axes from a file in the IDX format, as MNIST's are."""
    raw = path.read_bytes()
    start = 4 + 4 * axes
    if len(raw) < start or raw[:4] != bytes([0, 0, _IDX_BYTES, axes]):
        raise DataError(
            f"{path} must be an IDX file of unsigned bytes with {axes} axes (first bytes 0000080{axes}), "
            f"found first bytes {raw[:4].hex() or 'none'}. If it ends in .gz, unpack it."
        )
    shape = tuple(int.from_bytes(raw[place : place + 4], "big") for place in range(4, start, 4))
    if len(raw) - start != int(np.prod(shape)):
        raise DataError(
            f"{path} says that it holds {' x '.join(map(str, shape))} bytes, found {len(raw) - start:,}. Fetch it again."
        )
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape)
