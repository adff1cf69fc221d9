"""Which public records to ask about: a choice made on public data, so it costs no privacy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate.arrays import FloatArray, IntArray
from pate.digests import row_digests
from pate.errors import StudentError
from pate.features.base import Features
from pate.features.cache import fit_cached
from pate.public import PublicData, numeric_records
from pate.references import did_you_mean, load_reference
from pate.student.base import Student
from pate.student.records import float_records
from pate.student.spread import clusters, farthest_first
from pate.validation import whole

_POOL = 10  # uncertain records to choose from, for each that is chosen: Zhdanov's beta
_OUTER_SHARE = 0.2  # of the records, from which robust-k-centre draws the next one


@dataclass(frozen=True, eq=False)
class _Public:
    """What a strategy may look at.

    records: the public records, [record, ...], and their features as points, float[record, feature].
    fresh: int64[candidate], rows that may be chosen, ascending; no two of them, and none of them and of ``asked``, are alike.
    times: int64[candidate], how many rows that may be chosen are like it.
    """

    records: NDArray[Any]
    points: NDArray[np.floating]
    fresh: IntArray
    times: IntArray
    asked: IntArray
    student: Student | None
    random: np.random.Generator


_Strategy = Callable[[_Public, int], IntArray]
"""n of ``fresh``, in order of choice; n is less than there are."""


def select_queries(
    x_public: ArrayLike,
    n: int,
    strategy: str = "medoids",
    *,
    features: Features | ArrayLike | None = None,
    student: Student | None = None,
    asked: ArrayLike | None = None,
    seed: int = 0,
) -> IntArray:
    """The rows of ``x_public`` [record, ...] to ask about next: int64[n], distinct, in order of choice.

    strategy:
        ``medoids``: k-means; of each cluster the record nearest to its centre, large clusters first. Centres at ``asked``
            stay. The best of these in most cases: on MNIST, the nearest of 50 medoids of self-supervised features has the
            right class for 96% of unseen pictures; of 50 random records for 89%, by ``k-centre`` 88%, ``robust-k-centre`` 93%.
        ``random``: each record as likely as any other.
        ``k-centre``: always the record farthest from all chosen or asked (Gonzalez 1985), starting near the mean. No record
            is then farther than twice the least possible radius from a chosen one; outliers are chosen early.
        ``robust-k-centre``: not the farthest, but a random one of the farthest fifth (Ding, Yu and Wang 2019).
        ``uncertainty``: of the 10 n records with the least margin between the ``student``'s two likeliest classes, medoids
            of a k-means weighted by 1 - margin (Zhdanov 2019), so that a round is not n times the same picture; the least
            margin first. What a student doubts teachers often doubt too: expect more abstentions and wrong labels.
        ``boundary``: the n records with the least margin, however alike. For students with few parameters and noisy answers,
            which many similar questions average out: tables with linear students.
        "package.module:function": your own, called as ``function(x_public, n, features=, student=, asked=, seed=)`` with
            features float[record, feature] and asked int64[row]; it must return what this function does.
    features: in which space records are near or far: a Features (fitted here on ``x_public`` if it is not yet), an array
        [record, feature], or None, the records themselves, flattened.
    student: a fitted one, for ``uncertainty`` and ``boundary``.
    asked: rows asked in earlier rounds. They are never chosen again, and ``medoids`` and the k-centres look for what they do
        not represent. Records equal to a chosen or asked one come last, when nothing else is left.
    seed: the same seed chooses the same rows. ``k-centre`` draws nothing.

    Privacy: fix all queries of a round before asking it. A student makes a round depend on the noisy answers before it.
    That is post-processing, and sound as long as costs are added up adaptively: at the data-independent cost of each query,
    or by a privacy filter. All else depends on public data alone.

    >>> x = np.repeat([[0.0], [5.0], [9.0]], [6, 3, 1], axis=0) + np.linspace(0, 0.1, 10)[:, None]
    >>> first = select_queries(x, 2)
    >>> x[first].round().ravel()
    array([0., 5.])
    >>> x[select_queries(x, 1, asked=first)].round().ravel()  # the next round, after the answers to the first
    array([9.])
    """
    x = numeric_records(x_public, "select_queries, x_public")
    whole(n, "select_queries n", 1)
    whole(seed, "select_queries seed", 0)
    choose = STRATEGIES.get(strategy)
    if choose is None and ":" not in strategy:
        known = f"It must be {', '.join(STRATEGIES)}, or 'package.module:function'."
        raise StudentError(f"There is no query strategy {strategy!r}{did_you_mean(strategy, STRATEGIES)} {known}")
    before = _checked_asked(asked, len(x))
    left = np.setdiff1d(np.arange(len(x)), before)
    if n > len(left):
        raise StudentError(
            f"select_queries: n must be at most {len(left)}, the public records not asked yet ({len(x)} in all), got {n}."
        )
    space = _space(x, features)
    if choose is None:
        found = load_reference(strategy)(x, n, features=space, student=student, asked=before, seed=seed)
        return _checked_choice(found, n, left, strategy)
    points = _centred(space)
    random = np.random.default_rng(seed)
    public = _Public(x, points, *_unlike(points, left, before), before, student, random)
    if n < len(public.fresh):
        return choose(public, n)
    if strategy in NEED_STUDENT:
        _margins(public)  # no choice to make, but the same errors
    rest = random.permutation(np.setdiff1d(left, public.fresh))
    return np.concatenate([public.fresh, rest[: n - len(public.fresh)]])


def _random(public: _Public, n: int) -> IntArray:
    return public.random.choice(public.fresh, n, replace=False)


def _medoids(public: _Public, n: int) -> IntArray:
    points = public.points[public.fresh]
    owner, medoid = clusters(points, public.points[public.asked], n, public.times, public.random)
    sizes = np.bincount(owner, weights=public.times, minlength=n)
    return _filled(public, public.fresh[medoid[np.argsort(-sizes[owner[medoid]], kind="stable")]], n)


def _k_centre(public: _Public, n: int) -> IntArray:
    points = public.points[public.fresh]
    return public.fresh[farthest_first(points, public.points[public.asked], n)]


def _robust_k_centre(public: _Public, n: int) -> IntArray:
    points = public.points[public.fresh]
    outer = max(1, int(_OUTER_SHARE * len(points)))

    def pick(distances: FloatArray) -> int:
        farthest = np.argpartition(distances, -outer)[-outer:]
        return int(public.random.choice(farthest[distances[farthest] > 0]))

    return public.fresh[farthest_first(points, public.points[public.asked], n, pick)]


def _uncertainty(public: _Public, n: int) -> IntArray:
    margins = _margins(public)
    shuffled = public.random.permutation(len(margins))  # where margins are equal, the first records are no better
    pool = shuffled[np.argsort(margins[shuffled], kind="stable")[: _POOL * n]]
    doubts = np.maximum(1 - margins[pool], np.finfo(np.float32).eps)
    points = public.points[public.fresh[pool]]
    _, medoid = clusters(points, points[:0], n, doubts * public.times[pool], public.random)
    chosen = pool[medoid]
    return _filled(public, public.fresh[chosen[np.argsort(margins[chosen], kind="stable")]], n)


def _boundary(public: _Public, n: int) -> IntArray:
    margins = _margins(public)
    shuffled = public.random.permutation(len(margins))  # where margins are equal, the first records are no better
    return public.fresh[shuffled[np.argsort(margins[shuffled], kind="stable")[:n]]]


STRATEGIES: Mapping[str, _Strategy] = MappingProxyType(
    {
        "medoids": _medoids,
        "random": _random,
        "k-centre": _k_centre,
        "robust-k-centre": _robust_k_centre,
        "uncertainty": _uncertainty,
        "boundary": _boundary,
    }
)
NEED_STUDENT = frozenset({"uncertainty", "boundary"})


def _filled(public: _Public, chosen: IntArray, n: int) -> IntArray:
    """``chosen``, and if a cluster was lost, what lies farthest from it and from all asked."""
    if len(chosen) == n:
        return chosen
    left = np.setdiff1d(public.fresh, chosen)
    others = public.points[np.concatenate([public.asked, chosen])]
    return np.concatenate([chosen, left[farthest_first(public.points[left], others, n - len(chosen))]])


def _margins(public: _Public) -> FloatArray:
    """How much likelier the student finds the best class than the second, float64[candidate]."""
    if public.student is None:
        raise StudentError(
            "strategy 'uncertainty' or 'boundary' needs student=, a fitted student. For the first round take 'medoids'."
        )
    likely = np.sort(public.student.predict_proba(public.records[public.fresh]), axis=1)
    margins: FloatArray = likely[:, -1] - likely[:, -2]
    return margins


def _space(x: NDArray[Any], features: Features | ArrayLike | None) -> NDArray[Any]:
    """Features of each record, [record, feature], checked."""
    if features is None:
        return x.reshape(len(x), -1)
    if isinstance(features, Features):
        records = float_records(x)
        fitted = features if features.fitted_on is not None else fit_cached(features, PublicData(records))
        return fitted.transform(records).reshape(len(x), -1)
    given = numeric_records(features, "select_queries, features")
    if len(given) != len(x):
        raise StudentError(f"features must have a row for each of {len(x)} public records, got {len(given)}.")
    return given.reshape(len(x), -1)


def _centred(space: NDArray[Any]) -> NDArray[np.floating]:
    """With mean 0 and no |value| above 1: who is near whom stays, and squares neither overflow nor vanish."""
    with np.errstate(over="ignore", invalid="ignore"):  # found below
        points = space - space.mean(axis=0, dtype=np.float64)
        largest = np.abs(points).max()
    if not np.isfinite(largest):
        raise StudentError("select_queries: the features are too large to compute distances. Scale them, e.g. Standardise().")
    kind = np.result_type(space.dtype, np.float32)  # float64 only where the features need it
    scaled: NDArray[np.floating] = (points / (largest or 1.0)).astype(kind)
    return scaled


def _unlike(points: NDArray[np.floating], rows: IntArray, others: IntArray) -> tuple[IntArray, IntArray]:
    """Of ``rows`` the first of each content, if no row of ``others`` has it, ascending; and how often it is there."""
    digests = row_digests(np.concatenate([points[others], points[rows]]), dtype=points.dtype)
    _, first, times = np.unique(digests, return_index=True, return_counts=True)
    new = np.flatnonzero(first >= len(others))
    new = new[np.argsort(first[new])]
    return rows[first[new] - len(others)], times[new]


def _checked_asked(asked: ArrayLike | None, records: int) -> IntArray:
    """Distinct rows, ascending."""
    rows = np.asarray([] if asked is None else asked)
    if rows.size and (rows.ndim != 1 or rows.dtype.kind not in "iu"):
        raise StudentError(f"asked must be row numbers, int[row], got {rows.dtype} of shape {rows.shape}.")
    if rows.size and not (rows.min() >= 0 and rows.max() < records):
        raise StudentError(f"asked must be rows 0..{records - 1} of the public records, got {rows.min()} to {rows.max()}.")
    return np.unique(rows).astype(np.int64)


def _checked_choice(found: object, n: int, left: IntArray, reference: str) -> IntArray:
    """What a user's function chose, if it keeps the contract."""
    rows = np.asarray(found)
    if rows.shape != (n,) or rows.dtype.kind not in "iu":
        raise StudentError(f"{reference} must return {n} row numbers, int[{n}], got {rows.dtype} of shape {rows.shape}.")
    if len(np.unique(rows)) < n or not np.isin(rows, left).all():
        raise StudentError(f"{reference} must return distinct rows of the public records that were not asked before.")
    return cast("IntArray", rows.astype(np.int64))
