"""Does any teacher's model depend on who shares its batch? A check of the rule on which the privacy proof stands."""

from __future__ import annotations

import copyreg
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.errors import ParameterError, TeacherError
from pate.teachers.family import Model, Part, TeacherFamily

_PROTOCOL = 4


def check_bit_independence(
    family: TeacherFamily[Model], parts: Sequence[Part], n_classes: int, queries: NDArray[Any] | None = None
) -> None:
    """Raise TeacherError if a teacher's model or votes change by a bit when the other teachers of its batch do.

    It trains ``parts`` alone, together, in reverse order, without half of them, and beside others whose records, labels and
    numbers of records were changed, and compares every bit of the models; then the votes on ``queries`` (default: the
    first part's records). Works for any family, on the device it is set to. Use about ``family.batch_size`` parts of unequal
    size; it costs about nine times their training. Passing is evidence for this machine and these shapes, not a proof.
    """
    if len(parts) < 2:
        raise ParameterError(f"Independence of other teachers needs at least 2 parts to check, got {len(parts)}.")
    alone = [family.fit(part, n_classes) for part in parts]
    expected = [model_digest(model) for model in alone]

    def compare(together: Sequence[Part], kept: Sequence[int], change: str) -> None:
        models = family.fit_batch(together, n_classes)
        for place in kept:
            if model_digest(models[place]) != expected[parts.index(together[place])]:
                raise _dependence(family, f"the model of teacher {together[place].teacher}", change)

    everyone = range(len(parts))
    compare(parts, everyone, "it was trained together with others and not alone")
    compare(parts[::-1], everyone, "the order of the batch was reversed")
    for first in (0, 1):
        compare(parts[first::2], range(len(parts[first::2])), "half of the batch was left out")
        for alter, change in _CHANGES:
            mixed = [part if place % 2 == first else alter(part, n_classes) for place, part in enumerate(parts)]
            compare(mixed, range(first, len(parts), 2), f"the other teachers' records were {change}")
    _compare_votes(family, alone, parts, n_classes, parts[0].x if queries is None else queries)


def model_digest(model: Any) -> str:
    """A digest of every number, string and class that a model is made of, through whatever holds them.

    Arrays and tensors count by their bits, mappings and sets in any order, other objects by what pickle would store of them,
    but not by who shares what with whom.
    """
    digest = hashlib.sha256()
    _walk(model, digest.update, frozenset())
    return digest.hexdigest()


def _compare_votes(
    family: TeacherFamily[Model], models: Sequence[Model], parts: Sequence[Part], n_classes: int, queries: NDArray[Any]
) -> None:
    alone = np.stack([family.predict(model, queries, n_classes) for model in models])
    together: IntArray = family.predict_batch(models, queries, n_classes)
    backwards: IntArray = family.predict_batch(models[::-1], queries, n_classes)[::-1]
    for votes, change in ((together, "it voted together with others"), (backwards, "the order of the batch was reversed")):
        wrong = np.flatnonzero((votes != alone).any(axis=1))
        if wrong.size:
            raise _dependence(family, f"a vote of teacher {parts[wrong[0]].teacher}", change)


def _dependence(family: TeacherFamily[Any], what: str, change: str) -> TeacherError:
    return TeacherError(
        f"{type(family).__name__}: {what} changed when {change}. Votes must depend on a teacher's own records bit by bit, or "
        "the privacy proof does not hold. Train one teacher at a time (strategy='loop' for torch teachers)."
    )


def _other_values(part: Part, n_classes: int) -> Part:
    """Fewer records, with other values of the same type and range, and other labels."""
    half = slice(0, max(1, len(part.x) // 2))
    x = part.x[half]
    return replace(part, x=(x.max() - (x - x.min())).astype(x.dtype), y=(part.y[half] + 1) % n_classes)


def _more_records(part: Part, n_classes: int) -> Part:
    return replace(part, x=np.concatenate([part.x, part.x[::-1], part.x]), y=np.concatenate([part.y, part.y[::-1], part.y]))


_CHANGES: tuple[tuple[Callable[[Part, int], Part], str], ...] = (
    (_other_values, "replaced by fewer and other ones"),
    (_more_records, "trebled"),
)


def _walk(value: Any, update: Callable[[bytes], object], above: frozenset[int]) -> None:
    """Feed what ``value`` is made of to ``update``; ``above``: the objects that hold it."""

    def count(piece: bytes) -> None:
        update(len(piece).to_bytes(8, "big") + piece)

    if id(value) in above:  # its contents are being counted already
        count(b"a cycle")
        return

    def contents(items: Iterable[Any]) -> None:
        for item in items:
            _walk(item, update, above | {id(value)})

    count(type(value).__qualname__.encode())
    if isinstance(value, type | FunctionType | BuiltinFunctionType | ModuleType):
        count(f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', value.__name__)}".encode())
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
        count(repr(value).encode())
    elif hasattr(value, "detach"):  # a torch tensor
        contents([value.detach().cpu().numpy()])
    elif isinstance(value, np.ndarray | np.generic):
        _walk_array(np.asarray(value), count, contents)
    elif isinstance(value, Mapping):
        contents(
            pair for _, pair in sorted(((model_digest(key), [key, item]) for key, item in value.items()), key=itemgetter(0))
        )
    elif isinstance(value, set | frozenset):
        contents(sorted(model_digest(item) for item in value))
    elif isinstance(value, list | tuple):
        contents(value)
    else:
        reducer = copyreg.dispatch_table.get(type(value))
        reduced = reducer(value) if reducer else value.__reduce_ex__(_PROTOCOL)
        # What pickle would store; it may end with iterators over list items and dict items.
        contents(
            [reduced] if isinstance(reduced, str) else [list(each) if isinstance(each, Iterator) else each for each in reduced]
        )


def _walk_array(array: NDArray[Any], count: Callable[[bytes], None], contents: Callable[[Iterable[Any]], None]) -> None:
    count(f"{array.dtype}{array.shape}".encode())
    if array.dtype.names is not None:  # field by field: the padding between fields is no part of the model
        contents(np.ascontiguousarray(array[name]) for name in array.dtype.names)
    elif array.dtype == object:
        contents(array.ravel().tolist())
    else:
        count(np.ascontiguousarray(array).tobytes())
