"""Gaussian noise at the nodes of a trapezoid rule.

With z = x - n/sigma, the probability that class j wins is P_j = ∫ φ(z_j) ∏_{i≠j} Φ(z_i) dx. The integrand is entire, and
|φ(x+iy)| = e^{y²/2} φ(x), |Φ(x+iy)| <= ∫_{t<0} |φ(x+t+iy)| dt = e^{y²/2} Φ(x), so on the line of height y it is at most
e^{ky²/2} times its value on the real line. The trapezoid rule of step h therefore has an error of at most
2 P_j e^{ky²/2 - 2πy/h} / (1 - e^{-2πy/h}) for every y (Trefethen and Weideman 2014, Theorem 5.1, doi:10.1137/130932132);
y = 2π/(kh) gives 2 exp(-2π²/(kh²)), *relative* to P_j however small P_j is.

The log of the integrand is concave with second derivative <= -1. Its mode lies right of (n_j + n_max)/2, since
-φ/Φ(z) <= z; so less than Φ(-REACH)·√k of P_j lies REACH left of that. On the right, ∫ beyond n_max + R is at most
Φ(-R - (n_max - n_j)/sigma), while P_j >= Φ(-(n_max - n_j)/sigma)/k: R = REACH + log(k)/REACH leaves out Φ(-REACH) at most.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import erfcx, log_ndtr

from pate.arrays import FloatArray, IntArray
from pate.privacy.exact.samples import Samples

TRAPEZOID_ERROR = 1e-14
REACH = 8.5
"""Φ(-8.5) = 1e-17."""
_LANES = 8
"""Nodes come in multiples of this, which fills the registers of vector units."""

_LARGEST_LOG = 690.0
LOG_RATIO_LIMIT = 500.0
"""Above this log-ratio of Φ between neighbours, products of ratios could leave the range of a double."""


class Grid(NamedTuple):
    """Nodes at whole multiples of 1/resolution votes, ``stride`` units apart, so that every z is a place in a table.

    tables: float64[6, unit], in the order of the last six fields of :class:`Samples`, from z = first unit / (resolution
    * sigma) on.
    """

    sigma: float
    resolution: int
    stride: int
    first: int
    tables: FloatArray


def widest_spread(sigma: float) -> int:
    """The largest n_max - n_min for which neighbours' ratios fit comfortably in a double."""
    # A class d votes below the top gains about e^{d/sigma²} when the top loses a vote to it, since P is about
    # e^{-d²/(4 sigma²)} and d falls by 2. At the edges of the grid ratios are e^{REACH/sigma} larger for each of the two.
    return int(sigma * (LOG_RATIO_LIMIT * sigma - 2 * REACH - 4 / sigma))


def _units(n_classes: int, sigma: float) -> tuple[int, int]:
    step = sigma * math.pi * math.sqrt(2 / (n_classes * math.log(2 / TRAPEZOID_ERROR)))
    return (1, int(step)) if step >= 1 else (math.ceil(1 / step), 1)


def _reach(n_classes: int, sigma: float) -> tuple[float, float]:
    """How many votes to go left of (n_min + n_max)/2 and right of n_max; 2 votes more, since neighbours' counts differ."""
    return REACH * sigma + 2, (REACH + math.log(n_classes) / REACH) * sigma + 2


def make_grid(n_classes: int, spread: int, sigma: float) -> Grid:
    """The grid for histograms of ``n_classes`` classes whose largest and smallest counts differ by at most ``spread``."""
    resolution, stride = _units(n_classes, sigma)
    left, right = _reach(n_classes, sigma)
    first = math.floor((-spread / 2 - left) * resolution) - stride - resolution
    # A short row in a chunk of wide ones gets as many nodes as they, further to the right.
    last = math.ceil((1.5 * spread + right) * resolution) + (2 + _LANES) * stride + resolution
    z = np.arange(first, last + 1) / (resolution * sigma)
    shift = 1 / sigma
    # Ratios that overflow belong to histograms wider than widest_spread, for which they are not used.
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        ratios = [
            _cdf_ratio(z, shift),
            _cdf_ratio(z, -shift),
            # Far from its bulk a density vanishes, and only there is its ratio cut.
            np.exp(np.minimum(-z * shift - shift * shift / 2, _LARGEST_LOG)),
            np.exp(np.minimum(z * shift - shift * shift / 2, _LARGEST_LOG)),
        ]
    tables = np.stack([-0.5 * z * z - 0.5 * math.log(2 * math.pi), log_ndtr(z), *ratios])
    return Grid(sigma, resolution, stride, first, tables)


def _cdf_ratio(z: FloatArray, shift: float) -> FloatArray:
    """Φ(z+shift)/Φ(z). Left of 0 through erfcx, where the difference of two logs would lose digits."""
    moved = z + shift
    left = np.exp(-z * shift - shift * shift / 2) * erfcx(-moved / math.sqrt(2)) / erfcx(-z / math.sqrt(2))
    right = np.exp(log_ndtr(moved) - log_ndtr(z))
    ratio: FloatArray = np.where((z < 0) & (moved < 0), left, right)
    return ratio


def nodes(grid: Grid, n_classes: int, values: IntArray) -> tuple[IntArray, int]:
    """(int64[row] first node of each row in units, number of nodes of every row)."""
    left, right = _reach(n_classes, grid.sigma)
    top, low = values[:, 0], values[:, -1]
    start = np.floor(((top + low) / 2 - left) * grid.resolution).astype(np.int64)
    width = ((top - low).max() / 2 + left + right) * grid.resolution
    needed = int(width / grid.stride) + 2
    return start, -(-needed // _LANES) * _LANES


def sample(grid: Grid, n_classes: int, values: IntArray) -> Samples:
    """Noise density and distribution of every level at the nodes. values: int64[row, level], largest first."""
    start, n_nodes = nodes(grid, n_classes, values)
    place = (start[:, None] - values * grid.resolution - grid.first)[:, :, None] + np.arange(n_nodes) * grid.stride
    log_weight = np.full((len(values), n_nodes), math.log(grid.stride / (grid.resolution * grid.sigma)))
    return Samples(log_weight, *(table.take(place) for table in grid.tables))
