"""Any torch module as a teacher."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.errors import ParameterError, TeacherError
from pate.extras import require
from pate.references import did_you_mean
from pate.teachers.family import Part, TeacherFamily
from pate.teachers.neural.parts import find_augment, find_loss, find_schedule, make_module, make_optimiser
from pate.teachers.neural.stacked import Slot, make_update, train_stack
from pate.teachers.neural.training import Batches, as_inputs, final_state, own_randomness, train
from pate.validation import json_values, whole

if TYPE_CHECKING:
    from torch import Tensor
    from torch import device as Device
    from torch.nn import Module

State = dict[str, "Tensor"]
"""A module's state_dict: parameters and buffers, on the CPU, contiguous."""

STRATEGIES = ("loop", "vmap", "auto")
PREDICT_ROWS = 500  # 9,000 images at once, or not channels_last, took up to five times as long on a CPU


class TorchTeachers(TeacherFamily[State]):
    """Teachers that are torch modules, named so that recipes and workers can build them.

    module: ``"package.module:ClassOrFactory"``, called with ``parameters`` (JSON), and with ``n_classes`` and ``input_shape``
        (of one record) where it takes them. It maps float32[record, ...] to scores float32[record, class].
    loss: ``"cross_entropy"``, or a reference to ``(scores, y) -> float[record]``.
    optimiser: ``"sgd"`` (lr 0.05, momentum 0.9), ``"adam"``, ``"adamw"`` (lr 0.001), or a reference to an Optimizer class;
        ``optimiser_settings`` go to its constructor.
    schedule: of the learning rate: None, ``"cosine"``, ``"one_cycle"``, or a reference to ``(share done) -> factor``.
    augment: None, ``"affine"``, ``"shift"``, or a reference to ``(x, generator) -> x``.
    device: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"auto"``.
    channels_last: the memory layout of images; ``"auto"`` is yes on a CPU, where it is faster. Changes rounding only.
    reshape: the shape of one record, for flat images: ``[1, 28, 28]``.

    Inputs become float32 with their values unchanged: nothing is scaled, so divide pixels by a declared constant before, or
    begin the module with a norm. Images [n, height, width] get a channel axis; four axes are [n, channel, height, width].

    A teacher repeats bit by bit on one kind of CPU: it has its own random numbers (from the part's seed), runs on one thread
    and leaves torch's global random state alone.

    strategy: ``"loop"`` trains one teacher after another. ``"vmap"`` trains ``stack`` teachers at once, for a GPU: a teacher
    sits at the place ``teacher % stack`` of a stack of fixed width. ``"auto"`` is vmap on a GPU, loop on a CPU. On a GPU it
    cannot be proven that a teacher's rounding is untouched by the others in its stack: for a release use ``"loop"``, unless
    :func:`pate.teachers.independence.check_bit_independence` passes on that machine. BatchNorm's running statistics and
    dropout need ``"loop"``.
    """

    suffix: ClassVar[str] = ".safetensors"

    def __init__(
        self,
        module: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        loss: str = "cross_entropy",
        optimiser: str = "sgd",
        optimiser_settings: Mapping[str, Any] | None = None,
        epochs: int = 20,
        batch: int = 32,
        augment: str | None = None,
        device: str = "cpu",
        channels_last: bool | str = "auto",
        schedule: str | None = None,
        reshape: Sequence[int] | None = None,
        strategy: str = "loop",
        stack: int = 16,
    ) -> None:
        for value, name in ((epochs, "epochs"), (batch, "batch"), (stack, "stack")):
            whole(value, name, 1)
        if strategy not in STRATEGIES:
            raise ParameterError(f"strategy must be one of {', '.join(STRATEGIES)}, got {strategy!r}.")
        if channels_last not in (True, False, "auto"):
            raise ParameterError(f"channels_last must be true, false or 'auto', got {channels_last!r}.")
        if device not in ("cpu", "cuda", "auto") and not device.startswith("cuda:"):
            raise ParameterError(f"device must be 'cpu', 'cuda' or 'auto', got {device!r}{did_you_mean(device, ['cuda:0'])}")
        self.module = module
        self.parameters = dict(parameters or {})
        self.loss = loss
        self.optimiser = optimiser
        self.optimiser_settings = dict(optimiser_settings or {})
        self.epochs = epochs
        self.batch = batch
        self.augment = augment
        self.device = device
        self.channels_last = channels_last
        self.schedule = schedule
        self.reshape = None if reshape is None else list(reshape)
        self.strategy = strategy
        self.stack = stack
        json_values(self.settings(), type(self).__name__)

    def settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    @property
    def batch_size(self) -> int:
        return self.stack if self._stacked(self._device()) else 1

    @property
    def chunk_size(self) -> int:
        """One at a time: training a net takes long enough to be a task, and to be worth not doing again."""
        return self.batch_size

    def fit(self, part: Part, n_classes: int) -> State:
        device = self._device()
        if self._stacked(device):
            return self._fit_stack({part.teacher % self.stack: part}, n_classes, device)[part.teacher % self.stack]
        with own_randomness(part.seed, device):
            module, batches = self._prepare(part, n_classes, device)
            fused = all(each.dtype.is_floating_point for each in module.parameters())
            optimiser = make_optimiser(self.optimiser, self.optimiser_settings, list(module.parameters()), fused)
            layout = self._wants_channels_last(batches.x)
            train(module, batches, find_loss(self.loss), optimiser, find_schedule(self.schedule), layout, part.teacher)
            return final_state(module.state_dict(), part.teacher)

    def fit_batch(self, parts: Sequence[Part], n_classes: int) -> list[State]:
        """Raises if one teacher of a stack fails; :meth:`fit` then gives the others one by one, with the same bits."""
        device = self._device()
        if not self._stacked(device):
            return super().fit_batch(parts, n_classes)
        waves: list[dict[int, Part]] = []
        for part in parts:
            place = part.teacher % self.stack
            wave = next((each for each in waves if place not in each), None)
            if wave is None:
                waves.append(wave := {})
            wave[place] = part
        models: dict[int, State] = {}
        for wave in waves:
            fitted = self._fit_stack(wave, n_classes, device)
            models |= {id(part): fitted[place] for place, part in wave.items()}
        return [models[id(part)] for part in parts]

    def predict(self, model: State, x: NDArray[Any], n_classes: int) -> IntArray:
        torch = require("torch", "train")
        device = self._device()
        votes = np.zeros(len(x), dtype=np.int64)
        with own_randomness(0, device), torch.inference_mode():
            module: Module | None = None
            for start in range(0, len(x), PREDICT_ROWS):
                inputs = as_inputs(x[start : start + PREDICT_ROWS], self.reshape, device)
                if module is None:
                    module = self._build(inputs, n_classes, device)
                    _load_state(module, model)
                    module.eval()
                if self._wants_channels_last(inputs):
                    inputs = inputs.contiguous(memory_format=torch.channels_last)
                scores = _check_scores(module(inputs), len(inputs), n_classes)
                votes[start : start + len(inputs)] = scores.argmax(dim=1).cpu().numpy()
        return votes

    def save(self, model: State, path: Path) -> None:
        require("safetensors.torch", "train").save_file(model, path)

    def load(self, path: Path) -> State:
        state: State = require("safetensors.torch", "train").load_file(path)
        return state

    def _device(self) -> Device:
        torch = require("torch", "train")
        found = torch.cuda.is_available()
        if self.device.startswith("cuda") and not found:
            raise TeacherError(f"device={self.device!r} asks for a GPU, and torch finds none here. Use device='auto' or 'cpu'.")
        device: Device = torch.device(("cuda" if found else "cpu") if self.device == "auto" else self.device)
        return device

    def _stacked(self, device: Device) -> bool:
        return self.strategy == "vmap" or (self.strategy == "auto" and device.type == "cuda")

    def _wants_channels_last(self, inputs: Tensor) -> bool:
        wanted = inputs.device.type == "cpu" if self.channels_last == "auto" else bool(self.channels_last)
        return wanted and inputs.ndim == 4

    def _build(self, inputs: Tensor, n_classes: int, device: Device) -> Module:
        module = make_module(self.module, self.parameters, n_classes, inputs.shape[1:]).to(device)
        if self._wants_channels_last(inputs):
            module = module.to(memory_format=require("torch", "train").channels_last)
        return module

    def _prepare(self, part: Part, n_classes: int, device: Device) -> tuple[Module, Batches]:
        """The module with its first weights and the mini-batches of one teacher, the same for both strategies."""
        torch = require("torch", "train")
        x = as_inputs(part.x, self.reshape, device)
        y = torch.tensor(part.y, dtype=torch.int64, device=device)
        return self._build(x, n_classes, device), Batches(x, y, part.seed, self.epochs, self.batch, find_augment(self.augment))

    def _fit_stack(self, wave: Mapping[int, Part], n_classes: int, device: Device) -> dict[int, State]:
        update, rate = make_update(self.optimiser, self.optimiser_settings)
        slots: dict[int, Slot] = {}
        for place, part in wave.items():
            with own_randomness(part.seed, device):
                slots[place] = Slot(*self._prepare(part, n_classes, device))
        some = next(iter(slots.values())).batches
        if some is None:
            raise TeacherError("A stack needs at least one teacher, got none.")
        with own_randomness(0, device):
            base = self._build(some.x, n_classes, device)
            filled = [slots.get(place, Slot(base, None)) for place in range(self.stack)]
            rows = max(2, self.batch)  # a mini-batch of one record holds it twice
            loss, schedule = find_loss(self.loss), find_schedule(self.schedule)
            states = train_stack(base, filled, some.x.shape[1:], rows, loss, update, rate, schedule)
            return {place: final_state(states[place], part.teacher) for place, part in wave.items()}


def _load_state(module: Module, model: State) -> None:
    try:
        module.load_state_dict(model)
    except RuntimeError as error:
        raise TeacherError(
            "A saved teacher does not fit the module built for these queries: the queries must have the shape of the teacher's "
            f"records, and module and parameters must be those it was trained with. {error}"
        ) from None


def _check_scores(scores: Any, n: int, n_classes: int) -> Tensor:
    torch = require("torch", "train")
    if not isinstance(scores, torch.Tensor) or scores.shape != (n, n_classes):
        shape = tuple(getattr(scores, "shape", ())) or type(scores).__name__
        raise TeacherError(f"A module must return scores [record, {n_classes} classes] for {n} records, got {shape}.")
    if not torch.isfinite(scores).all():
        raise TeacherError("A teacher's scores on the queries are NaN or infinite. Scale the queries as its records were.")
    found: Tensor = scores
    return found
