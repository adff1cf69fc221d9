"""Private logistic regression and support vector machine, as scikit-learn estimators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.experiments.baselines.erm.losses import HuberHinge, Logistic, Loss
from pate.experiments.baselines.erm.mechanisms import Perturbation, perturbation
from pate.experiments.baselines.erm.paying import charge, within
from pate.experiments.baselines.erm.rows import Bound, people_of
from pate.experiments.baselines.erm.settings import LONG_WEIGHTS
from pate.experiments.baselines.erm.solving import Task, check_count
from pate.extras import require
from pate.ledger import Ledger
from pate.noise import Noise, OSNoise, SimulatedNoise
from pate.validation import positive, whole

base: Any = require("sklearn.base", "train")
multiclass: Any = require("sklearn.utils.multiclass", "train")
validation: Any = require("sklearn.utils.validation", "train")

AUTO = "auto"


class PrivateLinearClassifier(base.ClassifierMixin, base.BaseEstimator):  # type: ignore[misc]
    """What the two estimators have in common. Two classes; more are refused.

    method: "output" (Algorithm 1), "objective" (Algorithm 2), both pure DP, or "gaussian" (output perturbation, needs delta).
    epsilon: of one fit; None: all that the ledger's budget allows. Records replaced are covered, and so are those added or
    removed. regularisation: of the mean loss; "auto": by a rule from the numbers of records and columns, epsilon and
    ``weight_norm``. data_norm: the declared bound on a record's length; longer records are cut to it
    (``out_of_bounds="refuse"``: are an error). records: the declared number of persons, near the true one. It is published
    with the noise; unless given, it is counted, for data whose number of records is no secret. classes: both labels, declared;
    unless given, they are read off y.
    random_state: None: noise from the operating system. A whole number: a simulation, not private.
    """

    def __init__(
        self,
        method: str = "objective",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        regularisation: float | str = AUTO,
        data_norm: float = 1.0,
        fit_intercept: bool = True,
        records: int | None = None,
        classes: Sequence[Any] | None = None,
        weight_norm: float = LONG_WEIGHTS,
        out_of_bounds: str = "cut",
        random_state: int | None = None,
    ) -> None:
        self.method = method
        self.epsilon = epsilon
        self.delta = delta
        self.regularisation = regularisation
        self.data_norm = data_norm
        self.fit_intercept = fit_intercept
        self.records = records
        self.classes = classes
        self.weight_norm = weight_norm
        self.out_of_bounds = out_of_bounds
        self.random_state = random_state

    def _loss(self) -> Loss:
        raise NotImplementedError

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        units: ArrayLike | None = None,
        noise: Noise | None = None,
        ledger: Ledger | None = None,
        key: str = "erm",
    ) -> Self:
        """Learn from X [record, feature] and y [record].

        units: [record], whose record it is, where a person has several; then the person is protected. ledger: charged, under
        ``key``, before noise is drawn. noise: of :mod:`pate.noise`, before ``random_state``.
        """
        forget(self)
        x, labels = validation.validate_data(self, X, y, dtype=np.float64)
        source = self.source if noise is None else noise
        people = people_of(self.bound.rows(x), self.labels(labels), units)
        records = self.declared(people.count)
        self.mechanism_ = self.mechanism(ledger)
        self.task_ = self.task(self.mechanism_, records, x.shape[1], users=units is not None)
        check_count(self.task_, people)
        if ledger is not None:
            charge(ledger, self.mechanism_.curve, self.memo(), key, source.mode)
        self.mode_ = source.mode
        return self.with_weights(self.mechanism_.release(self.task_, people, source), x.shape[1])

    def declared(self, counted: int) -> int:
        """The number of persons that is published, after checking that it and delta make sense together."""
        records = counted if self.records is None else self.records
        whole(records, "records", 1)
        if self.delta is not None and self.delta * records >= 1:
            raise ParameterError(
                f"delta must be below 1/{records}, one over the number of records (or users), got {self.delta:g}: a mechanism "
                "that publishes a record at random would pass. Take a smaller one."
            )
        return records

    def mechanism(self, ledger: Ledger | None = None) -> Perturbation:
        """The mechanism that a fit would use; it depends on no data."""
        if self.epsilon is not None:
            return perturbation(self.method, self.epsilon, self.delta)
        if ledger is None:
            raise ParameterError(
                "epsilon must be a number, or None with a ledger whose budget it is to be. Give one of the two."
            )
        return within(self.method, ledger.budget)

    def task(self, mechanism: Perturbation, records: int, width: int, users: bool = False) -> Task:
        """What a fit would minimise; it depends on no data."""
        loss, columns = self._loss(), self.bound.columns(width)
        if self.regularisation == AUTO:
            positive(self.weight_norm, "weight_norm")
            strength = mechanism.regularisation(loss.most_curved, records, columns, self.weight_norm)
        else:
            positive(self.regularisation, "regularisation")
            strength = float(self.regularisation)
        return Task(loss, float(records), columns, strength, users)

    def memo(self) -> dict[str, Any]:
        """Public facts of the fit: for the ledger."""
        task = self.task_
        facts = {
            "mechanism": f"erm {self.mechanism_.name}",
            "loss": type(task.loss).__name__,
            "regularisation": task.regularisation,
        }
        return {**facts, **self.mechanism_.facts(task), "records": task.records, "columns": task.columns}

    def decision_function(self, X: Any) -> FloatArray:
        """float64[record]: above 0 for the second class. A record longer than the bound is cut as in training."""
        validation.check_is_fitted(self, "weights_")
        x = validation.validate_data(self, X, dtype=np.float64, reset=False)
        found: FloatArray = Bound(self.data_norm, self.fit_intercept).rows(x) @ self.weights_
        return found

    def predict(self, X: Any) -> NDArray[Any]:
        """[record]: the class of each."""
        ones = self.decision_function(X) > 0
        found: NDArray[Any] = self.classes_[ones.astype(np.int64)]
        return found

    def predict_proba(self, X: Any) -> FloatArray:
        """float64[record, 2]: the logistic function of the margin. Of the support vector machine a score, no probability."""
        ones = expit(self.decision_function(X))
        return np.stack([1 - ones, ones], axis=1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    @property
    def bound(self) -> Bound:
        if self.out_of_bounds not in ("cut", "refuse"):
            raise ParameterError(f'out_of_bounds must be "cut" or "refuse", got {self.out_of_bounds!r}.')
        return Bound(self.data_norm, bool(self.fit_intercept), self.out_of_bounds == "refuse")

    @property
    def source(self) -> Noise:
        """Where noise comes from unless ``fit`` is given another."""
        if self.random_state is None:
            return OSNoise()
        whole(self.random_state, "random_state", 0)
        return SimulatedNoise(int(self.random_state))

    def labels(self, y: NDArray[Any]) -> NDArray[np.bool_]:
        """bool[record]: whether of the second class, after checking that there are two."""
        multiclass.check_classification_targets(y)
        known = np.unique(y) if self.classes is None else np.asarray(self.classes)
        if known.shape != (2,):
            raise ParameterError(
                f"Only binary classification is supported: two classes, got {known.size} "
                f"class{'es' if known.size != 1 else ''}. For more, fit one estimator a class, each with its share of epsilon."
            )
        ones: NDArray[np.bool_] = y == known[1]
        if not (ones | (y == known[0])).all():
            raise ParameterError("y must hold the two declared classes and no others; found another one.")
        self.classes_ = known
        return ones

    def with_weights(self, weights: FloatArray, width: int) -> Self:
        """Fitted, with weights that may be published; width: how many features a record has."""
        self.weights_ = weights
        self.n_features_in_ = width
        coefficients, intercept = self.bound.coefficients(weights)
        self.coef_, self.intercept_ = coefficients[None, :], np.array([intercept])
        return self


def forget(estimator: Any) -> None:
    """Drop what an earlier fit left: should the next one be refused, its epsilon must not stand beside the old weights."""
    for name in [each for each in vars(estimator) if each.endswith("_")]:
        delattr(estimator, name)


class PrivateLogisticRegression(PrivateLinearClassifier):
    """Logistic regression by output or objective perturbation. See :class:`PrivateLinearClassifier` for the parameters.

    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 4000)
    >>> x = rng.normal(size=(4000, 3)) + 2 * y[:, None]
    >>> learner = PrivateLogisticRegression(epsilon=1.0, data_norm=4.0, classes=(0, 1)).fit(x, y)
    >>> bool(learner.score(x, y) > 0.85), learner.mode_, learner.mechanism_.epsilon(1e-5)
    (True, 'release', 1.0)
    """

    def _loss(self) -> Loss:
        return Logistic()


class PrivateHuberSVM(PrivateLinearClassifier):
    """A support vector machine with Huber's loss. width: of the rounded corner (h in the paper)."""

    def __init__(
        self,
        method: str = "objective",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        regularisation: float | str = AUTO,
        data_norm: float = 1.0,
        fit_intercept: bool = True,
        records: int | None = None,
        classes: Sequence[Any] | None = None,
        weight_norm: float = LONG_WEIGHTS,
        out_of_bounds: str = "cut",
        random_state: int | None = None,
        width: float = 0.5,
    ) -> None:
        super().__init__(
            method,
            epsilon,
            delta,
            regularisation,
            data_norm,
            fit_intercept,
            records,
            classes,
            weight_norm,
            out_of_bounds,
            random_state,
        )
        self.width = width

    def _loss(self) -> Loss:
        return HuberHinge(self.width)
