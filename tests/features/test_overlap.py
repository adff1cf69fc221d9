"""The one measure of "fitted on private rows": what it counts, that it adds up over parts, and that honest tables pass."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pate.digests import row_digests
from pate.features import share_of
from pate.features.checks import Matches, distinct_rows

contents = st.lists(st.integers(0, 12), max_size=3) | st.lists(st.integers(0, 30), max_size=60)


def digests(values: Any) -> NDArray[np.void]:
    return row_digests(np.asarray(values, dtype=float).reshape(-1, 1))


def share_by_loop(these: list[int], others: list[int]) -> float:
    """The docstring, spelt out."""
    times = Counter(others)
    once = sum(times[content] == 1 for content in set(these))
    never = sum(times[content] == 0 for content in set(these))
    return once / max(once + never, len(set(these)) / 4) if once else 0.0


@settings(max_examples=200, deadline=None)
@given(contents, contents)
def test_as_by_a_plain_loop(private: list[int], fitted: list[int]) -> None:
    found = share_of(digests(private), digests(fitted))
    expected = share_by_loop(private, fitted)
    assert found.of_fitted == share_by_loop(fitted, private)
    assert found.larger == max(found.of_private, found.of_fitted)
    if len(set(private) - set(fitted)) <= 8 * len(set(fitted)):
        assert found.of_private == expected
    else:  # not all of the others were counted
        assert expected <= found.of_private < 1 / 8


@settings(max_examples=100, deadline=None)
@given(st.lists(contents, min_size=1, max_size=5), contents)
def test_parts_add_up_in_any_order(parts: list[list[int]], fitted: list[int]) -> None:
    rows, times = distinct_rows(digests(fitted))
    expected = share_of(digests([content for part in parts for content in part]), digests(fitted))
    for some in (parts, parts[::-1]):
        found = reduce(add, [Matches.of(digests(part), rows) for part in some])
        assert found.overlap(times) == expected
        assert len(found.others) <= 8 * len(rows)  # what leaves the workers is bounded by what is public


def test_common_contents_tell_nothing() -> None:
    common = [7] * 5 + [8] * 5
    assert share_of(digests([*common, 1, 2]), digests([*common, 3, 4])).larger == 0.0
    assert share_of(digests([*common, 1, 2]), digests([*common, 1, 2])).larger == 1.0
    assert share_of(digests([*common, 1]), digests([7] * 3 + [8] + [1])).of_fitted == 1.0
    # One content of nine is left to tell: it counts as one of nine quarters.
    assert share_of(digests([0, *np.repeat(range(1, 9), 2)]), digests(range(9))).of_fitted == pytest.approx(4 / 9)


def table(name: str) -> NDArray[np.void]:
    """Digests of each row's content, its label left out: KDD'99, and eight columns of Adult, in which rows repeat as well."""
    path = Path(os.environ.get("PATE_DATA", "")) / name
    if not os.environ.get("PATE_DATA") or not path.exists():
        pytest.skip(f"needs {name} under PATE_DATA")
    content = path.read_bytes()
    lines = (gzip.decompress(content) if path.suffix == ".gz" else content).decode().splitlines()
    rows = [line.rpartition(",")[0] for line in lines if line]
    if name.startswith("adult"):
        rows = [",".join(row.split(",")[place] for place in (1, 3, 5, 6, 7, 8, 9, 13)) for row in rows]
    number = {row: place for place, row in enumerate(dict.fromkeys(rows))}
    return digests([number[row] for row in rows])


@pytest.mark.parametrize("name", ["kddcup99/kddcup.data_10_percent.gz", "adult/adult.data"])
def test_public_rows_of_tables_that_repeat_themselves_pass(name: str) -> None:
    """Random splits of one table: an honest fit shares many rows with the private ones by chance, a lie nearly all."""
    rows = table(name)
    random = np.random.default_rng(0)
    for share in (0.01, 0.1, 0.5, 0.9):
        public = random.random(len(rows)) < share
        private = rows[~public]
        assert share_of(private, rows[public]).larger < 0.4
        lie = random.random(len(private)) < share
        assert share_of(private, private[lie]).larger > 0.7
        assert share_of(private, rows).larger > 0.9
