"""Fixtures that several folders of tests share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from pate.arrays import IntArray

# The default tests try the same examples every time: what passed here passes on the next machine. `make fuzz` draws new ones.
# No deadlines: on a loaded machine they would fail what is right.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("fuzz", derandomize=False, deadline=None, print_blob=True)
settings.load_profile("repeatable")

GOLDEN = Path(__file__).parent / "golden"


def _plain_floats(value: Any) -> Any:
    """The vectors spell infinities as strings, since JSON has none."""
    if isinstance(value, dict):
        return {key: _plain_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain_floats(item) for item in value]
    return float(value) if value in ("inf", "-inf") else value


@pytest.fixture(scope="session", autouse=True)
def _cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fitted features go to a folder of the tests: the user's own is neither read nor filled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def reference() -> dict[str, Any]:
    """Numbers from independent implementations; tests/golden/README.md names the source of every section."""
    vectors: dict[str, Any] = _plain_floats(json.loads((GOLDEN / "reference.json").read_text()))
    return vectors


@pytest.fixture(scope="session")
def mnist_votes() -> IntArray:
    """int64[9000, 10]: votes of 250 real teachers on MNIST."""
    with np.load(GOLDEN / "mnist_votes_250.npz") as archive:
        return archive["counts"].astype(np.int64)
