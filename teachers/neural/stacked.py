"""Several teachers trained at once: their parameters stacked, their gradients from one ``vmap(grad)``. Meant for a GPU.

What makes a teacher's numbers its own, bit by bit: the stack has a fixed width and every mini-batch a fixed number of rows
(short ones are filled with rows of weight 0), so the kernels and the place of a teacher's numbers in memory do not depend on
anybody's data; a teacher takes as many steps as its own records ask for and is held still after that; nothing is summed
across teachers. That each slice of a kernel's result depends on its own slice alone is true of the CPU kernels (tested) and
expected, not proven, of GPU kernels: see :func:`pate.teachers.independence.check_bit_independence`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pate.errors import ParameterError, TeacherError
from pate.extras import require
from pate.teachers.neural.parts import OPTIMISER_DEFAULTS

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from pate.teachers.neural.parts import Loss, Schedule
    from pate.teachers.neural.training import Batches

Tensors = dict[str, "Tensor"]
Update = Callable[["Tensor", "Tensor", "list[Tensor]", "Tensor", int], "Tensor"]
"""(parameter, gradient, its two memories (replaced), learning rate, steps before) -> new parameter; tensors are [slot, ...]."""

_SETTINGS = {
    "sgd": {"lr", "momentum", "weight_decay", "nesterov"},
    "adam": {"lr", "betas", "eps", "weight_decay"},
    "adamw": {"lr", "betas", "eps", "weight_decay"},
}


@dataclass(frozen=True)
class Slot:
    """One place of the stack; ``batches`` is None where no teacher sits, and the module there is a public dummy."""

    module: Module
    batches: Batches | None


def train_stack(
    base: Module,
    slots: Sequence[Slot],
    record_shape: Sequence[int],
    width: int,
    loss: Loss,
    update: Update,
    rate: float,
    schedule: Schedule,
) -> list[Tensors]:
    """Train the teachers in ``slots``; the final state of each slot.

    base: gives the structure only, and is nobody's: what a module may hold besides its state is then the same for all.
    width: rows of every mini-batch.
    """
    torch = require("torch", "train")
    check_stackable(base)
    parameters = _stack([dict(slot.module.named_parameters()) for slot in slots])
    buffers = _stack([dict(slot.module.named_buffers()) for slot in slots])
    device = next(iter(parameters.values())).device

    def slot_loss(own: Tensors, fixed: Tensors, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        each = loss(torch.func.functional_call(base, (own, fixed), (x,)), y)
        if each.shape != y.shape:
            raise ParameterError("strategy='vmap' needs a loss that returns one value a record (reduction='none').")
        mean: Tensor = (each * weight).sum() / weight.sum()
        return mean

    gradients = torch.func.vmap(torch.func.grad(slot_loss), randomness="error")
    feeds = [None if slot.batches is None else iter(slot.batches) for slot in slots]
    totals = [0 if slot.batches is None else slot.batches.steps for slot in slots]
    x = torch.zeros(len(slots), width, *record_shape, device=device)
    y = torch.zeros(len(slots), width, dtype=torch.int64, device=device)
    weight = torch.ones(len(slots), width, device=device)
    memories: dict[str, list[Tensor]] = {name: [torch.zeros_like(p), torch.zeros_like(p)] for name, p in parameters.items()}
    for step in range(max(totals)):
        for place, feed in enumerate(feeds):
            if feed is not None and step < totals[place]:
                _fill(x[place], y[place], weight[place], feed)
        rates = [rate * schedule(step / total) if step < total else 0.0 for total in totals]
        try:
            found = gradients(parameters, buffers, x, y, weight)
        except RuntimeError as error:
            raise TeacherError(f"This module or loss cannot be stacked ({error}). Use strategy='loop' for it.") from error
        for name, own in parameters.items():
            each = (len(slots),) + (1,) * (own.ndim - 1)
            running = torch.tensor([step < total for total in totals], device=device).view(each)
            new = update(own, found[name], memories[name], torch.tensor(rates, device=device).view(each), step)
            parameters[name] = torch.where(running, new, own)
    return [{name: value[place] for name, value in {**parameters, **buffers}.items()} for place in range(len(slots))]


def check_stackable(module: Module) -> None:
    """Raise for layers whose training step cannot be stacked, naming the way out."""
    nn = require("torch.nn", "train")
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) or getattr(layer, "track_running_stats", False):
            raise ParameterError(
                f"strategy='vmap' cannot keep the batch statistics of layer {name!r} ({type(layer).__name__}): mini-batches "
                "are filled up to one size. Use GroupNorm in its place, or strategy='loop'."
            )
        if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0:
            raise ParameterError(
                f"strategy='vmap' cannot draw the random numbers of layer {name!r} ({type(layer).__name__}) for each teacher "
                "alone. Leave it out, use augment= in its place, or strategy='loop'."
            )


def make_update(name: str, settings: Mapping[str, Any] | None) -> tuple[Update, float]:
    """The update rule of torch's own optimiser of that name on stacked tensors, and its learning rate."""
    if name not in _SETTINGS:
        raise ParameterError(f"strategy='vmap' knows the optimisers {', '.join(_SETTINGS)}, got {name!r}. Use strategy='loop'.")
    given = {**OPTIMISER_DEFAULTS[name], **(settings or {})}
    unknown = sorted(given.keys() - _SETTINGS[name])
    if unknown:
        raise ParameterError(
            f"strategy='vmap' takes the optimiser_settings {', '.join(sorted(_SETTINGS[name]))} for {name!r}, got "
            f"{', '.join(unknown)} too. Leave them out, or use strategy='loop'."
        )
    rate = float(given.pop("lr"))
    return (_sgd(**given) if name == "sgd" else _adam(decoupled=name == "adamw", **given)), rate


def _sgd(momentum: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False) -> Update:
    def update(own: Any, gradient: Any, memory: Any, rate: Any, _: int) -> Any:
        gradient = gradient + weight_decay * own
        memory[0] = momentum * memory[0] + gradient
        return own - rate * (gradient + momentum * memory[0] if nesterov else memory[0])

    return update


def _adam(
    decoupled: bool, betas: Sequence[float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float | None = None
) -> Update:
    decay = weight_decay or 0.0

    def update(own: Any, gradient: Any, memory: Any, rate: Any, before: int) -> Any:
        if decoupled:
            own = own * (1 - rate * decay)
        else:
            gradient = gradient + decay * own
        memory[0] = betas[0] * memory[0] + (1 - betas[0]) * gradient
        memory[1] = betas[1] * memory[1] + (1 - betas[1]) * gradient * gradient
        mean, square = (memory[place] / (1 - betas[place] ** (before + 1)) for place in (0, 1))
        return own - rate * mean / (square.sqrt() + eps)

    return update


def _stack(states: Sequence[Mapping[str, Tensor]]) -> Tensors:
    torch = require("torch", "train")
    return {name: torch.stack([state[name].detach() for state in states]) for name in states[0]}


def _fill(x: Tensor, y: Tensor, weight: Tensor, feed: Iterator[tuple[Tensor, Tensor]]) -> None:
    """One teacher's next mini-batch into its rows; rows past its end keep an old record of its own, with weight 0."""
    rows, labels = next(feed)
    x[: len(rows)], y[: len(rows)] = rows, labels
    weight.zero_()
    weight[: len(rows)] = 1
