"""One teacher's training: its own mini-batches, its own random numbers, nothing from outside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pate.errors import ParameterError, TeacherError
from pate.execution.threads import one_thread
from pate.extras import require

if TYPE_CHECKING:
    from torch import Tensor
    from torch import device as Device
    from torch.nn import Module
    from torch.optim import Optimizer

    from pate.teachers.neural.parts import Augment, Loss, Schedule

_SEEDS = 2**63
_AUGMENT_STREAM = 0x9E3779B97F4A7C15  # shuffles and augmentation draw from streams of their own


@dataclass(frozen=True)
class Batches:
    """The mini-batches of one teacher, in order: a function of its own records and its seed.

    An epoch's shuffled records are cut into equal mini-batches (sizes differ by one at most), so that no epoch ends with a
    stray record, which BatchNorm cannot take. A mini-batch of one record holds it twice: its mean loss is the same.
    """

    x: Tensor
    y: Tensor
    seed: int
    epochs: int
    batch: int
    augment: Augment | None

    @property
    def per_epoch(self) -> int:
        return -(-len(self.x) // self.batch)

    @property
    def steps(self) -> int:
        return self.epochs * self.per_epoch

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        torch = require("torch", "train")
        shuffles = torch.Generator().manual_seed(self.seed % _SEEDS)
        changes = torch.Generator().manual_seed((self.seed ^ _AUGMENT_STREAM) % _SEEDS)
        for _ in range(self.epochs):
            x = self.x if self.augment is None else self.augment(self.x, changes)
            order = torch.randperm(len(x), generator=shuffles).to(x.device)
            for chosen in order.tensor_split(self.per_epoch):
                index = chosen if len(chosen) > 1 else chosen.repeat(2)
                yield x.index_select(0, index), self.y.index_select(0, index)


def as_inputs(x: NDArray[Any], reshape: Sequence[int] | None, device: Device) -> Tensor:
    """``x`` as float32 on ``device``, values unchanged. Images [n, height, width] get a channel axis; rows [n, d] do not.

    The numbers are copied: memory of our own is aligned alike for everyone, and rounding may depend on alignment.
    """
    torch = require("torch", "train")
    if reshape is not None:
        try:
            x = x.reshape(len(x), *reshape)
        except ValueError:
            raise ParameterError(f"reshape={list(reshape)} does not suit records of shape {x.shape[1:]}.") from None
    inputs: Tensor = torch.tensor(np.ascontiguousarray(x), dtype=torch.float32, device=device)
    return inputs.unsqueeze(1) if inputs.ndim == 3 else inputs


@contextmanager
def own_randomness(seed: int, device: Device) -> Iterator[None]:
    """torch on one thread, seeded for the block; the random state outside is as if the block had not been."""
    torch = require("torch", "train")
    with ExitStack() as stack:
        stack.enter_context(one_thread())
        if device.type == "cuda":
            stack.enter_context(torch.random.fork_rng(devices=[device]))
            stack.enter_context(torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False))
            torch.cuda.manual_seed(seed % _SEEDS)
        else:
            stack.enter_context(torch.random.fork_rng(devices=[]))
        torch.default_generator.manual_seed(seed % _SEEDS)  # torch.manual_seed would touch every GPU's state too
        yield


def train(
    module: Module,
    batches: Batches,
    loss: Loss,
    optimiser: Optimizer,
    schedule: Schedule,
    channels_last: bool,
    teacher: int,
) -> list[float]:
    """Train ``module`` in place, one mini-batch after another; the mean loss of each epoch."""
    torch = require("torch", "train")
    rates = [group["lr"] for group in optimiser.param_groups]
    losses: list[float] = []
    total: Any = 0.0
    module.train()
    for step, (x, y) in enumerate(batches):
        factor = schedule(step / batches.steps)
        for group, rate in zip(optimiser.param_groups, rates, strict=True):
            group["lr"] = rate * factor
        if channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        optimiser.zero_grad()
        value = loss(module(x), y).mean()
        value.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        total = total + value.detach()
        if (step + 1) % batches.per_epoch == 0:
            losses.append(float(total) / batches.per_epoch)
            total = 0.0
            check_finite(losses[-1:], teacher)
    return losses


def check_finite(values: Sequence[float], teacher: int) -> None:
    """A teacher whose numbers left the finite ones has failed: its votes would be an accident."""
    if not np.isfinite(values).all():
        raise TeacherError(
            f"Teacher {teacher}: its loss or weights became NaN or infinite. Lower the learning rate, or scale the inputs by a "
            "declared constant."
        )


def final_state(state: dict[str, Tensor], teacher: int) -> dict[str, Tensor]:
    """The state as contiguous tensors on the CPU, each with memory of its own; all finite, or an error."""
    torch = require("torch", "train")
    kept = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in state.items()}
    check_finite([float(torch.isfinite(value).all()) or np.nan for value in kept.values()], teacher)
    return kept
