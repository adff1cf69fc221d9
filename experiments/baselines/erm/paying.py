"""What fits into a budget, and the charge that goes before the noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pate.errors import ParameterError
from pate.experiments.baselines.erm.mechanisms import GaussianPerturbation, Perturbation, perturbation
from pate.ledger import Budget, Ledger
from pate.privacy.curve import RdpCurve
from pate.privacy.mechanisms import pure_dp_rdp
from pate.release import Mode

PURE = ("output", "objective")
_PRECISION = 1e-6


def within(method: str, budget: Budget) -> Perturbation:
    """The mechanism that spends a whole budget, as the ledger's filter at its one order counts.

    Of a pure mechanism that order leaves less than the budget's epsilon; at order 1024 nearly all of it.

    >>> within("gaussian", Budget(1.0, 1e-5)).epsilon(1e-5) < 1.0
    True
    >>> round(within("output", Budget(1.0, 1e-5)).pure, 2), round(within("output", Budget(1.0, 1e-5, order=1024.0)).pure, 3)
    (0.58, 0.997)
    """
    order = np.array([budget.order])
    if method == "gaussian":
        found: Perturbation = GaussianPerturbation(math.sqrt(budget.order / (2 * budget.cap)) * (1 + _PRECISION))
    else:
        low, high = 0.0, budget.epsilon
        while high - low > _PRECISION * budget.epsilon:
            middle = (low + high) / 2
            low, high = (middle, high) if float(pure_dp_rdp(middle, order)[0]) <= budget.cap else (low, middle)
        found = perturbation(method, low * (1 - _PRECISION)) if low else perturbation(method, _PRECISION * budget.epsilon)
    if budget.queries_affordable(found.curve) < 1:
        raise ParameterError(f'No noise of method "{method}" fits into {budget!r}. Take a larger epsilon.')
    return found


def charge(ledger: Ledger, cost: RdpCurve, memo: Mapping[str, Any], key: str, mode: Mode) -> None:
    """Charge, durably, before any noise is drawn; raise BudgetExceeded if it does not fit.

    In a release the key is used once: whoever comes again, after a crash, will draw other noise and pays for it. A simulation
    repeats its noise, so it pays once.
    """
    attempt = 1
    while True:
        name = key if mode == "simulation" else f"{key}, try {attempt}"
        if not ledger.charge(cost, {**memo, "mode": mode}, name).repeated or mode == "simulation":
            return
        attempt += 1
