"""Release and Electorate: what is refused, what is frozen, what an artefact must say."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate.errors import ParameterError
from pate.release import ABSTAIN, SIMULATION_STAMP, Electorate, Release

ELECTORATE = Electorate(n_teachers=250, n_classes=3)
GNMAX = {"aggregator": "gnmax", "sigma": 40.0}


def release(labels: Any = (0, 2, ABSTAIN), **changes: Any) -> Release:
    return Release(np.asarray(labels), **({"electorate": ELECTORATE, "mechanism": GNMAX} | changes))


@given(st.lists(st.integers(ABSTAIN, 2), max_size=30))
def test_answered_is_where_a_label_was_released(labels: list[int]) -> None:
    made = release(np.array(labels, dtype=np.int64))
    assert len(made) == len(labels)
    assert made.answered.tolist() == [label != ABSTAIN for label in labels]
    assert made.labels.dtype == np.int64


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[0, 1]], "one axis"),
        (1, "one axis"),
        ([3], r"0\.\.2 or ABSTAIN"),
        ([-2], r"0\.\.2 or ABSTAIN"),
        ([0.0, 1.9], "integer"),
        ([0.0, float("nan")], "integer"),
        (["0"], "integer"),
        ([True, False], "integer"),
    ],
)
def test_bad_labels_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        release(labels)


@pytest.mark.parametrize("mode", ["sim", "Simulation", "", None])
def test_an_unknown_mode_is_refused(mode: Any) -> None:
    """Else a typo for "simulation" would be stamped as private."""
    with pytest.raises(ParameterError, match="mode"):
        release(mode=mode)


@pytest.mark.parametrize("histogram", [np.zeros((2, 3)), np.zeros((3, 2)), np.zeros(9)])
def test_a_histogram_of_another_shape_is_refused(histogram: Any) -> None:
    with pytest.raises(ParameterError, match="histogram"):
        release(histogram=histogram)


def test_a_histogram_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ParameterError, match="histogram"):
        release(histogram=np.full((3, 3), np.nan))


def test_the_stamp_says_where_the_noise_came_from() -> None:
    assert release().stamp == "noise from the operating system"
    assert release(mode="simulation").stamp == SIMULATION_STAMP == "simulation, not private"
    assert SIMULATION_STAMP in repr(release(mode="simulation"))


def test_repr_shows_how_it_was_made_and_no_histogram() -> None:
    made = release(histogram=np.full((3, 3), 123.456))
    assert repr(made) == ("Release(3 asked, 2 answered; aggregator=gnmax, sigma=40.0; noise from the operating system)")


def journeys() -> list[Any]:
    return [lambda value: value, lambda value: pickle.loads(pickle.dumps(value)), copy.copy, copy.deepcopy]


@pytest.mark.parametrize("through", journeys())
def test_a_release_is_frozen_also_after_a_journey(through: Any) -> None:
    labels, histogram, mechanism = np.array([0, 2, ABSTAIN]), np.ones((3, 3)), dict(GNMAX)
    made = through(release(labels, histogram=histogram, mechanism=mechanism, mode="simulation"))
    labels[0], histogram[0, 0], mechanism["sigma"] = 1, 9, 1
    assert made.labels.tolist() == [0, 2, ABSTAIN]
    assert (made.histogram == 1).all()
    assert dict(made.mechanism) == GNMAX
    assert (made.mode, made.electorate) == ("simulation", ELECTORATE)
    for array in (made.labels, made.histogram):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(TypeError):
        made.mechanism["sigma"] = 1
    with pytest.raises(AttributeError):
        made.mode = "release"


def test_releases_can_be_compared_and_collected() -> None:
    one, two = release(), release()
    assert one == one
    assert one != two
    assert len({one, two}) == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_teachers": 0, "n_classes": 3}, "n_teachers"),
        ({"n_teachers": 5, "n_classes": 1}, "n_classes"),
        ({"n_teachers": 5, "n_classes": 3, "participation": 0}, "participation"),
        ({"n_teachers": 5.5, "n_classes": 3}, "n_teachers"),
        ({"n_teachers": 5, "n_classes": 3, "participation": 1.5}, "participation"),
    ],
)
def test_bad_electorates_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Electorate(**fields)


def test_an_electorate_is_a_value() -> None:
    assert Electorate(5, 3, 2) == Electorate(5, 3, 2) != Electorate(5, 3)
    assert len({Electorate(5, 3), Electorate(5, 3)}) == 1
