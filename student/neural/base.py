"""What all neural students share: tensors, a network, an average of its weights, prediction, files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pate.errors import StudentError
from pate.extras import require
from pate.student.answers import Answers
from pate.student.base import Student
from pate.student.diary import Diary
from pate.student.neural.augment import MOST_VIEWS, Augment, augment_named, fixed_views
from pate.student.neural.descent import Average, adamw, descend
from pate.student.neural.inputs import as_tensor, endless, own_randomness
from pate.student.neural.nets import Net, make_net
from pate.validation import positive, whole

Precision = Literal["float32", "bfloat16"]

_PREDICT_ROWS = 500
_WEIGHTS = "weights.safetensors"


@dataclass(frozen=True, eq=False)
class Lesson:
    """What a neural student learns from, on its device.

    public: float32[record, ...]; rows: int64[answer]; labels: int64[answer], the noisy labels of public[rows].
    """

    public: Tensor
    rows: Tensor
    labels: Tensor
    n_classes: int
    augment: Augment
    answers: Answers

    def labelled_batches(self, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(records, labels) again and again, in random order."""
        for chosen in endless(len(self.rows), batch):
            yield self.public[self.rows[chosen]], self.labels[chosen]

    def public_batches(self, batch: int) -> Iterator[Tensor]:
        for chosen in endless(len(self.public), min(batch, len(self.public))):
            yield self.public[chosen]


@dataclass(eq=False, repr=False, kw_only=True)
class NeuralStudent(Student):
    """A network trained with AdamW; the average of its weights over the last steps is what predicts.

    net: "conv", "mlp", "auto" (by the shape of a record), or "package.module:factory".
    width: channels of the first layer of "conv" (later ones have more), neurons of each layer of "mlp".
    steps, batch, public_batch: steps of training, labelled and public records in each.
    rate, weight_decay: of AdamW; the rate goes up and down once.
    ema: how slowly the average of weights follows, 0 to below 1.
    augment, strength: random variants of records; see :func:`pate.student.neural.augment.augment_named`.
    views: predictions for a picture are averaged over it and ``views`` - 1 slightly turned, scaled or moved versions; up to 9.
    shape: of one record, for flat pictures: [28, 28] or [3, 32, 32].
    device: a torch device.
    precision: "float32", or "bfloat16" for the products inside the network while it trains: measured on a CPU with avx512_bf16,
        a step of "conv" took 0.65 of the time, without random variants. Weights, losses and predictions are float32.
    """

    net: str = "auto"
    width: int = 32
    steps: int = 1000
    batch: int = 64
    public_batch: int = 128
    rate: float = 3e-3
    weight_decay: float = 1e-3
    ema: float = 0.99
    augment: str = "auto"
    strength: float = 0.7
    views: int = 1
    shape: Sequence[int] | None = None
    device: str = "cpu"
    precision: Precision = "float32"
    seed: int = 0

    def __post_init__(self) -> None:
        for what in ("width", "steps", "batch", "public_batch", "views"):
            whole(getattr(self, what), f"{self.title} {what}", 1)
        positive(self.rate, f"{self.title} rate")
        if self.views > MOST_VIEWS:
            raise StudentError(f"{self.title} views must be at most {MOST_VIEWS}, got {self.views}.")
        if not 0 <= self.ema < 1:
            raise StudentError(f"{self.title} ema must be at least 0 and below 1, got {self.ema!r}.")
        for what in ("weight_decay", "strength"):
            if not getattr(self, what) >= 0:
                raise StudentError(f"{self.title} {what} must not be negative, got {getattr(self, what)!r}.")
        if self.precision not in get_args(Precision):
            raise StudentError(
                f"{self.title} precision must be one of {', '.join(get_args(Precision))}, got {self.precision!r}."
            )
        self.shape = None if self.shape is None else list(self.shape)

    def _loss(self, net: Net, average: Net, lesson: Lesson) -> Iterator[Tensor | tuple[Tensor, dict[str, float]]]:
        """One loss after another, as many as are asked for; each after a step on the one before. ``average`` moves along.

        A student writes this, or :meth:`_train` if it does not fit.
        """
        raise NotImplementedError(f"{self.title} must write _loss or _train.")

    def _fit(self, x: NDArray[Any], answers: Answers, diary: Diary) -> None:
        with own_randomness(self.seed):
            self._net = _settled(self._train(self._lesson(x, answers), diary))

    def _lesson(self, x: NDArray[Any], answers: Answers) -> Lesson:
        public = as_tensor(x, self.shape).to(self.device)
        rows, labels = (torch.from_numpy(each).to(self.device) for each in (answers.rows, answers.labels))
        return Lesson(public, rows, labels, answers.n_classes, augment_named(self.augment, tuple(public.shape[1:])), answers)

    def _train(self, lesson: Lesson, diary: Diary) -> Net:
        net = self._build(tuple(lesson.public.shape[1:]), lesson.n_classes)
        average = Average(net, self.ema)
        losses = self._loss(net, average.module, lesson)  # type: ignore[arg-type]  # a copy of net
        optimiser = adamw(net, self.rate, self.weight_decay)
        descend(net, optimiser, lambda share: next(losses), self.steps, diary, average=average)
        return average.module  # type: ignore[return-value]

    def _build(self, input_shape: tuple[int, ...], n_classes: int) -> Net:
        net = self._blank(input_shape, n_classes).to(self.device)
        net.precision = getattr(torch, self.precision)
        return net

    def _blank(self, input_shape: tuple[int, ...], n_classes: int) -> Net:
        """The network before training."""
        return make_net(self.net, input_shape, n_classes, self.width)

    def _probabilities(self, x: NDArray[Any]) -> NDArray[np.floating]:
        found = []
        with own_randomness(self.seed), torch.inference_mode():
            for start in range(0, len(x), _PREDICT_ROWS):
                records = as_tensor(x[start : start + _PREDICT_ROWS], self.shape).to(self.device)
                found.append(self._views_mean(records).cpu().numpy())
        return np.concatenate(found)

    def _views_mean(self, records: Tensor) -> Tensor:
        """float32[record, class]: probabilities, averaged over the views."""
        views = fixed_views(records, self.views) if records.ndim == 4 else iter([records])
        return torch.stack([self._net(view).softmax(dim=1) for view in views]).mean(dim=0)

    def _save(self, folder: Path) -> None:
        state = {name: value.detach().cpu().contiguous() for name, value in self._net.state_dict().items()}
        require("safetensors.torch", "train").save_file(state, folder / _WEIGHTS)

    def _load(self, folder: Path) -> None:
        record = self.record
        example = as_tensor(np.zeros((1, *record["record_shape"]), dtype=np.float32), self.shape)
        with own_randomness(self.seed):
            self._net = _settled(self._build(tuple(example.shape[1:]), record["n_classes"]))
        self._net.load_state_dict(require("safetensors.torch", "train").load_file(folder / _WEIGHTS))


def _settled(net: Net) -> Net:
    """Ready to predict: no gradients, running statistics, full precision."""
    net.precision = torch.float32
    return net.eval().requires_grad_(False)
