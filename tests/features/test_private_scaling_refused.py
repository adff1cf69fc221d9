"""The public defect (synthcity #278): a scaler fitted on private rows hands their least and greatest value to everyone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from feature_cases import BUILT_IN, pictures, unfitted
from numpy.typing import NDArray

from pate.digests import row_digests
from pate.errors import ParameterError
from pate.features import Scale, Standardise, share_of
from pate.features.checks import Overlap
from pate.public import PublicData


@pytest.mark.parametrize("name", BUILT_IN)
def test_private_rows_are_refused_by_type_and_the_reason_is_given(name: str) -> None:
    private = pictures(30, seed=5)
    with pytest.raises(ParameterError, match="are a release without noise") as error:
        unfitted(name).fit(private)  # type: ignore[arg-type]  # the defect
    assert "PublicData only, got ndarray" in str(error.value)
    assert "Declare the numbers, or fit on public data" in str(error.value)


def test_a_range_cannot_be_looked_up_at_all() -> None:
    with pytest.raises(TypeError):
        Scale()  # type: ignore[call-arg]  # the range is declared


def test_private_rows_in_a_public_wrapper_are_found_by_content() -> None:
    private, public = pictures(30, seed=5), pictures(40, seed=6)
    known = row_digests(private)

    def found(x: NDArray[Any]) -> Overlap:
        return share_of(known, Standardise().fit(PublicData(x, "a lie")).fitted_digests)

    assert found(private) == Overlap(of_private=1.0, of_fitted=1.0)
    assert found(private[7:9].astype(np.float64).reshape(2, -1)).of_fitted == 1.0
    assert found(np.concatenate([public, private])).of_private == 1.0
    assert found(np.concatenate([public, private[:10]])) == Overlap(of_private=10 / 30, of_fitted=10 / 50)
    assert found(public) == Overlap(0.0, 0.0)


def test_a_lie_inside_a_chain_or_a_concatenation_is_found() -> None:
    private = pictures(64, seed=5)
    known = row_digests(private)
    for name in ("chain", "concat"):
        assert share_of(known, unfitted(name).fit(PublicData(private)).fitted_digests).larger == 1.0


def test_what_was_fitted_on_nothing_shares_nothing() -> None:
    private = pictures(3, seed=5)
    assert share_of(row_digests(private), unfitted("hog").fit(PublicData(private)).fitted_digests).larger == 0.0
