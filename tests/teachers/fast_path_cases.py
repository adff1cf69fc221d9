"""One harness for every fast way to train teachers: it must end where the plain loop ends, one teacher after another.

A fast path is a :class:`FastPath`: a family, its parts, and the plain loop for one part. Add a case to ``CASES``; the test in
test_batched.py runs :func:`check_fast_path` on each. Cases elsewhere (a folder that needs a GPU, say) call it themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate.execution.threads import one_thread
from pate.experiments.bench.plain_teachers import plain_logistic, plain_mlp, plain_votes
from pate.teachers.batched import LogisticTeachers, MLPTeachers
from pate.teachers.family import Part, TeacherFamily

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Plain:
    """What the plain loop gave for one part: its parameters by name, and its votes int64[query]."""

    parameters: Arrays
    votes: NDArray[Any]


@dataclass(frozen=True)
class FastPath:
    """A family that trains fast, and the plain loop it stands for.

    parameters: of a model of the family, under the names that ``plain`` uses. tolerance: the largest difference in a parameter
    array, relative to its largest entry. agreement: the least share of equal votes. bitwise: fit_batch equals fit in every bit.
    """

    name: str
    family: TeacherFamily[Any]
    parts: Sequence[Part]
    n_classes: int
    queries: NDArray[Any]
    plain: Callable[[Part], Plain]
    parameters: Callable[[Any], Arrays]
    tolerance: float
    agreement: float
    bitwise: bool = True


def check_fast_path(case: FastPath) -> None:
    """Raise AssertionError unless the fast path gives the plain loop's parameters and votes, alone and in a batch."""
    with one_thread():
        models = case.family.fit_batch(case.parts, case.n_classes)
        votes = case.family.predict_batch(models, case.queries, case.n_classes)
        for part, model, vote in zip(case.parts, models, votes, strict=True):
            expected = case.plain(part)
            found = case.parameters(model)
            assert found.keys() == expected.parameters.keys()
            for name, array in expected.parameters.items():
                assert found[name].shape == array.shape, name
                apart = np.abs(found[name] - array).max() / np.abs(array).max()
                assert apart <= case.tolerance, f"{case.name}, teacher {part.teacher}: {name} is off by {apart:.2g}"
            agreed = (vote == expected.votes).mean()
            assert agreed >= case.agreement, f"{case.name}, teacher {part.teacher}: {agreed:.4f} of the votes agree"
            if case.bitwise:
                alone = case.parameters(case.family.fit(part, case.n_classes))
                assert all(np.array_equal(alone[name], found[name]) for name in found)
                assert np.array_equal(case.family.predict(model, case.queries, case.n_classes), vote)


def made_up_parts(sizes: Sequence[int], shape: tuple[int, ...], n_classes: int, seed: int = 0) -> list[Part]:
    """Parts of these sizes: classes around random centres, every class in a part that is large enough."""
    centres = np.random.default_rng([seed, 0]).normal(size=(n_classes, *shape))
    parts = []
    for teacher, size in enumerate(sizes):
        rng = np.random.default_rng([seed, 1, teacher])
        y = rng.permutation(np.arange(size) % n_classes)
        x = (0.5 * centres[y] + rng.normal(size=(size, *shape))).astype(np.float32)
        parts.append(Part(teacher, x, y.astype(np.int64), seed=100 + teacher))
    return parts


def _numpy_case(
    name: str, family: LogisticTeachers | MLPTeachers, sizes: Sequence[int], n_features: int, n_classes: int = 5
) -> FastPath:
    queries = made_up_parts([1000], (n_features,), n_classes)[0].x
    names = ("hidden_weights", "hidden_bias", "weights", "bias") if isinstance(family, MLPTeachers) else ("weights", "bias")

    def plain(part: Part) -> Plain:
        if isinstance(family, MLPTeachers):
            model = plain_mlp(family, part, n_classes)
        else:
            model = plain_logistic(family, part, n_classes)
        arrays = [parameter.detach().numpy() for parameter in model.parameters()]
        return Plain(dict(zip(names, arrays, strict=True)), plain_votes([model], queries)[0])

    parts = made_up_parts(sizes, (n_features,), n_classes)
    return FastPath(name, family, parts, n_classes, queries, plain, dict, tolerance=1e-5, agreement=0.998)


FEW, MANY = (50, 33, 64, 7), (130, 97, 200)
"""Numbers of records: below and above the 80 and 20 features of the cases; not all multiples of a mini-batch."""

CASES = [
    _numpy_case("logistic, few records", LogisticTeachers(), FEW, 80),
    _numpy_case("logistic, many records", LogisticTeachers(), MANY, 20),
    _numpy_case("logistic, both kinds", LogisticTeachers(epochs=5), (10, 40, 19, 21), 20),
    _numpy_case("logistic, no momentum", LogisticTeachers(epochs=5, momentum=0.0, weight_decay=0.0), FEW, 80),
    _numpy_case("logistic, odd batch, strong decay", LogisticTeachers(epochs=10, batch=11, weight_decay=5e-4), FEW, 80),
    _numpy_case("mlp, few records", MLPTeachers(epochs=10), FEW, 80),
    _numpy_case("mlp, many records", MLPTeachers(epochs=5), MANY, 20),
    _numpy_case("mlp, odd sizes", MLPTeachers(hidden=13, epochs=5, batch=9, weight_decay=5e-4), (31, 12), 80, n_classes=3),
]
