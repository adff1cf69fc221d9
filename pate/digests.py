"""Content hashes of records: what a teacher was trained on, written down without the data itself."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

DIGEST_BYTES = 16
_BLOCK_BYTES = 1 << 24  # of rows that are converted at a time, to bound memory


def row_digests(x: NDArray[Any], y: NDArray[Any] | None = None, *, dtype: DTypeLike = np.float32) -> NDArray[np.void]:
    """A 16-byte digest of each row's values (and label), V16[record].

    Numbers are hashed as ``dtype``: as float32 the same picture stored as uint8 or float64 has one digest, and so have
    values that only float64 tells apart. Equal rows have equal digests; a digest tells nothing practical of the row, but
    anyone who can guess the row can confirm the guess: private.
    """
    width = math.prod(x.shape[1:]) * np.dtype(dtype).itemsize
    step = max(1, _BLOCK_BYTES // max(1, width))
    digests: list[bytes] = []
    for start in range(0, len(x), step):
        with np.errstate(over="ignore"):  # beyond float32 is infinity
            block = np.ascontiguousarray(x[start : start + step], dtype=dtype) + np.zeros((), dtype)  # -0.0 is 0.0
        rows = block.tobytes()
        labels = b"" if y is None else np.ascontiguousarray(y[start : start + step], dtype=np.int64).tobytes()
        for row in range(len(block)):
            content = rows[row * width : (row + 1) * width] + labels[row * 8 : (row + 1) * 8]
            digests.append(hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest())
    return np.frombuffer(b"".join(digests), dtype=f"V{DIGEST_BYTES}")


def identity_bytes(identity: Any) -> bytes:
    """The bytes of a record's or user's id by which it is hashed: the same for 7, numpy's 7 and "7"."""
    if isinstance(identity, bytes):
        return identity
    return str(identity).encode()


def set_digest(items: Iterable[bytes]) -> str:
    """One digest of a multiset of byte strings, whatever their order."""
    digest = hashlib.sha256()
    for item in sorted(items):
        digest.update(len(item).to_bytes(8, "big"))
        digest.update(item)
    return digest.hexdigest()


def id_keys(identities: Sequence[Any] | NDArray[Any], salt: str) -> NDArray[np.uint64]:
    """64 bits of a keyed hash (BLAKE2b) of each id with a public salt, uint64[id]: of the id itself, of nothing else."""
    keyed = hashlib.blake2b(key=hashlib.blake2b(salt.encode(), digest_size=32).digest(), digest_size=8)
    digests: list[bytes] = []
    for identity in identities:
        own = keyed.copy()  # half the time of keying it anew
        own.update(identity_bytes(identity))
        digests.append(own.digest())
    return np.frombuffer(b"".join(digests), dtype=">u8").astype(np.uint64)


def place_of_keys(keys: NDArray[np.uint64], places: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """The place 0..places-1 of each key, int64[key]; ``places`` is one number, or one for each key.

    Do not choose anything else by ``key % n``: where n and ``places`` share a factor it is decided already. Compare the
    whole key instead.
    """
    return (keys % np.asarray(places).astype(np.uint64)).astype(np.int64)


def keyed_place(identities: Sequence[Any] | NDArray[Any], salt: str, places: int) -> NDArray[np.int64]:
    """The place 0..places-1 of each id, int64[id]. No place is favoured by more than places / 2**64."""
    return place_of_keys(id_keys(identities, salt), places)
