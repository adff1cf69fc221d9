"""The numbers at the axes of plots."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra 'plot')")

from pate.experiments.plots import log_scale, new_figure, whole_numbers


@pytest.mark.parametrize("which", ["x", "y"])
def test_logarithms_are_marked_with_numbers_that_people_read(which: str) -> None:
    axes = new_figure(4, 3).subplots()
    axes.plot([0.05, 2.6], [0.05, 2.6])
    log_scale(axes, which)
    axes.figure.canvas.draw()
    shown = [label.get_text() for label in getattr(axes, f"get_{which}ticklabels")()]
    assert {"0.05", "0.1", "0.2", "0.5", "1", "2"} <= set(shown)
    assert not any("10^" in text for text in shown)


@pytest.mark.parametrize("most", [1, 3, 20, 640])
def test_what_is_counted_is_marked_at_whole_numbers(most: int) -> None:
    axes = new_figure(6, 3).subplots()
    axes.plot([0, most], [0, 1])
    whole_numbers(axes.xaxis)
    axes.figure.canvas.draw()
    assert all(place == round(place) for place in axes.get_xticks())
