"""Self-training for tables: a classifier learns from its own surest predictions on public records."""

from __future__ import annotations

import inspect
import math
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from pate.arrays import FloatArray, IntArray
from pate.errors import StudentError
from pate.estimators import foreign_types, package
from pate.execution.threads import one_thread
from pate.extras import require
from pate.references import construct, did_you_mean, load_reference
from pate.student.answers import Answers
from pate.student.base import Student
from pate.student.diary import Diary
from pate.student.graph.spreading import Doubt
from pate.student.graph.spreading_student import spread_answers
from pate.student.tabular.scaling import Scaling
from pate.validation import json_values, whole

Start = Literal["labels", "spreading"]
Pseudo: TypeAlias = tuple[IntArray, IntArray, FloatArray]
"""Rows of public records, the label guessed for each, and its weight."""

BASES: Mapping[str, tuple[str, Mapping[str, Any]]] = MappingProxyType(
    {
        # Small leaves and few of them: there are tens or hundreds of labels, where the library expects thousands. Nothing is
        # held out to stop early by.
        "boosting": (
            "sklearn.ensemble:HistGradientBoostingClassifier",
            {"max_leaf_nodes": 8, "min_samples_leaf": 5, "l2_regularization": 1.0, "early_stopping": False},
        ),
        "forest": ("sklearn.ensemble:RandomForestClassifier", {"n_estimators": 200, "min_samples_leaf": 3}),
        "logistic": ("sklearn.linear_model:LogisticRegression", {"C": 1.0, "max_iter": 1000}),
        "mlp": ("sklearn.neural_network:MLPClassifier", {"hidden_layer_sizes": [32], "alpha": 1.0, "max_iter": 300}),
    }
)
"""name -> class and the parameters it is given here."""

_SCALING, _MODEL = "scaling.npz", "model.skops"
_NEIGHBOURS, _ALPHA = 10, 0.99  # of the spreading
_LEAST = 1e-12


@dataclass(eq=False, repr=False, kw_only=True)
class SelfTraining(Student):
    """Pseudo-labelling in rounds over boosting, a forest, an MLP or any classifier; may start from labels spread over a graph.

    Each round the classifier labels the public records; its surest labels join the answers for the next round, each weighing
    as much as it is sure. Classes stay as frequent among them as among the answers: else the largest one takes over. No
    balance is assumed; but where queries were chosen to be unlike the public records, say ``keep_shares=False``. It ends when
    a round changes no pseudo-label.

    base: "boosting", "forest", "logistic", "mlp", or any classifier with ``predict_proba``, "package.module:Class".
    parameters: of the classifier, before those set here. If its ``fit`` takes no ``sample_weight``, all labels weigh the same.
    start: "labels": first learns from the answers only; "spreading": from the answers spread over a graph of the standardised
        public records, each record weighing as much as its label is clear. That helps where classes are clusters.
    rounds: of pseudo-labels, at most; 0 with "spreading" is label propagation under a classifier.
    adopt: which share of the public records is given a pseudo-label.
    keep_shares: whether pseudo-labels keep the answers' class shares.
    wrong: the chance that an answer is wrong, for "spreading": those that the others contradict are doubted.
    """

    name: ClassVar[str] = "self-training"

    base: str = "boosting"
    parameters: Mapping[str, Any] | None = None
    start: Start = "labels"
    rounds: int = 5
    adopt: float = 0.5
    keep_shares: bool = True
    wrong: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if ":" not in self.base and self.base not in BASES:
            raise StudentError(
                f"{self.title} base must be one of {', '.join(BASES)} or 'package.module:Class', got "
                f"{self.base!r}{did_you_mean(self.base, BASES)}"
            )
        if self.start not in get_args(Start):
            raise StudentError(f"{self.title} start must be one of {', '.join(get_args(Start))}, got {self.start!r}.")
        whole(self.rounds, f"{self.title} rounds", 0)
        if not 0 < self.adopt <= 1:
            raise StudentError(f"{self.title} adopt must be above 0 and at most 1, got {self.adopt!r}.")
        Doubt(self.wrong)  # checks it
        self.parameters = None if self.parameters is None else dict(self.parameters)
        json_values(self.settings(), self.title)

    def _fit(self, x: NDArray[Any], answers: Answers, diary: Diary) -> None:
        self._classifier_class()  # imports what is then held to one thread
        self._scaling = Scaling.of(x)
        with one_thread():
            self._train(self._scaling(x), answers, diary)

    def _train(self, public: FloatArray, answers: Answers, diary: Diary) -> None:
        shares = answers.class_counts / len(answers) if self.keep_shares else None
        pseudo: Pseudo = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0)
        with diary.stage("rounds", self.rounds + 1) as step:
            if self.start == "spreading":
                points = public.astype(np.float32)
                scores = spread_answers(points, answers, _NEIGHBOURS, _ALPHA, Doubt(self.wrong))
                pseudo = pseudo_labels(scores, 1.0, None)
            self._learn(public, answers, pseudo)
            step(pseudo_labels=len(pseudo[0]))
            for _ in range(self.rounds):
                before = pseudo
                pseudo = pseudo_labels(self._proba(public, answers.n_classes), self.adopt, shares)
                changed = _changed(before, pseudo)
                if changed:
                    self._learn(public, answers, pseudo)
                step(pseudo_labels=len(pseudo[0]), changed=changed)
                if not changed:
                    break

    def _learn(self, public: FloatArray, answers: Answers, pseudo: Pseudo) -> None:
        rows, labels, weights = pseudo
        kept = ~np.isin(rows, answers.rows) & (weights > 0)  # an answer goes before what was guessed of its record
        records = public[np.concatenate([answers.rows, rows[kept]])]
        targets = np.concatenate([answers.labels, labels[kept]])
        self._model = self._classifier()
        weighed = "sample_weight" in inspect.signature(self._model.fit).parameters
        extra = {"sample_weight": np.concatenate([np.ones(len(answers)), weights[kept]])} if weighed else {}
        with warnings.catch_warnings():
            # That an optimiser stopped at its last step, on labels that are guesses, is no news.
            warnings.simplefilter("ignore")
            self._model.fit(records, targets, **extra)

    def _classifier_class(self) -> Any:
        if self.base in BASES or self.base.startswith("sklearn."):
            require("sklearn", "train")
        found = load_reference(BASES[self.base][0] if self.base in BASES else self.base)
        lacking = [each for each in ("fit", "predict_proba") if not callable(getattr(found, each, None))]
        if lacking:
            raise StudentError(
                f"{self.title} base {self.base!r} must have fit and predict_proba, has no {' and no '.join(lacking)}."
            )
        return found

    def _classifier(self) -> Any:
        kind = self._classifier_class()
        given = {**(BASES[self.base][1] if self.base in BASES else {}), **(self.parameters or {})}
        if "random_state" in inspect.signature(kind).parameters:
            given.setdefault("random_state", self.seed)
        return construct(kind, given, f"{self.title}, base {self.base}")

    def _proba(self, records: FloatArray, n_classes: int) -> FloatArray:
        """float64[record, class], 0 for a class that nothing was labelled with."""
        found = np.zeros((len(records), n_classes))
        found[:, self._model.classes_] = self._model.predict_proba(records)
        return found

    def _probabilities(self, x: NDArray[Any]) -> NDArray[np.floating]:
        return self._proba(self._scaling(x), self.record["n_classes"])

    def _save(self, folder: Path) -> None:
        np.savez(folder / _SCALING, **self._scaling.arrays())  # type: ignore[arg-type]  # the stubs take them for allow_pickle
        require("skops.io", "train").dump(self._model, folder / _MODEL, compression=zipfile.ZIP_DEFLATED)

    def _load(self, folder: Path) -> None:
        with np.load(folder / _SCALING, allow_pickle=False) as arrays:
            self._scaling = Scaling(**arrays)
        skops = require("skops.io", "train")
        types = skops.get_untrusted_types(file=folder / _MODEL)
        foreign = foreign_types(types, {package(self.base)} if ":" in self.base else set())
        if foreign:
            raise StudentError(
                f"The {self.title} file holds types of neither scikit-learn nor the package of its base {self.base!r}: "
                f"{', '.join(foreign)}. Do not trust it."
            )
        self._model = skops.load(folder / _MODEL, trusted=types)


def pseudo_labels(probabilities: FloatArray, adopt: float, shares: FloatArray | None) -> Pseudo:
    """The surest share ``adopt`` of the records of each class: their rows in order, labels, and weights in 0..1.

    probabilities: float64[record, class]. shares: float64[class], how frequent classes are to be; None: as predicted.
    With shares, the border of a class is moved to where so many records lie inside it. A weight says how far inside a record
    lies: with two classes and unmoved borders, by how much its probability leads.
    """
    n, n_classes = probabilities.shape
    logs = np.log(np.maximum(probabilities, _LEAST))
    leads = np.stack([logs[:, j] - np.delete(logs, j, axis=1).max(axis=1) for j in range(n_classes)], axis=1)
    weights = np.full((n, n_classes), -1.0)
    for j in range(n_classes):
        order = np.argsort(-leads[:, j], kind="stable")
        inside = int((leads[:, j] > 0).sum()) if shares is None else round(n * float(shares[j]))
        if inside:
            border = 0.0 if shares is None else leads[order[inside - 1], j]
            surest = order[: math.ceil(adopt * inside)]
            weights[surest, j] = np.tanh((leads[surest, j] - border) / 2)
    rows = np.flatnonzero(weights.max(axis=1) >= 0)
    return rows, weights[rows].argmax(axis=1), weights[rows].max(axis=1)


def _changed(before: Pseudo, after: Pseudo) -> int:
    """How many pseudo-labels came, went or became another."""
    old, new = (set(zip(rows.tolist(), labels.tolist(), strict=True)) for rows, labels, _ in (before, after))
    return len(old ^ new)
