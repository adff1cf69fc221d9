"""What a training costs, against the vectors; how much noise and how many steps a budget means."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pate.errors import ParameterError
from pate.experiments.baselines.dpsgd.accounting import (
    Training,
    composition,
    least_noise,
    most_steps,
    noise_for_epsilon,
)
from pate.ledger import Budget, Ledger

pytest.importorskip("dp_accounting", reason="dp_accounting is not installed (extra 'dpsgd')")

SECTION: dict[str, Any] = json.loads((Path(__file__).parents[2] / "golden" / "reference.json").read_text())["dpsgd"]
CASES = [case for case in SECTION["cases"] if float(case["eps_pld_dp_accounting"]) < 20]  # larger ones take seconds each


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"q{case['q']}-s{case['sigma']}-{case['steps']}")
def test_both_accountants_meet_the_vectors(case: dict[str, Any]) -> None:
    training = Training(case["q"], case["sigma"], case["steps"])
    cost = training.cost(case["delta"])
    assert cost.pld == pytest.approx(case["eps_pld_dp_accounting"], rel=1e-6, abs=2e-4)
    # Our grid of orders is finer than that of the vectors, and its fractional orders are exact, so RDP is never larger.
    assert cost.rdp.epsilon <= case["eps_rdp_dp_accounting"] * (1 + 1e-6)
    assert cost.epsilon == min(cost.pld or np.inf, cost.rdp.epsilon)
    assert cost.epsilon <= case["eps_prv_opacus"] + 1e-6


def test_the_abadi_example_is_an_order_of_magnitude_below_strong_composition() -> None:
    """q = 0.01, sigma = 4, delta = 1e-5, 10,000 steps: Abadi et al. 2016 give 1.26 with their moments up to 32."""
    found = composition(Training(0.01, 4.0, 10_000), 1e-5, [1, 100, 10_000])
    assert found.rdp[-1] == pytest.approx(1.0355, abs=1e-3)
    assert found.pld is not None
    assert found.pld[-1] < found.rdp[-1] < 1.26 < found.strong[-1] / 5
    assert (np.diff(found.strong) > 0).all()


@settings(max_examples=15)
@given(rate=st.floats(1e-3, 1.0), steps=st.integers(1, 5000), epsilon=st.floats(0.2, 10))
def test_the_ledger_takes_exactly_what_was_planned(rate: float, steps: int, epsilon: float) -> None:
    budget = Budget(epsilon, 1e-5)
    sigma = least_noise(rate, steps, budget)
    assert most_steps(rate, sigma, budget) >= steps
    assert most_steps(rate, sigma * 0.995, budget) < steps
    assert Training(rate, sigma, steps).epsilon_rdp(1e-5).epsilon <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_noise_for_a_target_is_the_least(epsilon: float) -> None:
    sigma = noise_for_epsilon(0.02, 300, epsilon, 1e-5)
    assert Training(0.02, sigma, 300).cost(1e-5).epsilon <= epsilon
    assert Training(0.02, sigma * 0.99, 300).cost(1e-5).epsilon > epsilon


def test_replacing_a_record_costs_more_and_the_ledger_can_tell(tmp_path: Path) -> None:
    training = Training(0.05, 3.0, 100)
    more, less = training.curve("replace"), training.curve("add-remove")
    assert (more.values >= 2 * less.values).all()
    with Ledger.open(tmp_path / "a.db", "a", Budget(1.0, 1e-5), neighbours_if_new="add-remove") as ledger:
        assert ledger.neighbours == "add-remove"
    with Ledger.open(tmp_path / "a.db", "a", Budget(1.0, 1e-5)) as ledger:
        assert ledger.neighbours == "add-remove", "what the first opening fixed stays"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [((1.5, 1.0, 10), "sampling rate"), ((0.1, 0.0, 10), "no noise"), ((0.1, 1.0, 0), "steps"), ((0.1, -1.0, 5), "noise")],
)
def test_what_has_no_meaning_is_refused(arguments: tuple[float, float, int], told: str) -> None:
    with pytest.raises(ParameterError, match=told):
        Training(*arguments)


def test_an_unreachable_target_is_told() -> None:
    with pytest.raises(ParameterError, match="fewer steps"):
        least_noise(1.0, 10**12, Budget(1e-3, 1e-3))


@pytest.mark.parametrize("epsilon", [1e-2, 1e-4, 1e-9])
def test_a_tiny_target_takes_seconds_and_is_told_as_met(epsilon: float) -> None:
    """A privacy-loss distribution as fine as a thousandth of it had ten million points, or ten thousand million."""
    start = time.monotonic()
    sigma = noise_for_epsilon(0.01, 10, epsilon, 1e-5)
    assert time.monotonic() - start < 30
    assert Training(0.01, sigma, 10).cost(1e-5).epsilon <= epsilon
