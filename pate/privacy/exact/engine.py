"""From distinct histograms to their exact costs, in chunks of bounded memory."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache
from types import ModuleType

import numpy as np

from pate.arrays import FloatArray, IntArray
from pate.privacy.exact import gaussian, laplace
from pate.privacy.exact.divergence import EXPONENT_LIMIT, largest_divergence
from pate.privacy.exact.mechanism import NoisyMax, ThresholdTest, threshold_log_probs
from pate.privacy.exact.rows import Group, distinct_rows, merged
from pate.privacy.exact.samples import Samples, all_moves, class_log_probs
from pate.privacy.outcomes import LOG_PROB_ERROR, numeric_margin

_CHUNK = 1 << 21
"""Numbers in the largest array of a chunk, about."""

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
        for chunk, samples in _sampled(mechanism, group, cube=False):
            by_level = class_log_probs(samples, chunk.classes)
            log_probs[chunk.position] = np.repeat(by_level.ravel(), chunk.classes.ravel()).reshape(len(by_level), -1)
    return log_probs


Part = tuple[Group, FloatArray, FloatArray]
"""A chunk, its float64[direction, row, source, order] and the float64[row] largest |log-probability|."""


def _vectorised(mechanism: NoisyMax, group: Group, orders: FloatArray, sources: int) -> Iterator[Part]:
    for chunk, samples in _sampled(mechanism, group, cube=True):
        moves = all_moves(samples, chunk.values, chunk.classes, mechanism.confident)
        n, levels = chunk.values.shape
        shape = (n * sources, levels * levels // sources, -1)
        log_p, log_ratio = moves.log_p.reshape(shape), moves.log_ratio.reshape(shape)
        valid = moves.valid.reshape(shape[:2])
        worst = largest_divergence(
            np.concatenate([log_p, log_p - log_ratio]),
            np.concatenate([log_ratio, -log_ratio]),
            np.concatenate([valid, valid]),
            orders,
        )
        yield chunk, worst.reshape(2, n, sources, -1), moves.magnitude


def _compiled(use: ModuleType, mechanism: NoisyMax, group: Group, orders: FloatArray, sources: int) -> Iterator[Part]:
    n_classes = int(group.classes[0].sum())
    grid = gaussian.make_grid(n_classes, _spread(group), mechanism.scale)
    largest = int(group.values[:, 0].max())
    test = np.zeros((2, 0))
    if mechanism.confident is not None:
        test = np.stack(threshold_log_probs(mechanism.confident, np.arange(largest + 2)))
    size = max(1, 8 * _CHUNK // (2 * sources * orders.size))
    for chunk in _chunks(group, size):
        start, n_nodes = gaussian.nodes(grid, n_classes, chunk.values)
        worst, magnitude = use.gaussian_costs(grid, start, n_nodes, chunk, test, orders, sources)
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
        log_p, log_ratio = np.broadcast_to(before, after.shape), before - after
        worst = np.zeros((2, 1, sources, orders.size))
        for i in range(sources):
            own = source == i if sources > 1 else np.ones(source.size, dtype=np.bool_)
            for direction, (p, ratio) in enumerate(((log_p[own], log_ratio[own]), (after[own], -log_ratio[own]))):
                worst[direction, 0, i] = largest_divergence(p[None], ratio[None], np.ones((1, len(p)), np.bool_), orders)
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


def _chunks(group: Group, size: int) -> Iterator[Group]:
    for start in range(0, len(group.position), size):
        yield Group(*(field[start : start + size] for field in group))


def _sampled(mechanism: NoisyMax, group: Group, *, cube: bool) -> Iterator[tuple[Group, Samples]]:
    """Chunks of a group with their quadrature nodes. ``cube``: the caller makes arrays of [level, level, node]."""
    n_classes, levels = int(group.classes[0].sum()), group.values.shape[1]
    cells = levels * (levels + 3) if cube else levels
    if mechanism.noise == "laplace":
        for chunk in _chunks(group, max(1, _CHUNK // (cells * (100 + 36 * levels)))):
            yield chunk, laplace.sample(mechanism.scale, chunk.values, chunk.classes)
        return
    grid = gaussian.make_grid(n_classes, _spread(group), mechanism.scale)
    n_nodes = gaussian.nodes(grid, n_classes, group.values)[1]
    for chunk in _chunks(group, max(1, _CHUNK // (cells * max(n_nodes, levels)))):
        yield chunk, gaussian.sample(grid, n_classes, chunk.values)
