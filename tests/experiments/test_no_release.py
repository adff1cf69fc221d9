"""Data sets that are for simulations only, since private records decide which records are public."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest

from pate.digests import keyed_place
from pate.errors import RecipeError
from pate.experiments.datasets import kddcup99
from pate.experiments.datasets.files import KnownFile
from pate.experiments.datasets.registry import BUILT_IN, source_named
from pate.experiments.recipes.reading import read_recipe


def connection(count: int) -> str:
    row = dict.fromkeys(kddcup99.COLUMNS, "0") | {"protocol_type": "tcp", "service": "http", "flag": "SF"}
    return ",".join((row | {"count": str(count), "label": "normal."}).values())


def pack(root: Path, rows: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    content = gzip.compress(("\n".join(rows) + "\n").encode())
    (root / "kdd.gz").write_bytes(content)
    monkeypatch.setattr(kddcup99, "ARCHIVE", KnownFile("kdd.gz", len(content), hashlib.sha256(content).hexdigest()))
    monkeypatch.setattr(kddcup99, "RECORDS", len(rows))


def test_kddcup_without_copies_is_no_data_set_for_a_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which copy is the first decides where it lies, so one private record changed makes another one public."""
    once, copies = kddcup99.KDDCup99(), kddcup99.KDDCup99(deduplicate=False)
    rows = [connection(count) for count in range(50)] * 2
    pack(tmp_path, rows, monkeypatch)
    before = {source: source.load(tmp_path).public_x for source in (once, copies)}
    private = [int(number) for number in copies.load(tmp_path).private.record_ids]
    first = next(row for row in private if row < 50 and keyed_place([row + 50], "kddcup99-split", 10)[0] == 8)
    rows[first] = connection(60)
    pack(tmp_path, rows, monkeypatch)
    assert len(once.load(tmp_path).public_x) == len(before[once]) + 1
    assert "deduplicate: true keeps the first of equal connections" in str(once.no_release)
    np.testing.assert_array_equal(copies.load(tmp_path).public_x, before[copies])
    assert copies.no_release is None


def test_a_recipe_for_a_release_of_it_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"data\.deduplicate: true keeps the first of equal connections"):
        read_recipe("kddcup99", {"mode": "release"})
    assert read_recipe("kddcup99", {"mode": "release", "data.deduplicate": False}).mode == "release"


@pytest.mark.parametrize("name", sorted(set(BUILT_IN) - {"kddcup99", "files"}))
def test_the_others_may_be_released(name: str) -> None:
    assert source_named(name, {}).no_release is None
