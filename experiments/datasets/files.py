"""Files of data sets, known by their length and SHA-256: a truncated or foreign file is named, not trained on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pate.errors import ParameterError

_IDX_BYTES = 0x08  # the type code of unsigned bytes


@dataclass(frozen=True)
class KnownFile:
    """A file of a data set: where it lies under the root, how long it is, and its SHA-256 in hexadecimal."""

    path: str
    length: int
    sha256: str

    def checked(self, root: Path) -> Path:
        """Where it is; or an error that says what was expected and what was found."""
        place = root / self.path
        if not place.is_file():
            raise ParameterError(f"{place} does not exist. Put the original file of {self.length:,} bytes there.")
        length = place.stat().st_size
        if length != self.length:
            state = "truncated" if length < self.length else "another file"
            raise ParameterError(
                f"{place} must have {self.length:,} bytes, found {length:,}: {state}. Fetch the original again."
            )
        with place.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != self.sha256:
            raise ParameterError(
                f"{place} must have the SHA-256 {self.sha256}, found {found}: changed or damaged. Fetch the original again."
            )
        return place


def read_idx(path: Path, axes: int) -> NDArray[np.uint8]:
    """An array of unsigned bytes with ``axes`` axes from a file in the IDX format, as MNIST's are."""
    raw = path.read_bytes()
    start = 4 + 4 * axes
    if len(raw) < start or raw[:4] != bytes([0, 0, _IDX_BYTES, axes]):
        raise ParameterError(
            f"{path} must be an IDX file of unsigned bytes with {axes} axes (first bytes 0000080{axes}), "
            f"found first bytes {raw[:4].hex() or 'none'}. If it ends in .gz, unpack it."
        )
    shape = tuple(int.from_bytes(raw[place : place + 4], "big") for place in range(4, start, 4))
    if len(raw) - start != int(np.prod(shape)):
        raise ParameterError(
            f"{path} says that it holds {' x '.join(map(str, shape))} bytes, found {len(raw) - start:,}. Fetch it again."
        )
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape)
