"""Ids of records, users and silos, as the bytes by which they are hashed and compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from pate.digests import identity_bytes
from pate.errors import PartitionError

# What a missing value looks like after it was turned into text.
_MISSING_TEXTS = frozenset({"", "nan", "None", "NaT", "<NA>"})
_DATES = (np.datetime64, np.timedelta64)
_FLOATS = (float, np.floating)
_PASS_FOR_INTEGERS = (bool, np.timedelta64)
_KINDS = (int, str, bytes, np.integer)


def identities(values: Any, what: str) -> list[bytes]:
    """``values``, a list or array of whole numbers, strings or bytes, as bytes; 7, "7" and b"7" are one id.

    what: names them in the error that is raised where one is missing (None, NaN, NaT, "") or of another kind.
    """
    items = _items(values, what)
    missing = sum(_is_missing(item) for item in items)
    if missing:
        raise PartitionError(
            f"{what}: every record needs one; {missing} of {len(items)} are missing (None, NaN, NaT or empty). Find them, or "
            "leave those records out before splitting."
        )
    return [_bytes(item, what) for item in items]


def refuse_masked(values: Any, what: str) -> None:
    """Raise for a masked array: its mask would be dropped silently, and what lies under it be used."""
    if isinstance(values, np.ma.MaskedArray):
        raise PartitionError(f"{what} must not be a masked array: the mask would be lost. Drop the masked records first.")


def _items(values: Any, what: str) -> list[Any]:
    refuse_masked(values, what)
    if isinstance(values, list | tuple):
        return list(values)  # not through an array, in which ["a", NaN] would become text
    array = np.asarray(values)
    if array.ndim != 1:
        raise PartitionError(f"{what} must be a list or array [record], got {type(values).__name__} of shape {array.shape}.")
    return list(array) if array.dtype.kind in "mM" else array.tolist()  # dates as plain numbers would pass for ids


def _is_missing(item: Any) -> bool:
    if isinstance(item, str):
        return item.strip() in _MISSING_TEXTS
    if isinstance(item, bytes):
        return not item
    if isinstance(item, _FLOATS):
        return bool(np.isnan(item))
    if isinstance(item, _DATES):
        return bool(np.isnat(item))
    return item is None or type(item).__name__ in ("NAType", "NaTType")  # pandas' own


def _bytes(item: Any, what: str) -> bytes:
    if not isinstance(item, _KINDS) or isinstance(item, _PASS_FOR_INTEGERS):
        raise PartitionError(
            f"{what} must be whole numbers, strings or bytes, got {type(item).__name__}. Convert them on purpose: a float or "
            "a date has several spellings, and each would be another id."
        )
    try:
        return identity_bytes(item)
    except UnicodeEncodeError:
        raise PartitionError(f"{what} must be valid text; found broken characters. Decode them anew or give bytes.") from None
