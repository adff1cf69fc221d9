"""Results as runs of several kinds leave them, written by hand."""

from __future__ import annotations

from typing import Any

from pate.experiments.results import (
    Consensus,
    Curve,
    DataFacts,
    ErmFacts,
    Evaluation,
    LabelNoise,
    PrivacyFacts,
    Result,
    StageFact,
    TrainingFacts,
    UpperBounds,
)
from pate.release import SIMULATION_STAMP

RECIPE = 'title = "<b>cells</b>"\n[data]\nsource = "digits"\n'
LEDGER: list[dict[str, Any]] = [
    {"kind": "open", "at": None, "memo": {}, "epsilon": None},
    {"kind": "reserve", "at": "2026-11-18", "memo": {"asked": 200}, "epsilon": 1.9},
]


def ten_classes(**changes: Any) -> Result:
    """Confident, with abstentions and all that an owner may see; a benchmark, simulated."""
    confusion = [[90 if i == j else (10 if j == (i + 1) % 10 else 0) for j in range(10)] for i in range(10)]
    facts: dict[str, Any] = {
        "kind": "pate",
        "title": "Digits, Confident GNMax",
        "created": "2026-11-18T10:05:00+00:00",
        "run_id": "0123456789abcdef",
        "mode": "simulation",
        "stamp": SIMULATION_STAMP,
        "verified": "built-in",
        "data": DataFacts(
            name="digits",
            protocol="the usual split",
            benchmark=True,
            fingerprint="fingerprint-of-digits",
            unit="record",
            class_names=[str(number) for number in range(10)],
            private_records=60_000,
            public_records=9_000,
            test_records=1_000,
        ),
        "student": "label spreading",
        "teachers": "250 x logistic",
        "privacy": privacy(),
        "evaluation": Evaluation(
            accuracy=0.9,
            standard_error=0.0095,
            balanced_accuracy=0.9,
            auc=None,
            majority=0.1,
            tested=1_000,
            confusion=confusion,
            openings=["2026-11-18T10:04:00+00:00"],
        ),
        "label_noise": LabelNoise(answered=150, right=0.96, plurality=0.98),
        "consensus": Consensus(edges=[0.0, 0.25, 0.5, 0.75, 1.0], counts=[3, 17, 40, 140]),
        "upper_bounds": UpperBounds(all_data=0.97, all_data_model="logistic", plurality=0.95),
        "stages": [
            StageFact(name="data", seconds=1.5, cached=False, private=False),
            StageFact(name="teachers", seconds=63.0, cached=True, private=True, note="250 trained"),
        ],
        "warnings": ["Only 150 of 200 queries were answered, and all were paid for."],
        "private_warnings": ["1 of 250 teachers failed and vote the fixed default class."],
        "environment": {"pate": "0.1.0", "python": "3.11.2"},
        "seed": 7,
        "test_is_public": True,
    }
    return Result(**(facts | changes))


def privacy(**changes: Any) -> PrivacyFacts:
    facts: dict[str, Any] = {
        "delta": 1e-5,
        "data_independent": 1.9,
        "data_dependent": 0.62,
        "sanitised": None,
        "order": 11.5,
        "order_at_grid_edge": False,
        "budget_epsilon": 4.0,
        "spent": 1.9,
        "ledger": "in the run directory",
        "mechanism": {"aggregator": "confident-gnmax", "threshold": 200, "sigma1": 150, "sigma2": 40},
        "n_teachers": 250,
        "participation": None,
        "asked": 200,
        "answered": 150,
        "neighbours": "one record (or user) replaced: one teacher changes, one vote moves on every query",
        "conversion": "improved (Canonne, Kamath, Steinke 2020)",
        "published": {"proposition8": 2.9},
        "private_published": {"theorem6": 1.1, "expected_2018": 0.8},
        "curve": Curve(queries=[1, 100, 200], independent=[0.2, 1.3, 1.9], dependent=[0.1, 0.4, 0.62]),
    }
    return PrivacyFacts(**(facts | changes))


def two_classes(**changes: Any) -> Result:
    evaluation = Evaluation(
        accuracy=0.83,
        standard_error=0.0119,
        balanced_accuracy=0.78,
        auc=0.8912,
        majority=0.76,
        tested=1_000,
        confusion=[[700, 60], [110, 130]],
        openings=["2026-11-18T10:04:00+00:00"],
    )
    data = ten_classes().data.model_copy(
        update={"name": "adult", "class_names": ["at most 50,000 a year", "more than 50,000 a year"]}
    )
    mechanism = {"aggregator": "gnmax", "sigma": 40}
    facts = {"title": "Income", "data": data, "evaluation": evaluation, "privacy": privacy(mechanism=mechanism)}
    return ten_classes(**(facts | changes))


def partial_votes(**changes: Any) -> Result:
    """Single records vote: one figure for the whole batch, so no curve; the papers know no such thing."""
    facts = privacy(participation=1, curve=None, published={}, private_published={}, n_teachers=956)
    return ten_classes(**({"title": "Digits, nearest", "teachers": "single records", "privacy": facts} | changes))


def baseline(**changes: Any) -> Result:
    """DP-SGD: no votes, no labels; steps instead of queries."""
    training = TrainingFacts(
        steps=112,
        lost=0,
        lot_size=256,
        rate=0.2678,
        noise_multiplier=3.468,
        clip=1.0,
        epsilon_rdp=3.998,
        epsilon_pld=3.671,
        accountant="PLD",
        charged="one record (or user) more or less",
    )
    nobody = dict.fromkeys(("data_dependent", "n_teachers", "asked", "answered", "private_published"))
    curve = Curve(over="steps", queries=[1, 50, 112], independent=[0.4, 2.3, 3.671], dependent=None)
    facts = privacy(data_independent=3.671, training=training, curve=curve, published={}, **nobody)
    nothing = dict.fromkeys(("label_noise", "consensus", "upper_bounds"))
    words = {"kind": "dp-sgd", "title": "digits-dpsgd", "student": "logistic, DP-SGD", "teachers": "one model on all records"}
    return ten_classes(**({"privacy": facts, **nothing, **words} | changes))


def linear(**changes: Any) -> Result:
    """Private ERM: neither votes nor steps; the regularisation chosen privately."""
    erm = ErmFacts(
        method="objective",
        regularisation=0.001,
        records=6512,
        columns=8,
        data_norm=2.25,
        candidates=[0.001, 0.01],
        choice_epsilon=0.497,
        noise={"epsilon": 0.497, "noise_scale": 4.1, "added_regularisation": 0.0, "finishing_scale": 1e-4},
        epsilon_direct=0.497,
        epsilon_rdp=0.5,
        pure=True,
        charged="one record (or user) replaced",
    )
    nobody = dict.fromkeys(("data_dependent", "n_teachers", "asked", "answered", "private_published", "curve"))
    facts = privacy(data_independent=0.497, erm=erm, published={}, **nobody)
    nothing = dict.fromkeys(("label_noise", "consensus", "upper_bounds"))
    words = {"kind": "erm", "title": "adult-erm", "student": "logistic, objective perturbation"}
    return two_classes(**({"privacy": facts, "teachers": "one model on all records", **nothing, **words} | changes))


def own_data(**changes: Any) -> Result:
    """A release on data of the user's own, tested on private records."""
    data = ten_classes().data.model_copy(update={"name": "ward", "unit": "user", "benchmark": False})
    facts: dict[str, Any] = {
        "title": "Ward, <script>alert(1)</script>",
        "mode": "release",
        "stamp": "noise from the operating system",
        "verified": "checked",
        "data": data,
        "label_noise": LabelNoise(answered=150, right=None, plurality=0.98),
        "upper_bounds": None,
        "test_is_public": False,
    }
    return ten_classes(**(facts | changes))


def unverified() -> Result:
    return ten_classes(title="A stranger's aggregator", verified="unverified")


def no_test_records() -> Result:
    return own_data(title="Ward, untested", evaluation=None, data=own_data().data.model_copy(update={"test_records": None}))


CASES = {
    "two classes": two_classes,
    "ten classes": ten_classes,
    "partial votes": partial_votes,
    "own data": own_data,
    "unverified": unverified,
    "no test records": no_test_records,
    "a baseline": baseline,
    "a linear model": linear,
}
