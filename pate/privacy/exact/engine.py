"""From distinct histograms to their exact costs, in chunks of bounded memory."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from types import ModuleType

import numpy as np

from pate.arrays import FloatArray, IntArray
from pate.privacy.exact import gaussian, laplace
from pate.privacy.exact.divergence import EXPONENT_LIMIT, largest_divergence, psi
from pate.privacy.exact.mechanism import NoisyMax, ThresholdTest, threshold_log_probs
from pate.privacy.exact.rows import Group, distinct_rows, merged
from pate.privacy.exact.samples import Samples, all_moves, class_log_probs
from pate.privacy.exact.threads import in_threads, n_threads
from pate.privacy.outcomes import LOG_PROB_ERROR, numeric_margin

_CHUNK = 1 << 20
"""Numbers in the largest array of a chunk, about: less makes more calls, more makes the system clear more memory."""

WORTH_COMPILING = 20_000
"""Counts from which the compiled path pays: loading it takes about a second, and the first time many."""


@cache
def kernel() -> ModuleType | None:
    """The compiled path, where numba is installed."""
    try:
        return importlib.import_module("pate.privacy.exact.compiled")
    except ImportError:
        return None


def distinct_costs(
    mechanism: NoisyMax,
    rows: IntArray,
    orders: FloatArray,
    *,
    by_source: bool = False,
    margin: bool = True,
    compiled: bool | None = None,
) -> FloatArray:
    """float64[direction, row, source, order]: the worst divergence, forward and reverse, infinite where it is unknown.

    rows: int64[row, class], sorted, largest first. Without ``by_source`` the source axis has length 1 and the maximum is over
    all moves. With it, place i is the maximum over moves away from a class with the row's i-th distinct count.
    ``compiled``: None takes the compiled path where there is one and enough to do. ``margin=False`` is for tests of the
    bare value.
    """
    if compiled is None:
        compiled = len(rows) * rows.shape[1] >= WORTH_COMPILING
    use = kernel() if compiled else None
    costs = np.zeros((2, len(rows), rows.shape[1] if by_source else 1, orders.size))
    for group in _split_wide(mechanism, merged(rows)):
        sources = group.values.shape[1] if by_source else 1
        if _is_wide(mechanism, group):
            parts = _wide(mechanism, group, orders, sources)
        elif use is not None and _fits_kernel(mechanism, group):
            parts = _compiled(use, mechanism, group, orders, sources)
        else:
            parts = _vectorised(mechanism, group, orders, sources)
        for chunk, worst, magnitude in parts:
            if margin:
                # Logs hold 16 digits, so their absolute error grows with the largest of them.
                worst += numeric_margin(orders, LOG_PROB_ERROR * np.maximum(1.0, magnitude / 1000))[:, None, :]
            costs[:, chunk.position, :sources] = np.where(np.isfinite(worst), worst, np.inf)
    return costs


def outcome_log_probs(mechanism: NoisyMax, counts: IntArray) -> FloatArray:
    """float64[query, outcome]: log-probability of each class, then of abstention if there is a threshold test."""
    order = np.argsort(-counts, axis=1, kind="stable")
    rows, inverse = distinct_rows(np.take_along_axis(counts, order, axis=1))
    log_probs = np.empty(counts.shape)
    np.put_along_axis(log_probs, order, _sorted_log_probs(mechanism, rows)[inverse], axis=1)
    if mechanism.confident is None:
        return log_probs
    answer, abstain = threshold_log_probs(mechanism.confident, counts.max(axis=1))
    return np.column_stack([log_probs + answer[:, None], abstain])


def _sorted_log_probs(mechanism: NoisyMax, rows: IntArray) -> FloatArray:
    """float64[row, class]: log-probability of each class of sorted rows, the threshold test left out."""
    log_probs = np.empty(rows.shape)
    for group in merged(rows):
        chunks, sample = _sampling(mechanism, group, moves=False)
        for chunk in chunks:
            by_level = class_log_probs(sample(chunk), chunk.classes)
            log_probs[chunk.position] = np.repeat(by_level.ravel(), chunk.classes.ravel()).reshape(len(by_level), -1)
    return log_probs


Part = tuple[Group, FloatArray, FloatArray]
"""A chunk, its float64[direction, row, source, order] and the float64[row] largest |log-probability|."""


def _vectorised(mechanism: NoisyMax, group: Group, orders: FloatArray, sources: int) -> Iterator[Part]:
    def cost(chunk: Group) -> Part:
        moves = all_moves(sample(chunk), chunk.values, chunk.classes, mechanism.confident)
        n, levels = chunk.values.shape
        worst = largest_divergence(moves if sources == 1 else moves.by_source(levels), orders)
        return chunk, worst.reshape(2, n, sources, -1), moves.magnitude

    chunks, sample = _sampling(mechanism, group, moves=True)
    return in_threads(cost, chunks)


def _compiled(use: ModuleType, mechanism: NoisyMax, group: Group, orders: FloatArray, sources: int) -> Iterator[Part]:
    n_classes = int(group.classes[0].sum())
    grid = gaussian.make_grid(n_classes, _spread(group), mechanism.scale)
    largest = int(group.values[:, 0].max())
    test = np.zeros((2, 0))
    if mechanism.confident is not None:
        test = np.stack(threshold_log_probs(mechanism.confident, np.arange(largest + 2)))
    size = max(1, 8 * _CHUNK // (2 * sources * orders.size))
    for chunk in _chunks(group, size):
        start, needed = gaussian.nodes(grid, chunk)
        worst, magnitude = use.gaussian_costs(grid, start, needed, chunk, test, orders, sources)
        if mechanism.confident is not None:
            magnitude = np.maximum(magnitude, np.abs(test).max())
        yield chunk, worst, magnitude


def _wide(mechanism: NoisyMax, group: Group, orders: FloatArray, sources: int) -> Iterator[Part]:
    """One histogram at a time, each neighbour integrated by itself in log space: any spread, but slow."""
    for chunk in _chunks(group, 1):
        values, classes = chunk.values[0], chunk.classes[0]
        row = np.repeat(values, classes)
        ends = np.cumsum(classes)
        source, target = np.nonzero((values >= 1)[:, None] & ((classes >= 2)[:, None] | ~np.eye(values.size, dtype=np.bool_)))
        neighbours = np.repeat(row[None, :], source.size, axis=0)
        each = np.arange(source.size)
        neighbours[each, ends[source] - 1] -= 1
        neighbours[each, ends[target] - classes[target]] += 1  # another class of the level, if it is the same
        before, after = outcome_log_probs(mechanism, row[None, :]), outcome_log_probs(mechanism, neighbours)
        log_p, log_q = np.broadcast_to(before, after.shape).T, after.T
        s = orders - 1
        both = np.stack([psi(log_p, log_p - log_q, s), psi(log_q, log_q - log_p, s)]) / s[:, None]
        worst = np.zeros((2, 1, sources, orders.size))
        for i in range(sources):
            own = source == i if sources > 1 else np.ones(source.size, dtype=np.bool_)
            worst[:, 0, i] = both[:, :, own].max(axis=2, initial=0.0)
        yield chunk, worst, np.maximum(np.abs(before).max(), np.abs(after).max())[None]


def _is_wide(mechanism: NoisyMax, group: Group) -> bool:
    return mechanism.noise == "gaussian" and _spread(group) > gaussian.widest_spread(mechanism.scale)


def _split_wide(mechanism: NoisyMax, groups: Iterator[Group]) -> Iterator[Group]:
    """Groups in which either every histogram is too wide for ratios of probabilities to fit in a double, or none is."""
    for group in groups:
        wide = np.zeros(len(group.position), dtype=np.bool_)
        if _is_wide(mechanism, group):
            wide = group.values[:, 0] - group.values[:, -1] > gaussian.widest_spread(mechanism.scale)
        for chosen in (wide, ~wide):
            if chosen.any():
                yield Group(*(field[chosen] for field in group))


def _fits_kernel(mechanism: NoisyMax, group: Group) -> bool:
    """The kernel takes Gaussian noise, and threshold tests whose outcomes change by a factor that fits in a double."""
    if mechanism.noise != "gaussian":
        return False
    return mechanism.confident is None or _steepest(mechanism.confident, int(group.values[:, 0].max())) < EXPONENT_LIMIT


def _steepest(test: ThresholdTest, largest: int) -> float:
    """The largest change of a log-probability of the test's outcomes by one vote."""
    return max(float(np.abs(np.diff(side)).max()) for side in threshold_log_probs(test, np.arange(largest + 2)))


def _spread(group: Group) -> int:
    return int((group.values[:, 0] - group.values[:, -1]).max())


def _chunks(group: Group, size: int) -> list[Group]:
    """Equal parts of at most ``size`` rows, where there are several as many for each thread."""
    n_rows = len(group.position)
    number = -(-n_rows // size)
    if number > 1:
        number = -(-number // n_threads()) * n_threads()
    edges = np.linspace(0, n_rows, number + 1).astype(np.int64)
    return [Group(*(field[start:end] for field in group)) for start, end in pairwise(edges) if start < end]


def _sampling(mechanism: NoisyMax, group: Group, *, moves: bool) -> tuple[list[Group], Callable[[Group], Samples]]:
    """(chunks of a group, what puts a chunk on quadrature nodes). ``moves``: the caller makes arrays of [outcome, from, to]."""
    levels = group.values.shape[1]
    cells = levels * levels * (levels + 3) if moves else 0
    if mechanism.noise == "laplace":
        chunks = _chunks(group, max(1, _CHUNK // max(cells, levels * (100 + 36 * levels))))
        return chunks, lambda chunk: laplace.sample(mechanism.scale, chunk.values, chunk.classes)
    grid = gaussian.make_grid(int(group.classes[0].sum()), _spread(group), mechanism.scale)
    n_nodes = gaussian.whole_lanes(gaussian.nodes(grid, group)[1])
    return _chunks(group, max(1, _CHUNK // max(cells, levels * n_nodes))), lambda chunk: gaussian.sample(grid, chunk)
