"""Digests of contents and keys of ids: what they depend on, and what they do not."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from scipy import stats

from pate import digests
from pate.digests import id_keys, identity_bytes, keyed_place, place_of_keys, row_digests, set_digest


def plain_digest(row: np.ndarray, label: int | None, dtype: type = np.float32) -> bytes:
    content = b"".join(np.asarray(value, dtype=dtype).tobytes() for value in row.ravel())
    return hashlib.blake2b(content + (b"" if label is None else np.int64(label).tobytes()), digest_size=16).digest()


@pytest.mark.parametrize("block_bytes", [1, 100, 1 << 24])
def test_a_row_digest_is_the_hash_of_its_values_whatever_the_block(monkeypatch: pytest.MonkeyPatch, block_bytes: int) -> None:
    monkeypatch.setattr(digests, "_BLOCK_BYTES", block_bytes)
    x, y = np.random.default_rng(0).normal(size=(23, 2, 3)), np.arange(23)
    assert row_digests(x).tolist() == [plain_digest(row, None) for row in x]
    assert row_digests(x, y).tolist() == [plain_digest(row, label) for row, label in zip(x, y, strict=True)]
    assert row_digests(x, y, dtype=np.float64).tolist() == [
        plain_digest(row, label, np.float64) for row, label in zip(x, y, strict=True)
    ]


def test_the_same_picture_has_one_digest_in_every_storage() -> None:
    picture = np.random.default_rng(1).integers(0, 256, size=(5, 4, 4), dtype=np.uint8)
    for other in (picture.astype(np.float64), np.asfortranarray(picture), picture.astype(int)):
        assert row_digests(other).tolist() == row_digests(picture).tolist()
    assert row_digests(np.array([[0.0]])).tolist() == row_digests(np.array([[-0.0]])).tolist()


def test_only_float64_digests_tell_the_last_digits_apart() -> None:
    close = np.array([[1.0], [1.0 + 1e-12]])
    assert len(set(row_digests(close).tolist())) == 1
    assert len(set(row_digests(close, dtype=np.float64).tolist())) == 2


def test_the_label_counts() -> None:
    x = np.zeros((2, 3))
    assert len(set(row_digests(x, np.array([0, 1])).tolist())) == 2


def test_values_beyond_float32_do_not_warn() -> None:
    assert len(row_digests(np.array([[1e300]]))) == 1


def test_no_rows_have_no_digests() -> None:
    assert row_digests(np.zeros((0, 3))).tolist() == []
    assert id_keys([], "salt").tolist() == []


def test_a_set_digest_ignores_order_and_counts_copies() -> None:
    assert set_digest([b"a", b"bc"]) == set_digest([b"bc", b"a"])
    assert len({set_digest(items) for items in ([b"a"], [b"a", b"a"], [b"ab"], [b"a", b"b"], [])}) == 5


def test_one_id_in_every_spelling() -> None:
    assert {
        identity_bytes(identity) for identity in (7, np.int64(7), np.uint8(7), "7", np.str_("7"), b"7", np.bytes_(b"7"))
    } == {b"7"}
    assert len(set(id_keys([7, np.int32(7), "7", b"7"], "salt").tolist())) == 1


def test_a_key_is_the_keyed_hash_of_the_id() -> None:
    key = hashlib.blake2b(b"spring", digest_size=32).digest()
    expected = [int.from_bytes(hashlib.blake2b(text, key=key, digest_size=8).digest(), "big") for text in (b"ann", b"7")]
    assert id_keys(["ann", 7], "spring").tolist() == expected
    assert id_keys(["ann", 7], "spring").dtype == np.uint64


def test_keys_and_places_stay_as_they_were() -> None:
    """A resumed run must place its records as before: these values are frozen."""
    assert id_keys(["ann", 7, b"\x00"], "spring").tolist() == [5533912505449180138, 6342001376720954117, 5236739829401623187]
    assert keyed_place(range(8), "spring", 5).tolist() == [3, 0, 4, 4, 1, 1, 2, 2]


def test_another_salt_is_another_split() -> None:
    places = [keyed_place(range(1000), salt, 10) for salt in ("a", "b")]
    # Independent splits agree on 1 id in 10; the values are fixed, so there is no false alarm.
    assert abs((places[0] == places[1]).mean() - 0.1) < 0.03


def test_places_may_differ_in_number() -> None:
    keys = id_keys(range(50), "salt")
    counts = np.arange(1, 51)
    assert place_of_keys(keys, counts).tolist() == [int(key) % int(count) for key, count in zip(keys, counts, strict=True)]


@pytest.mark.parametrize("salt", ["", "spring", "2026-study"])
@pytest.mark.parametrize("n_places", [7, 250, 1024])
def test_places_are_uniform(salt: str, n_places: int) -> None:
    """Chi-square, n = 50,000 ids. For a new hash the false-alarm rate is 1e-6 a case; hash and ids are fixed."""
    counts = np.bincount(keyed_place(range(50_000), salt, n_places), minlength=n_places)
    assert stats.chisquare(counts).pvalue > 1e-6
