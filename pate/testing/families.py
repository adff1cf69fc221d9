"""Conformance for anybody's teacher family: ``check_family(MyTeachers(...))``.

The privacy proof counts one vote for each teacher, so what must hold above all is that no teacher's model depends on another
teacher's records, not even in its rounding: a changed record would then move more votes than its own teacher's.
"""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.errors import ParameterError, PateError
from pate.execution.threads import one_thread
from pate.teachers.family import Part, TeacherFamily, check_labels
from pate.teachers.independence import check_bit_independence, model_digest
from pate.teachers.registry import describe, from_description
from pate.testing.report import Check, NamedCheck, Report, Violation, run_checks
from pate.validation import whole

_N_QUERIES = 200


class FamilyCheckFailed(PateError, AssertionError):
    """A teacher family broke its contract. Lists every failed check."""


@dataclass(frozen=True)
class FamilyReport(Report):
    """All checks of one teacher family."""

    family: str
    checks: tuple[Check, ...]

    failure: ClassVar[type[PateError]] = FamilyCheckFailed

    @property
    def facts(self) -> dict[str, str]:
        return {"family": self.family}


def check_family(
    family: TeacherFamily[Any],
    *,
    n_classes: int = 4,
    shape: tuple[int, ...] = (12,),
    seed: int = 0,
    raise_on_failure: bool = True,
) -> FamilyReport:
    """Prove that a teacher family keeps its contract, or list everything that is wrong with it.

    It trains on small made-up parts and compares models and votes bit for bit: the same seed gives the same model; a batch
    gives what one by one gives, whatever the other parts in it hold and however many they are; a part that lacks classes, or
    holds one class or one record, still trains and votes; models survive a file; the family survives pickling and its own
    description; and nothing that was handed in is changed. What passes is right on this machine and for these shapes.

    n_classes, shape: of the made-up records, float32[record, *shape]; use what the family is meant for. seed: of those records.
    Raises :class:`FamilyCheckFailed`, which lists every failed check, unless ``raise_on_failure`` is False.

    >>> from pate.teachers.registry import teacher_family
    >>> check_family(teacher_family("ridge")).passed
    True
    """
    if not isinstance(family, TeacherFamily):
        raise ParameterError(f"check_family needs a TeacherFamily, such as teacher_family('forest'), got {family!r}.")
    whole(n_classes, "n_classes", least=2)
    with one_thread():  # as in a worker
        report = FamilyReport(repr(family), run_checks(_checks(_Subject(family, n_classes, tuple(shape), seed))))
    if raise_on_failure:
        report.raise_if_failed()
    return report


@dataclass(frozen=True)
class _Subject:
    """The family under test, and the made-up data it is tested with."""

    family: TeacherFamily[Any]
    n_classes: int
    shape: tuple[int, ...]
    seed: int

    @cached_property
    def _centres(self) -> NDArray[Any]:
        return np.random.default_rng(self.seed).normal(size=(self.n_classes, *self.shape))

    def part(self, teacher: int, labels: IntArray | list[int]) -> Part:
        """A part with these labels; its records are read-only, as a worker gets them."""
        y = np.array(labels, dtype=np.int64)
        noise = np.random.default_rng([self.seed, teacher]).normal(size=(len(y), *self.shape))
        x = (self._centres[y] + 0.7 * noise).astype(np.float32)
        x.flags.writeable = y.flags.writeable = False
        return Part(teacher, x, y, seed=1000 + teacher)

    @cached_property
    def plain(self) -> list[Part]:
        """Parts of unequal sizes that hold every class."""
        return [self.part(teacher, np.arange(size) % self.n_classes) for teacher, size in enumerate((24, 17, 31, 18))]

    @cached_property
    def skewed(self) -> dict[str, Part]:
        last = self.n_classes - 1
        return {
            "a missing class": self.part(10, np.arange(13) % max(last, 1)),
            "one class": self.part(11, [last] * 7),
            "one record": self.part(12, [last]),
            "two records": self.part(13, [last, 0]),
        }

    @cached_property
    def queries(self) -> NDArray[Any]:
        """float32[query, *shape]: among the classes, and so also near the borders between them."""
        rng = np.random.default_rng([self.seed, 99])
        mixed = np.tensordot(rng.dirichlet(np.ones(self.n_classes), _N_QUERIES), self._centres, axes=1)
        queries: NDArray[Any] = (mixed + 0.3 * rng.normal(size=mixed.shape)).astype(np.float32)
        queries.flags.writeable = False
        return queries

    def fit(self, part: Part, family: TeacherFamily[Any] | None = None) -> _Trained:
        return self._trained([(self.family if family is None else family).fit(part, self.n_classes)])[0]

    def fit_batch(self, parts: Sequence[Part]) -> list[_Trained]:
        models = self.family.fit_batch(parts, self.n_classes)
        if len(models) != len(parts):
            raise Violation(f"fit_batch must give one model for each part: got {len(models)} for {len(parts)} parts.")
        return self._trained(models)

    def _trained(self, models: Sequence[Any]) -> list[_Trained]:
        digests = [model_digest(model) for model in models]  # before any vote: some models count how often they are asked
        return [_Trained(model, digest, self.votes(model)) for model, digest in zip(models, digests, strict=True)]

    def votes(self, model: Any) -> IntArray:
        return check_labels(self.family.predict(model, self.queries, self.n_classes), len(self.queries), self.n_classes)


@dataclass(frozen=True)
class _Trained:
    """A model, a digest of its numbers before it was asked, and its votes on the queries."""

    model: Any
    digest: str
    votes: IntArray

    def must_equal(self, other: _Trained, rule: str) -> None:
        """Raise ``rule`` unless the two vote alike and hold the same numbers, bit for bit."""
        differing = int((self.votes != other.votes).sum())
        if differing:
            raise Violation(f"{rule} {differing} of {len(self.votes)} votes differ.")
        if self.digest != other.digest:
            raise Violation(f"{rule} The votes on these queries agree, but the models' numbers differ; on others they may not.")


def _checks(subject: _Subject) -> Iterator[NamedCheck]:
    yield "contract: votes", lambda: _valid_votes(subject)
    yield "contract: label skew", lambda: _label_skew(subject)
    yield "contract: inputs untouched", lambda: _untouched(subject)
    yield "contract: save and load", lambda: _save_and_load(subject)
    yield "contract: description", lambda: _description(subject)
    yield "contract: pickle", lambda: _pickle(subject)
    yield "independence: equal seeds", lambda: _equal_seeds(subject)
    yield "independence: address", lambda: _address(subject)
    yield "independence: other teachers", lambda: _other_teachers(subject)
    yield "independence: predict_batch", lambda: _predict_batch(subject)


def _valid_votes(subject: _Subject) -> str:
    model = subject.fit(subject.plain[0]).model
    check_labels(subject.family.predict(model, subject.queries[:1], subject.n_classes), 1, subject.n_classes)
    whole(subject.family.batch_size, "batch_size", least=1)
    return f"1 and {len(subject.queries)} queries, classes 0..{subject.n_classes - 1}"


def _label_skew(subject: _Subject) -> str:
    alone = {}
    for what, part in subject.skewed.items():
        try:
            alone[what] = subject.fit(part)
        except Exception as error:
            raise Violation(
                f"a part with {what} must still train and vote, but raised {type(error).__name__}: {error}"
            ) from error
    together = subject.fit_batch([*subject.skewed.values(), *subject.plain])
    for what, trained in zip(alone, together, strict=False):
        trained.must_equal(alone[what], f"a part with {what} must give in a batch the model that it gives alone.")
    return f"{', '.join(alone)}; alone and in a batch"


def _untouched(subject: _Subject) -> str:
    given = subject.plain[0]
    part = replace(given, x=given.x.copy(), y=given.y.copy())  # writable
    queries = subject.queries.copy()
    model = subject.fit(part).model
    votes = np.array(subject.family.predict(model, queries, subject.n_classes))
    arrays = {"x": (part.x, given.x), "y": (part.y, given.y), "queries": (queries, subject.queries)}
    changed = [name for name, (now, before) in arrays.items() if not np.array_equal(now, before)]
    if changed:
        raise Violation(f"fit and predict must leave what they get as it was; changed: {', '.join(changed)}. Work on a copy.")
    for other in subject.plain[1:]:
        subject.fit(other)
    if not np.array_equal(subject.votes(model), votes):
        raise Violation("the votes of a model must not change when others are fitted after it: keep nothing of a fit in self.")
    return "records, labels, queries and earlier models"


def _save_and_load(subject: _Subject) -> str:
    suffix = subject.family.suffix
    if not suffix.startswith("."):
        raise Violation(f"suffix must begin with a dot, such as '.safetensors', got {suffix!r}.")
    parts = [subject.plain[0], *subject.skewed.values()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"teacher{suffix}"
        for part in parts:
            trained = subject.fit(part)
            subject.family.save(trained.model, path)
            if list(Path(folder).iterdir()) != [path]:
                raise Violation("save must write the file it is told to write, and no other.")
            if not np.array_equal(subject.votes(subject.family.load(path)), trained.votes):
                raise Violation("a model that was saved and loaded must vote as before; it votes otherwise.")
    return f"{len(parts)} models as {suffix}. {subject.family.trust_note}".rstrip()


def _description(subject: _Subject) -> str:
    try:
        written = json.dumps(describe(subject.family), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Violation(f"settings() must be JSON, since the run's manifest keeps it: {error}.") from error
    twin = from_description(json.loads(written))
    if json.dumps(describe(twin), allow_nan=False) != written:
        raise Violation(f"a family made from settings() must have the same settings, got {describe(twin)} from {written}.")
    _must_train_alike(subject, twin, "a family made from settings()")
    return written


def _pickle(subject: _Subject) -> str:
    _must_train_alike(subject, pickle.loads(pickle.dumps(subject.family)), "a pickled copy of the family")
    return "trains the same model"


def _must_train_alike(subject: _Subject, twin: TeacherFamily[Any], what: str) -> None:
    part = subject.plain[1]
    subject.fit(part, twin).must_equal(subject.fit(part), f"{what} must train the same model from the same part.")


def _equal_seeds(subject: _Subject) -> str:
    """A worker that died is replaced by one that trains the same teacher again: it must vote the same."""
    rule = "fit must give the same model for the same part and seed: draw all random numbers from part.seed."
    for part in subject.plain[:2]:
        subject.fit(part).must_equal(subject.fit(part), rule)
    return "trained twice, the same models bit for bit"


def _address(subject: _Subject) -> str:
    """Where records lie in memory follows from what else was loaded, so not even that may reach a rounding."""
    rule = "a model must not depend on the address of its records: copy them to a 64-byte boundary first."
    for part in subject.plain[:2]:
        expected = subject.fit(part)
        for offset in (4, 20, 36, 60):
            subject.fit(replace(part, x=_placed(part.x, offset))).must_equal(expected, rule)
    return "4 places in memory, the same models"


def _placed(x: NDArray[Any], offset: int) -> NDArray[Any]:
    """A copy that begins ``offset`` bytes after a 64-byte boundary; read-only."""
    space = np.empty(x.nbytes + 128, dtype=np.uint8)
    start = -space.ctypes.data % 64 + offset
    copy = space[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    copy.flags.writeable = False
    return copy


def _other_teachers(subject: _Subject) -> str:
    check_bit_independence(subject.family, subject.plain, subject.n_classes, subject.queries)
    return f"{len(subject.plain)} parts alone and in many batches, the same models bit for bit"


def _predict_batch(subject: _Subject) -> str:
    trained = subject.fit_batch(subject.plain)
    for order in ([0, 1, 2, 3], [3, 1], [2]):
        some = [trained[index] for index in order]
        alone = np.stack([each.votes for each in some])
        votes = np.asarray(subject.family.predict_batch([each.model for each in some], subject.queries, subject.n_classes))
        if votes.shape != alone.shape or not np.array_equal(votes, alone):
            raise Violation(
                f"predict_batch of {len(order)} models must be int[teacher, query] and equal predict one by one; "
                f"got another answer, of shape {votes.shape}."
            )
    return "4, 2 and 1 models together and one by one"
