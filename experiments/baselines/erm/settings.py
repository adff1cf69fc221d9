"""How a private linear model is learned: the keys of ``[erm]`` in a recipe."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pate.errors import ParameterError
from pate.experiments.baselines.settings import checked_settings
from pate.privacy.curve import DEFAULT_ORDERS
from pate.references import did_you_mean

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]

MODEL_NAMES = ("logistic", "huber-svm")
LONG_WEIGHTS = 10.0
"""The guess, made without a look at any data, of how long good weights are, on rows of length 1."""


class ErmSettings(BaseModel):
    """Everything but the model, the data and the budget.

    method: "objective", "output" (pure DP) or "gaussian" (output perturbation with Gaussian noise, at the budget's delta).
    epsilon: of this run; "budget": as much as the whole budget allows at the ledger's one order.
    order: that order, fixed when the ledger is begun: 1024 leaves a pure mechanism nearly all of the budget's epsilon; unless
        given, it is the budget's own choice, the best one for Gaussian noise.
    data_norm: the declared bound on a record's length, in features; longer records are cut to it.
    regularisation: of the mean loss: a number; "auto": by a rule fixed in advance, with ``weight_norm`` the guess of how long
        good weights are; or a list of candidates, of which one is chosen privately (Algorithm 3).
    records: the declared number of persons, published with the run. Needed where the data are private.
    intercept; width: of Huber's loss. random_features, gamma: a Gaussian kernel by so many random Fourier features; 0: none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    method: Literal["objective", "output", "gaussian"] = "objective"
    epsilon: Positive | Literal["budget"] = "budget"
    order: Positive | None = None
    data_norm: Positive = 1.0
    regularisation: Positive | Literal["auto"] | list[Positive] = "auto"
    weight_norm: Positive = LONG_WEIGHTS
    records: Count | None = None
    intercept: bool = True
    width: Positive = 0.5
    random_features: Annotated[int, Field(ge=0, multiple_of=2)] = 0
    gamma: Positive = 1.0

    def problems(self) -> list[str]:
        """What pydantic cannot see."""
        found = []
        if isinstance(self.regularisation, list) and len(self.regularisation) < 2:
            found.append("regularisation: a list of candidates must have two or more; give the number itself")
        if self.order is not None and self.order not in DEFAULT_ORDERS:
            found.append(f"order: must be one of the ledger's orders, such as {DEFAULT_ORDERS[-1]:g}, got {self.order:g}")
        return found


def make_erm_settings(values: dict[str, Any]) -> ErmSettings:
    """Settings, checked; a ParameterError that tells all that is wrong."""
    return checked_settings(ErmSettings, values)


def check_erm_model(name: str) -> None:
    """Raise unless ``name`` is a model."""
    if name not in MODEL_NAMES:
        raise ParameterError(f"model: {name!r} is no model{did_you_mean(name, MODEL_NAMES)} Known: {', '.join(MODEL_NAMES)}")
