"""What is reproduced: each case is a recipe with changes, run with several seeds. Nothing here was chosen on test labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pate.errors import ParameterError
from pate.references import did_you_mean

Kind = Literal["pate", "dpsgd", "erm"]
Metric = Literal["accuracy", "auc"]

TEACHERS, RECORDS, PAPER, DPSGD = "teacher ensemble", "partial votes", "the paper's own parameters", "DP-SGD"
ERM = "private ERM"
ROUNDS = "teacher ensemble, two rounds"
SWEEP_RECORDS = "records"


@dataclass(frozen=True)
class Case:
    """One point: a recipe, what is changed in it, and the line of the plot that it lies on.

    sweep: what it varies, where it belongs to a plot of trade-offs and not to that against epsilon; value: at which place.
    """

    line: str
    recipe: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    kind: Kind = "pate"
    protocol: str = ""
    sweep: str = ""
    value: float = 0.0


@dataclass(frozen=True)
class Published:
    """A point of the literature, as its source states it. delta and neighbours may differ from ours."""

    what: str
    source: str
    epsilon: float
    accuracy: float
    publishable: bool


@dataclass(frozen=True)
class Target:
    """What was asked for before anything ran: the least mean at no more than this publishable epsilon."""

    line: str
    protocol: str
    epsilon: float
    least: float


@dataclass(frozen=True)
class Study:
    name: str
    title: str
    cases: tuple[Case, ...]
    metric: Metric = "accuracy"
    published: tuple[Published, ...] = ()
    targets: tuple[Target, ...] = ()
    notes: tuple[str, ...] = ()


def _at(
    line: str, recipe: str, epsilons: tuple[float, ...], protocol: str = "", changes: Mapping[str, Any] | None = None
) -> tuple[Case, ...]:
    """A line of one recipe at several budgets."""
    more = {"data.protocol": protocol} if protocol else {}
    kind: Kind = "dpsgd" if line == DPSGD else "erm" if line == ERM else "pate"
    return tuple(
        Case(line, recipe, {**more, **(changes or {}), "privacy.epsilon": each, "privacy.delta": 1e-5}, kind, protocol)
        for each in epsilons
    )


def _thousand(protocol: str) -> tuple[Case, ...]:
    return _at(TEACHERS, "mnist", (0.3,), protocol, {"teachers.count": 1000})


_SHARE = 0.16  # sigma over the number of teachers, where their number is what varies
_SPREADING = {"student": {"model": "spreading", "preset": "mnist"}}
_MANY = {"privacy.epsilon": 1000.0, "privacy.delta": 1e-5}  # a budget that is no limit, where noise is what varies

_TRADE_OFFS = (
    *(
        Case(
            "", "mnist", {**_SPREADING, **_MANY, "teachers.count": k, "aggregator.sigma": _SHARE * k}, sweep="teachers", value=k
        )
        for k in (50, 100, 250, 500, 1000, 2000)
    ),
    *(
        Case("", "mnist", {**_SPREADING, **_MANY, "aggregator.sigma": float(sigma)}, sweep="sigma", value=sigma)
        for sigma in (10, 20, 40, 60, 80, 120)
    ),
)


def _over_records(*whole: Case, scaled: Mapping[str, int]) -> tuple[Case, ...]:
    """Each case at fewer private records. scaled: whole numbers by path that go down with them: as many records to a teacher as
    ever, so fewer teachers, and lots that are a like share.
    """
    found = []
    for case in whole:
        found += [
            replace(
                case,
                changes={
                    **case.changes,
                    "data.private_share": share,
                    **{path: max(1, round(share * value)) for path, value in scaled.items() if _concerns(path, case)},
                },
                sweep=SWEEP_RECORDS,
                value=share,
            )
            for share in _SHARES
        ]
        found.append(replace(case, sweep=SWEEP_RECORDS, value=1.0))
    return tuple(found)


def _concerns(path: str, case: Case) -> bool:
    return (case.line, path.partition(".")[0]) in ((TEACHERS, "teachers"), (DPSGD, "dpsgd"))


_SHARES = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)  # of the private records

_PATE_2017 = "Papernot et al. 2017, arXiv:1610.05755, table 2; data-dependent, not sanitised"
_PATE_2018 = "Papernot et al. 2018, arXiv:1802.08908, table 1; data-dependent, not sanitised"
_KNN = "Zhu et al. 2020, Private-kNN, CVPR; data-dependent"
_HANDCRAFTED = "Tramèr and Boneh 2021, arXiv:2011.11660, the table of their code's page; DP-SGD on scattering features, linear"
_PLAIN = "as the scattering features beside it; DP-SGD on a CNN from pixels"
_LATER = "the method of Tramèr and Boneh 2021 as later comparisons state it, at second hand: we could not open their tables"
_LATER_PLAIN = "DP-SGD on a CNN as later comparisons state it, at second hand: we could not open their tables"


def _line(what: str, source: str, points: Mapping[float, float], publishable: bool) -> tuple[Published, ...]:
    return tuple(Published(what, source, epsilon, accuracy / 100, publishable) for epsilon, accuracy in points.items())


STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        Study(
            "mnist",
            "MNIST",
            (
                *(each for p in "AB" for each in _at(RECORDS, "mnist-records", (0.05, 0.1), p)),
                *(each for p in "AB" for each in _thousand(p)),
                Case(PAPER, "mnist-2018", {}, protocol="A"),
                *_at(DPSGD, "mnist", (1.0, 3.0), "B"),
                *_TRADE_OFFS,
            ),
            published=(
                *_line("PATE 2017", _PATE_2017, {2.04: 98.0}, False),
                *_line("PATE 2018", _PATE_2018, {1.97: 98.5}, False),
                *_line("Private-kNN", _KNN, {0.47: 98.8}, False),
                *_line("DP-SGD, scattering", _HANDCRAFTED, {3: 98.7}, True),
                *_line("DP-SGD, CNN", _PLAIN, {3: 98.1}, True),
                *_line("DP-SGD, scattering, later", _LATER, {1: 97.8, 2: 98.4, 3: 98.3}, True),
                *_line("DP-SGD, CNN, later", _LATER_PLAIN, {1: 95.1, 2: 96.1, 3: 96.8}, True),
            ),
            targets=(
                *(Target(RECORDS, p, 0.1, 0.987) for p in "AB"),
                *(Target(RECORDS, p, 0.05, 0.985) for p in "AB"),
                *(Target(TEACHERS, p, 0.3, 0.986) for p in "AB"),
                Target(PAPER, "A", 3.0, 0.985),
            ),
            notes=(
                "Protocol A is the papers': 60,000 private records, 9,000 test pictures public, 1,000 for the test (one "
                "standard error is 0.3 points). B: 50,000 private, 10,000 of the training pictures public, all test pictures.",
            ),
        ),
        Study(
            "fashion-mnist",
            "Fashion-MNIST",
            (
                *_at(RECORDS, "fashion-mnist", (0.5, 1.0, 2.0)),
                *_at(
                    TEACHERS,
                    "fashion-mnist",
                    (1.0,),
                    changes={
                        "teachers": {"model": "logistic", "count": 500, "votes_per_record": 1},
                        "queries.count": 500,
                        "aggregator": {"name": "gnmax", "sigma": "auto"},
                        "student": {"model": "spreading", "preset": "fashion-mnist"},
                    },
                ),
                *_at(DPSGD, "fashion-mnist", (1.0, 3.0)),
            ),
            published=(
                *_line("DP-SGD, scattering", _HANDCRAFTED, {3: 89.7}, True),
                *_line("DP-SGD, CNN", _PLAIN, {3: 86.0}, True),
                *_line("DP-SGD, scattering, later", _LATER, {1: 85.5, 2: 88.0, 3: 89.0}, True),
                *_line("DP-SGD, CNN, later", _LATER_PLAIN, {1: 80.3, 2: 82.6, 3: 84.7}, True),
            ),
            targets=(Target(RECORDS, "", 0.5, 0.86), Target(RECORDS, "", 1.0, 0.865)),
            notes=("There is no published figure of PATE on these data.",),
        ),
        Study(
            "adult",
            "Adult",
            (
                *(each for p in "AB" for each in _at(TEACHERS, "adult", (0.5, 1.0), p)),
                *(each for p in "AB" for each in _at(ROUNDS, "adult-rounds", (0.5, 1.0), p)),
                *(each for p in "AB" for each in _at(RECORDS, "adult-records", (0.1, 0.5, 1.0), p)),
                *(each for p in "AB" for each in _at(DPSGD, "adult", (0.5, 1.0), p, {"data.encoding": "full"})),
                *(each for p in "AB" for each in _at(ERM, "adult", (0.5, 1.0), p)),
                *_over_records(
                    *_at(RECORDS, "adult-records", (0.5,), "A"),
                    *_at(TEACHERS, "adult", (0.5,), "A"),
                    *_at(DPSGD, "adult", (0.5,), "A", {"data.encoding": "full"}),
                    scaled={"teachers.count": 500, "dpsgd.lot_size": 4096},
                ),
            ),
            published=_line("PATE 2018", _PATE_2018, {1.90: 83.7}, False),
            targets=(
                *(Target(line, p, 0.5, 0.848) for line in (TEACHERS, ROUNDS, RECORDS) for p in "AB"),
                *(Target(line, p, 1.0, 0.850) for line in (TEACHERS, ROUNDS, RECORDS) for p in "AB"),
            ),
            notes=(
                "Protocol A: adult.data private, the first 10,854 records of adult.test public, its last 5,427 for the test "
                "(one standard error is 0.48 points). B: 24,561 private, 8,000 public, all of adult.test for the test (0.28).",
            ),
        ),
        Study(
            "diabetes",
            "Diabetes, 130 US hospitals",
            (
                *_at(TEACHERS, "diabetes", (1.0,), changes={"data.encoding": "small", "student.components": 11}),
                *_at(RECORDS, "diabetes-records", (0.5, 1.0)),
                *_at(DPSGD, "diabetes", (1.0,)),
            ),
            metric="auc",
            targets=(Target(RECORDS, "", 1.0, 0.64),),
            notes=(
                "The unit of privacy is the patient, with all stays. Nine in ten are not readmitted: accuracy says nothing.",
            ),
        ),
        Study(
            "kddcup99",
            "KDDCup99",
            (
                Case(TEACHERS, "kddcup99"),
                Case(DPSGD, "kddcup99", kind="dpsgd"),
                Case(ERM, "kddcup99", kind="erm"),
                *_over_records(
                    Case(TEACHERS, "kddcup99"),
                    Case(DPSGD, "kddcup99", kind="dpsgd"),
                    scaled={"teachers.count": 1000, "dpsgd.lot_size": 4096},
                ),
            ),
            notes=(
                "Copies of connections are left out before they are divided, a look at all of them: epsilon is of the records "
                "that are left. delta is 1e-6, below one over the number of records.",
            ),
        ),
    )
}


def studies_named(name: str) -> list[Study]:
    """One study, or all."""
    if name == "all":
        return list(STUDIES.values())
    if name not in STUDIES:
        known = (*STUDIES, "all")
        raise ParameterError(f"There is no study {name!r}{did_you_mean(name, known)} There are: {', '.join(known)}.")
    return [STUDIES[name]]
