"""Audits of DP-SGD: a right training keeps its claim, one with too little noise does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pate.experiments.audits.dpsgd import audit_dpsgd, make_bench
from pate.experiments.recipes.model import DpsgdRecipe
from pate.experiments.recipes.reading import read_dpsgd_recipe
from pate.noise import SimulatedNoise

for package in ("torch", "sklearn", "dp_accounting"):
    pytest.importorskip(package, reason=f"{package} is not installed (extras 'train' and 'dpsgd')")


def recipe(**changes: Any) -> DpsgdRecipe:
    """Two steps that everybody is in, with noise of twice the bound: epsilon 3."""
    plain = {"rate": 1.0, "noise_multiplier": 2.0, "epochs": None, "steps": 2, **changes}
    return read_dpsgd_recipe("digits", {f"dpsgd.{key}": value for key, value in plain.items()})


@pytest.fixture
def weak_noise(monkeypatch: pytest.MonkeyPatch) -> Any:
    """weak_noise(share): sums are noised with that share of what is accounted for."""
    from pate.experiments.baselines.dpsgd.training import loop

    honest = loop.noised

    def weaken(share: float) -> None:
        monkeypatch.setattr(loop, "noised", lambda total, sigma, bound, noise: honest(total, sigma * share, bound, noise))

    return weaken


def test_a_right_training_keeps_its_claim_and_one_run_shows_a_part_of_it() -> None:
    """20 trainings a world and one with 640 canaries, confidence 0.99 together. The one run shows 0.22 of the claim, with a
    standard deviation of 0.06 over seeds; another linear algebra gives other canaries, and so another draw."""
    report = audit_dpsgd(recipe(), runs=20)
    many, one = report.lower_bounds
    assert report.passed, report
    assert (many.method, many.runs, one.method, one.runs) == ("black box", 40, "one run", 1)
    assert many.claim == one.claim
    assert one.lower > 0
    assert "2 steps at sampling rate 1 and noise multiplier 2" in report.notes[0]


def test_a_fiftieth_of_the_noise_is_caught_twice(weak_noise: Any) -> None:
    """By the one run with many canaries, and by 20 trainings a world; confidence 0.99 together. The worlds lie 17 standard
    deviations apart, so that no training falls on the wrong side, whatever the seed or the machine."""
    weak_noise(0.02)
    report = audit_dpsgd(recipe(noise_multiplier=4.0), runs=20)
    assert [each.refuted for each in report.lower_bounds] == [True, True], report


@pytest.mark.slow
def test_half_the_noise_is_caught(weak_noise: Any) -> None:
    """By 500 trainings a world at confidence 0.995."""
    weak_noise(0.5)
    report = audit_dpsgd(recipe(noise_multiplier=1.5), runs=500)
    assert report.lower_bounds[0].refuted, report


def test_a_long_run_is_cut_and_so_is_its_claim() -> None:
    short, long = (make_bench(recipe(steps=50), steps=steps).training for steps in (5, 50))
    assert (short.steps, long.steps) == (5, 50)
    assert short.sigma == long.sigma
    assert short.epsilon_rdp(1e-5).epsilon < long.epsilon_rdp(1e-5).epsilon


def test_the_rate_of_the_recipe_does_not_tell_whether_the_canary_is_in() -> None:
    bench = make_bench(read_dpsgd_recipe("digits"))
    assert bench.settings.rate == bench.training.rate
    assert bench.settings.noise_multiplier == bench.training.sigma


def test_canaries_have_directions_of_their_own_and_gradients_beyond_the_bound() -> None:
    bench = make_bench(recipe())
    flat = bench.canary_x.reshape(len(bench.canary_x), -1)
    assert len(flat) == 640
    directions = flat[:: bench.n_classes]
    gram = directions @ directions.T
    np.testing.assert_allclose(gram, np.eye(64) * gram[0, 0], atol=1e-2 * gram[0, 0])
    assert (np.linalg.norm(flat, axis=1) > 10 * bench.settings.clip).all()
    assert sorted(set(bench.canary_y.tolist())) == list(range(10))


def test_a_canary_that_is_in_scores_higher() -> None:
    """With hardly any noise: 640 canaries, half of them in. All but the outermost, which feel other records, too."""
    bench = make_bench(recipe(noise_multiplier=0.02))
    present = np.arange(640) % 2 == 0
    margins = bench.margins(bench.train(present, SimulatedNoise(1)))
    assert np.quantile(margins[present], 0.05) > np.quantile(margins[~present], 0.95)
