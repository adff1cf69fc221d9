"""How a DP-SGD run trains: the keys of ``[dpsgd]`` in a recipe, and the arguments of ``DPSGD``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pate.errors import ParameterError
from pate.experiments.baselines.settings import checked_settings
from pate.references import did_you_mean, load_reference

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]


MODEL_NAMES = ("logistic", "mlp", "cnn", "group-norm-cnn")
"""Here, so that a recipe can be checked without torch; :mod:`pate.experiments.baselines.dpsgd.training.models` makes them."""


class Settings(BaseModel):
    """Everything but the model, the data and the budget.

    lot_size: how many records (or users) a step sees on average, and what sums are divided by; each is drawn by itself (Poisson
        sampling), so a lot may be larger, smaller or empty. rate: the probability of that, else lot_size over the number of
        records; declare it where that number is secret.
    steps, epochs: how long; an epoch is 1/rate steps. steps = "budget": as long as the budget lasts, with the noise given.
    noise_multiplier: standard deviation of the noise in units of ``clip``; "auto": the least that fits the budget.
    clip: the bound on a record's gradient (L2). per_layer: each layer to clip/sqrt(layers). automatic: scaled to the bound in
        place of cut at it (Bu et al. 2022, arXiv:2206.07136), with ``stability`` added to the norm.
    learning_rate, momentum, optimiser ("sgd", "adam"), weight_decay, schedule ("constant", "linear", "cosine", "one-cycle"):
        of the update with the noised gradient, free of privacy cost. average: decay of an average of the weights, 0: none.
    views: random variants of each record, whose gradients are averaged before clipping (De et al. 2022, arXiv:2204.13650);
        augment: of what kind: "digits", "clothing", "photos", "none".
    micro_batch: how many records are in memory at once. checkpoints: how often a long run is saved, and paid for.
    width, activation ("tanh", "tempered-sigmoid", "relu"), bias (of "logistic"): of the built-in models.
    shape: of a picture, for flat records.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    lot_size: Count
    rate: Annotated[float, Field(gt=0, le=1)] | None = None
    steps: Count | Literal["budget"] | None = None
    epochs: Positive | None = None
    noise_multiplier: Positive | Literal["auto"] = "auto"
    clip: Positive = 1.0
    per_layer: bool = False
    automatic: bool = False
    stability: Positive = 0.01
    learning_rate: Positive = 1.0
    momentum: Share = 0.9
    optimiser: Literal["sgd", "adam"] = "sgd"
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    schedule: Literal["constant", "linear", "cosine", "one-cycle"] = "constant"
    average: Share = 0.0
    views: Count = 1
    augment: Literal["none", "digits", "clothing", "photos"] = "none"
    micro_batch: Count = 2048
    checkpoints: Count = 20
    width: Count | None = None
    activation: Literal["tanh", "tempered-sigmoid", "relu"] = "tanh"
    bias: bool = True
    shape: list[int] | None = None

    def problems(self) -> list[str]:
        """What no single key is to blame for."""
        found = []
        if (self.steps is None) == (self.epochs is None):
            found.append("give steps or epochs, one of the two")
        if self.steps == "budget" and self.noise_multiplier == "auto":
            found.append('steps = "budget" needs a number for noise_multiplier: noise and length cannot both be found')
        if self.views > 1 and self.augment == "none":
            found.append('views above 1 are all the same with augment = "none"; name an augmentation')
        return found

    def rate_of(self, n_units: int) -> float:
        """The probability that a record, or user, enters a lot."""
        if self.rate is not None:
            return self.rate
        if self.lot_size > n_units:
            raise ParameterError(
                f"lot_size must be at most the number of records (or users), got {self.lot_size} of {n_units}: the sampling "
                "rate would be above 1. Take a smaller lot."
            )
        return self.lot_size / n_units

    def steps_of(self, rate: float) -> int | Literal["budget"]:
        if self.steps is not None:
            return self.steps
        return max(1, round((self.epochs or 1.0) / rate))


def make_settings(values: dict[str, Any]) -> Settings:
    """Settings, checked; a ParameterError that tells all that is wrong."""
    return checked_settings(Settings, values, _words)


def _words(key: str, value: Any) -> str | None:
    return (
        "noise_multiplier: must be above 0; without noise no epsilon holds" if (key, value) == ("noise_multiplier", 0) else None
    )


def check_model_name(name: str) -> None:
    """Raise unless ``name`` is a built-in model, or names something that can be imported."""
    if ":" in name:
        load_reference(name)
    elif name not in MODEL_NAMES:
        raise ParameterError(
            f"model: {name!r} is no model{did_you_mean(name, MODEL_NAMES)} Known: {', '.join(MODEL_NAMES)}, or "
            "'package.module:factory', a function of a record's shape and the number of classes"
        )
