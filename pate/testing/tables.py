"""Vote counts to test with: made up, public, and placed where an aggregator is most likely to be wrong."""

from __future__ import annotations

import numpy as np

from pate.arrays import IntArray

_MOST_CLASSES_MOVED = 12


def battery(n_teachers: int, n_classes: int, levels: list[int], seed: int = 0) -> IntArray:
    """int64[table, class], no two rows alike: unanimity, ties, leads of every size, tops at ``levels``, random ones.

    levels: counts of the top class at which something may happen, such as a threshold.
    """
    rows = [tied(n_teachers, n_classes, leaders) for leaders in {2, 3, 4, 5, 7, 10, n_classes} if leaders <= n_classes]
    for lead in _leads(n_teachers):
        top = (n_teachers + lead + 1) // 2
        rows.append(_fill([top, n_teachers - top], n_classes))
        rows.append(_two_leaders(n_teachers, n_classes, lead))
        rows.append(topped(n_teachers, n_classes, n_teachers - lead))
    for level in levels:
        rows += [topped(n_teachers, n_classes, top) for top in (level - 1, level, level + 1) if 0 <= top <= n_teachers]
    generator = np.random.default_rng(seed)
    for concentration in (0.3, 1.0, 5.0):
        shares = generator.dirichlet(np.full(n_classes, concentration), 4)
        rows += [generator.multinomial(n_teachers, share) for share in shares]
    return np.unique(np.array(rows, dtype=np.int64), axis=0)


def partial_battery(n_teachers: int, n_classes: int, levels: list[int]) -> IntArray:
    """As :func:`battery`, for partial votes: every total from nobody to everybody may occur."""
    totals = sorted({0, 1, 2, 3, n_teachers // 4, n_teachers // 2, n_teachers})
    rows = [tied(total, n_classes, leaders) for total in totals for leaders in {2, n_classes}]
    rows += [_fill([top, max(top - lead, 0)], n_classes) for top in totals for lead in (0, 1, 3, 10)]
    rows += [_fill([top, 0], n_classes) for level in levels for top in (level - 1, level, level + 1) if 0 <= top <= n_teachers]
    table = np.array(rows, dtype=np.int64)
    return np.unique(table[table.sum(axis=1) <= n_teachers], axis=0)


def ladder(n_teachers: int, n_classes: int) -> IntArray:
    """int64[level, class]: the top class gains one vote a row, from an even split to unanimity; neighbours are adjacent."""
    lowest = -(-n_teachers // n_classes)
    return np.array([topped(n_teachers, n_classes, top) for top in range(lowest, n_teachers + 1)], dtype=np.int64)


def tied(total: int, n_classes: int, leaders: int) -> IntArray:
    """The votes split as evenly as can be over the first ``leaders`` classes."""
    return _fill([total // leaders + (i < total % leaders) for i in range(leaders)], n_classes)


def topped(total: int, n_classes: int, top: int) -> IntArray:
    """``top`` votes for class 0, the rest split evenly over the others."""
    return np.concatenate([[top], tied(total - top, n_classes - 1, n_classes - 1)]).astype(np.int64)


def moved_votes(counts: IntArray) -> IntArray:
    """int64[neighbour, class]: one vote moved from a class that has one to another.

    All of them up to twelve classes; above, all moves between the seven largest and five others.
    """
    classes = _classes_to_move(counts)
    rows = [(a, b) for a in classes for b in classes if a != b and counts[a] > 0]
    result = np.tile(counts, (len(rows), 1))
    for row, (a, b) in zip(result, rows, strict=True):
        row[a] -= 1
        row[b] += 1
    return result


def changed_counts(counts: IntArray, n_teachers: int) -> IntArray:
    """int64[neighbour, class]: one count up or down by one, as partial votes allow."""
    classes = _classes_to_move(counts)
    up = [(c, 1) for c in classes if counts.sum() < n_teachers]
    down = [(c, -1) for c in classes if counts[c] > 0]
    result = np.tile(counts, (len(up) + len(down), 1))
    for row, (c, change) in zip(result, up + down, strict=True):
        row[c] += change
    return result


def _classes_to_move(counts: IntArray) -> list[int]:
    order = np.argsort(-counts, kind="stable")
    if order.size > _MOST_CLASSES_MOVED:
        order = np.concatenate([order[:7], order[-5:]])
    return [int(c) for c in order]


def _leads(n_teachers: int) -> list[int]:
    """0, 1, 2, 3, 5, 7, 10 … up to all teachers, each about 1.4 times the one before."""
    steps = np.unique(np.round(1.42 ** np.arange(0, 2 + np.log(n_teachers) / np.log(1.42))).astype(int))
    return [0, *(int(step) for step in steps if step < n_teachers), n_teachers]


def _two_leaders(n_teachers: int, n_classes: int, lead: int) -> IntArray:
    """Two classes with about two thirds of the votes between them, the rest spread."""
    second = max((2 * n_teachers // 3 - lead) // 2, 0)
    top = min(second + lead, n_teachers - second)
    if n_classes == 2:
        return _fill([n_teachers - second, second], n_classes)
    return np.concatenate([[top, second], tied(n_teachers - top - second, n_classes - 2, n_classes - 2)]).astype(np.int64)


def _fill(head: list[int], n_classes: int) -> IntArray:
    row = np.zeros(n_classes, dtype=np.int64)
    row[: len(head)] = head
    return row
