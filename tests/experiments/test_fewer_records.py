"""Curves over the number of records: a share of the private ones is kept, of benchmarks alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pipeline_cases import tiny

from pate.errors import RecipeError
from pate.experiments.datasets import load
from pate.experiments.recipes.reading import check_recipe
from pate.teachers import PrivateData

pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra 'train')")


def test_each_record_is_kept_or_not_by_its_own_id() -> None:
    """About the share, and the smaller within the larger; public and test records are as they were."""
    digits = load("digits")
    fewer, fewest = digits.with_fewer(0.5), digits.with_fewer(0.25)
    assert len(digits.private) * 0.4 < len(fewer.private) < len(digits.private) * 0.6
    assert set(fewest.private.record_ids) < set(fewer.private.record_ids) < set(digits.private.record_ids)
    assert fewer.public_x is digits.public_x
    assert fewer.test is digits.test
    assert fewer.private.fingerprint != digits.private.fingerprint
    place = {each: row for row, each in enumerate(digits.private.record_ids)}
    rows = [place[each] for each in fewer.private.record_ids]
    np.testing.assert_array_equal(fewer.private.x, digits.private.x[rows])
    np.testing.assert_array_equal(fewer.private.y, digits.private.y[rows])


def test_a_person_is_kept_whole() -> None:
    digits = load("digits")
    n = len(digits.private) // 3 * 3
    three_each = PrivateData(digits.private.x[:n], digits.private.y[:n], np.arange(n), group_by=np.arange(n) // 3, name="three")
    kept = replace(digits, private=three_each).with_fewer(0.5).private
    assert kept.unit == "user"
    assert set(kept.unit_ids) < set(three_each.unit_ids)
    assert (np.bincount(kept.unit_of) == 3).all()


def test_a_release_is_made_of_all_records() -> None:
    tables = tiny(mode="release")
    tables["data"]["private_share"] = 0.5
    with pytest.raises(RecipeError, match=r"data\.private_share: for simulations only"):
        check_recipe(tables)
    assert check_recipe({**tables, "mode": "simulation"}).data.private_share == 0.5
