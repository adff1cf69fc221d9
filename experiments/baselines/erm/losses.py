"""The losses of a margin z = sign * (w . x): convex, of slope at most 1, of bounded curvature. What the theorems ask for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from pate.arrays import FloatArray
from pate.validation import positive


class Loss(ABC):
    """Conditions of Theorems 6 and 9 of Chaudhuri, Monteleoni, Sarwate 2011: convex, |slope| <= 1, curvature <=
    ``most_curved``.

    Theorem 9 also wants two derivatives. Huber's loss lacks the second at two margins; a Lipschitz slope will do, since then
    the map from weights to noise is Lipschitz and one to one, and the change of variables holds but on a set of measure 0.
    """

    @property
    @abstractmethod
    def most_curved(self) -> float:
        """The bound c on the second derivative."""

    @abstractmethod
    def value(self, margins: FloatArray) -> FloatArray:
        """float64[record]."""

    @abstractmethod
    def slope(self, margins: FloatArray) -> FloatArray:
        """float64[record]: the derivative, in [-1, 0]."""

    @abstractmethod
    def curvature(self, margins: FloatArray) -> FloatArray:
        """float64[record]: the second derivative, where there is one."""

    @property
    def at_zero(self) -> float:
        return float(self.value(np.zeros(1))[0])


@dataclass(frozen=True)
class Logistic(Loss):
    """log(1 + e^-z); c = 1/4.

    >>> Logistic().most_curved, round(Logistic().at_zero, 4)
    (0.25, 0.6931)
    """

    @property
    def most_curved(self) -> float:
        return 0.25

    def value(self, margins: FloatArray) -> FloatArray:
        found: FloatArray = np.logaddexp(0.0, -margins)
        return found

    def slope(self, margins: FloatArray) -> FloatArray:
        found: FloatArray = -expit(-margins)
        return found

    def curvature(self, margins: FloatArray) -> FloatArray:
        found: FloatArray = expit(margins) * expit(-margins)
        return found


@dataclass(frozen=True)
class HuberHinge(Loss):
    """The hinge of a support vector machine with its corner rounded over 2 * width (Chapelle 2007); c = 1/(2 * width).

    >>> HuberHinge(0.5).most_curved, HuberHinge(0.5).at_zero
    (1.0, 1.0)
    """

    width: float = 0.5

    def __post_init__(self) -> None:
        positive(self.width, "Width of the Huber loss")

    @property
    def most_curved(self) -> float:
        return 1 / (2 * self.width)

    def value(self, margins: FloatArray) -> FloatArray:
        bend = np.clip(1 + self.width - margins, 0.0, 2 * self.width)
        found: FloatArray = np.where(margins < 1 - self.width, 1 - margins, bend**2 / (4 * self.width))
        return found

    def slope(self, margins: FloatArray) -> FloatArray:
        found: FloatArray = -np.clip((1 + self.width - margins) / (2 * self.width), 0.0, 1.0)
        return found

    def curvature(self, margins: FloatArray) -> FloatArray:
        found: FloatArray = np.where(np.abs(1 - margins) <= self.width, self.most_curved, 0.0)
        return found
