"""Gradient descent with momentum and L2 decay, as numbers that need no pass over the weights for the decay.

The rule is the usual one, v <- m v + g + d w; w <- w - r v, for rate r, momentum m, decay d. So
w[k+1] = (1 + m - r d) w[k] - m w[k-1] - r g[k]. Let s >= f be the roots of t² - (1 + m - r d) t + m: their sum is the first
factor and their product the second. Then u[k] = w[k] / s^k obeys u[k+1] - u[k] = (f / s) (u[k] - u[k-1]) - r g[k] / s^(k+1),
which is momentum f / s without decay. The roots are real while r d <= (1 - √m)²; beyond that the decay would make weights
oscillate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pate.errors import ParameterError
from pate.validation import positive, whole

_SMALLEST_SCALE = 2.0**-20


@dataclass(frozen=True)
class Descent:
    """How to descend. ``learning_rate`` and ``weight_decay`` in units of the mean squared length of a layer's inputs."""

    epochs: int
    learning_rate: float
    momentum: float
    batch: int
    weight_decay: float

    def __post_init__(self) -> None:
        whole(self.epochs, "epochs", least=1)
        whole(self.batch, "batch", least=1)
        positive(self.learning_rate, "learning_rate")
        if not 0 <= self.momentum < 1:
            raise ParameterError(f"momentum must lie in 0 <= momentum < 1, got {self.momentum!r}.")
        largest = (1 - math.sqrt(self.momentum)) ** 2 / self.learning_rate
        if not 0 <= self.weight_decay <= largest:
            raise ParameterError(
                f"weight_decay must lie in 0..{largest:.3g}, that is (1 - √momentum)² / learning_rate, got "
                f"{self.weight_decay!r}. Beyond that weights oscillate: lower it, the learning rate or the momentum."
            )

    @property
    def roots(self) -> tuple[float, float]:
        """The slow and the fast factor by which weights fade without gradients."""
        total = 1 + self.momentum - self.learning_rate * self.weight_decay
        apart = math.sqrt(max(total * total - 4 * self.momentum, 0.0))
        slow = (total + apart) / 2
        return slow, self.momentum / slow


class Fading:
    """The scale s^k between the weights and what is stored of them, step by step. The same for every teacher of a batch."""

    def __init__(self, descent: Descent) -> None:
        self.slow, fast = descent.roots
        self.momentum = fast / self.slow
        self.scale = 1.0
        self.scales: list[float] = []
        """The scale after each step: a teacher with few records stops before the others."""
        self._rate = descent.learning_rate

    @property
    def rate(self) -> float:
        """What a gradient is multiplied by before it joins the stored velocity."""
        return self._rate / (self.scale * self.slow)

    def step(self) -> float:
        """Go one step on. Gives the factor for stored weights and velocities, 1 but for once in a while."""
        self.scale *= self.slow
        factor = 1.0
        if self.scale < _SMALLEST_SCALE:
            factor, self.scale = self.scale, 1.0
        self.scales.append(self.scale)
        return factor
