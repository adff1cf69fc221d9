"""Gaussian noise at the nodes of a trapezoid rule.

With z = x - n/sigma, the probability that class j wins is P_j = ∫ φ(z_j) ∏_{i≠j} Φ(z_i) dx. The integrand is entire, and
|φ(x+iy)| = e^{y²/2} φ(x), |Φ(x+iy)| <= ∫_{t<0} |φ(x+t+iy)| dt = e^{y²/2} Φ(x), so on the line of height y it is at most
e^{ky²/2} times its value on the real line. The trapezoid rule of step h therefore has an error of at most
2 P_j e^{ky²/2 - 2πy/h} / (1 - e^{-2πy/h}) for every y (Trefethen and Weideman 2014, Theorem 5.1, doi:10.1137/130932132);
y = 2π/(kh) gives 2 exp(-2π²/(kh²)), *relative* to P_j however small P_j is.

What lies outside the nodes, relative to P_j, with d = (n_max - n_j)/sigma:

- P_j >= Φ(-d-t) Φ(t)^(k-1) for every t, since j wins if it is above n_max + t·sigma and all others are below. With
  Φ(-t) = 1/k that is at least Φ(-d-t)/e.
- On the right, j has Φ(-R-d) beyond n_max + R·sigma. Φ is log-concave, so Φ(-R-d)/Φ(-d-t) <= Φ(-R)/Φ(-t), and what is
  left out is at most e·k·Φ(-R): R = REACH + log(k)/REACH leaves out e·Φ(-REACH).
- On the left, j has at most Pr[all noisy counts < x] = ∏ Φ(z_i). The first node is where that is Φ(-REACH)·Φ(-d-t)/e for
  the smallest count, so Φ(-REACH) of any P_j is left out. The log of the integrand is concave, and its mode lies right
  of (n_j + n_max)/2, since -φ/Φ(z) <= z. A first node left of all modes makes nodes left out weigh less than the
  integral. As the second derivative is <= -1, at most Φ(-REACH)·√k lies REACH left of the middle: no node is needed there.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import erfcx, log_ndtr, ndtri

from pate.arrays import FloatArray, IntArray
from pate.privacy.exact.rows import Group
from pate.privacy.exact.samples import Samples

TRAPEZOID_ERROR = 1e-14
REACH = 8.0
"""Φ(-8) = 6e-16."""
_LANES = 8
"""Nodes come in multiples of this, which fills the registers of vector units."""

_FINENESS = 16
"""Units in a step at least, so that little of the widest step is lost by rounding it down to whole units."""

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
    """(units per vote, units per step): the widest step that TRAPEZOID_ERROR allows, less 1/_FINENESS at most."""
    step = sigma * math.pi * math.sqrt(2 / (n_classes * math.log(2 / TRAPEZOID_ERROR)))
    resolution = math.ceil(_FINENESS / step)
    return resolution, int(step * resolution)


def _reach(n_classes: int, sigma: float) -> tuple[float, float]:
    """How many votes to go left of (n_min + n_max)/2 and right of n_max; 2 votes more, since neighbours' counts differ."""
    return REACH * sigma + 2, (REACH + math.log(n_classes) / REACH) * sigma + 2


def make_grid(n_classes: int, spread: int, sigma: float) -> Grid:
    """The grid for histograms of ``n_classes`` classes whose largest and smallest counts differ by at most ``spread``."""
    resolution, stride = _units(n_classes, sigma)
    left, right = _reach(n_classes, sigma)
    first = math.floor((-spread / 2 - left) * resolution) - stride - resolution
    # A row that starts late, at its middle at the latest, gets as many nodes as any other of its chunk.
    last = math.ceil((1.5 * spread + left + right) * resolution) + (2 + _LANES) * stride + resolution
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


def nodes(grid: Grid, group: Group) -> tuple[IntArray, IntArray]:
    """(int64[row] first node of each row in units, int64[row] number of nodes it needs)."""
    n_classes = int(group.classes[0].sum())
    left, right = _reach(n_classes, grid.sigma)
    top, low = group.values[:, 0], group.values[:, -1]
    middle = (top + low) / 2
    start = np.floor((middle - left) * grid.resolution).astype(np.int64)
    # Neighbours' counts are one vote higher or lower, and their largest difference two more.
    depth = (top - low + 2) / grid.sigma - ndtri(1 / n_classes)
    enough = log_ndtr(-REACH) + log_ndtr(-depth) - 1
    place = start[:, None] - (group.values - 1) * grid.resolution - grid.first
    log_cdf = grid.tables[1]
    # By halves: the last step from there that is still left of everything that counts, and of the middle.
    skipped = np.zeros(len(start), dtype=np.int64)
    half = 1 << int(left * grid.resolution / grid.stride).bit_length() >> 1
    last = ((middle - 1) * grid.resolution - start) // grid.stride
    while half:
        further = skipped + half
        reached = np.minimum(further, last).astype(np.int64) * grid.stride
        below = (group.classes * log_cdf[place + reached[:, None]]).sum(axis=1)
        skipped = np.where((further <= last) & (below <= enough), further, skipped)
        half >>= 1
    start += skipped * grid.stride
    needed = ((top + right) * grid.resolution - start) // grid.stride + 2
    return start, needed.astype(np.int64)


def whole_lanes(needed: IntArray) -> int:
    """The number of nodes for rows that need so many, filling the registers of vector units."""
    return -(-int(needed.max()) // _LANES) * _LANES


def sample(grid: Grid, group: Group) -> Samples:
    """Noise density and distribution of every level of every row at the nodes."""
    start, needed = nodes(grid, group)
    n_nodes = whole_lanes(needed)
    first, phase = np.divmod(start[:, None] - group.values * grid.resolution - grid.first, grid.stride)
    log_weight = np.full((len(start), n_nodes), math.log(grid.stride / (grid.resolution * grid.sigma)))
    tables = phased(grid).transpose(1, 0, 2)
    return Samples(log_weight, *(sliding_window_view(table, n_nodes, axis=1)[phase, first] for table in tables))


def phased(grid: Grid) -> FloatArray:
    """float64[phase, table, node]: the tables in an order in which nodes that follow each other lie side by side."""
    n_tables, n_units = grid.tables.shape
    whole = np.pad(grid.tables, ((0, 0), (0, -n_units % grid.stride)))
    return np.ascontiguousarray(whole.reshape(n_tables, -1, grid.stride).transpose(2, 0, 1))
