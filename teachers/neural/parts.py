"""Losses, optimisers, schedules, augmentations and modules by built-in name or ``package.module:attribute``."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pate.errors import ParameterError, ReferenceNotFound
from pate.extras import require
from pate.references import did_you_mean, load_reference
from pate.teachers.neural.augment import affine, shift

if TYPE_CHECKING:
    from torch import Generator, Tensor
    from torch.nn import Module
    from torch.optim import Optimizer

Loss = Callable[["Tensor", "Tensor"], "Tensor"]
"""(scores float32[record, class], y int64[record]) -> float32[record]; a mean over the records will do for strategy "loop"."""

Augment = Callable[["Tensor", "Generator"], "Tensor"]
"""(x[record, ...], a CPU generator to draw from) -> x of the same shape. Called once an epoch on all records of a teacher."""

Schedule = Callable[[float], float]
"""(share of the steps done, in [0, 1)) -> factor of the learning rate."""

OPTIMISER_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "sgd": {"lr": 0.05, "momentum": 0.9},
    "adam": {"lr": 1e-3},
    "adamw": {"lr": 1e-3, "weight_decay": 0.01},
}
_CLASSES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}
WARM_UP = 0.2  # of the steps


def cross_entropy(scores: Tensor, y: Tensor) -> Tensor:
    """float32[record]: minus the log of the softmax at the right class."""
    each: Tensor = require("torch.nn.functional", "train").cross_entropy(scores, y, reduction="none")
    return each


def constant(_: float) -> float:
    """The learning rate as given, all the time."""
    return 1.0


def cosine(done: float) -> float:
    """From 1 down to 0 along half a cosine."""
    return 0.5 * (1 + math.cos(math.pi * done))


def one_cycle(done: float) -> float:
    """Up in a straight line over the first fifth of the steps, then down along half a cosine; never exactly 0."""
    return max(done / WARM_UP, 1e-3) if done < WARM_UP else max(cosine((done - WARM_UP) / (1 - WARM_UP)), 1e-3)


LOSSES: Mapping[str, Loss] = {"cross_entropy": cross_entropy}
AUGMENTATIONS: Mapping[str, Augment] = {"affine": affine, "shift": shift}
SCHEDULES: Mapping[str, Schedule] = {"constant": constant, "cosine": cosine, "one_cycle": one_cycle}


def find_loss(name: str) -> Loss:
    """A loss class (``"torch.nn:MultiMarginLoss"``) is constructed without arguments."""
    found: Any = _find(name, LOSSES, "loss")
    if inspect.isclass(found):
        found = found()
    loss: Loss = found
    return loss


def find_augment(name: str | None) -> Augment | None:
    return None if name is None else _find(name, AUGMENTATIONS, "augment")


def find_schedule(name: str | None) -> Schedule:
    return constant if name is None else _find(name, SCHEDULES, "schedule")


def make_optimiser(name: str, settings: Mapping[str, Any] | None, parameters: Sequence[Tensor], fused: bool) -> Optimizer:
    """``fused``: all parameters updated in one kernel, where torch's own optimisers offer it: a fifth of the time here."""
    if name in _CLASSES:
        kind = getattr(require("torch.optim", "train"), _CLASSES[name])
        given = {"fused": fused, **OPTIMISER_DEFAULTS[name], **(settings or {})}
    else:
        kind, given = _find(name, {}, "optimiser", _CLASSES), dict(settings or {})
    try:
        optimiser: Optimizer = kind(parameters, **given)
    except TypeError as error:
        raise ParameterError(f"optimiser_settings do not suit the optimiser {name!r}: {error}.") from None
    return optimiser


def make_module(reference: str, parameters: Mapping[str, Any] | None, n_classes: int, shape: Sequence[int]) -> Module:
    """The module, built by its class or factory; ``n_classes`` and ``input_shape`` are passed where it takes them."""
    factory = load_reference(reference)
    given = dict(parameters or {})
    takes = inspect.signature(factory).parameters
    for name, value in (("n_classes", n_classes), ("input_shape", tuple(shape))):
        if name in takes:
            given.setdefault(name, value)
    try:
        inspect.signature(factory).bind(**given)
    except TypeError as error:
        raise ParameterError(f"parameters do not suit {reference!r}: {error}. It takes {', '.join(takes) or 'none'}.") from None
    module = factory(**given)
    if not isinstance(module, require("torch.nn", "train").Module):
        raise ParameterError(f"{reference!r} must give a torch.nn.Module, got {type(module).__name__}.")
    built: Module = module
    return built


def _find(name: str, builtin: Mapping[str, Any], what: str, known: Mapping[str, Any] | None = None) -> Any:
    if name in builtin:
        return builtin[name]
    if ":" not in name:
        names = sorted(known or builtin)
        raise ReferenceNotFound(
            f"{name!r} is no known {what}{did_you_mean(name, names)} Known: {', '.join(names)}; your own is named "
            "'package.module:attribute'."
        )
    return load_reference(name)
