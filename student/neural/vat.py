"""Virtual adversarial training, the student of PATE 2018."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from pate.errors import StudentError
from pate.student.neural.base import Lesson, NeuralStudent
from pate.student.neural.losses import generalised_cross_entropy
from pate.student.neural.nets import Net
from pate.validation import positive, whole


@dataclass(eq=False, repr=False, kw_only=True)
class VAT(NeuralStudent):
    """Virtual adversarial training: predictions for public records must not change nearby, in the worst direction.

    Miyato, Maeda, Koyama and Ishii, "Virtual Adversarial Training" (2018, arXiv 1704.03976); the student of PATE 2018. The
    loss is cross-entropy on the labelled queries + ``weight`` x local distributional smoothness on public records +
    ``entropy`` x the entropy of predictions for them (VAT+EntMin in the paper).

    radius: the paper's epsilon as a share of the spread of public records, so that it means the same for any size and scale of
        record; see :class:`Ball`. 0.25 is 1.8 for 28 x 28 digits between 0 and 1.
    xi: length of the step that finds the worst direction by finite differences, as a share of ``radius``.
    power_steps: rounds of power iteration. One is enough in the paper.
    weight, entropy: of the two losses on public records; 0 leaves one out.
    robust: 0 for cross-entropy on the labelled queries; up to 1, the less a wrong label can pull, see
        :func:`~pate.student.neural.losses.generalised_cross_entropy`.
    ramp: share of the steps over which ``entropy`` and ``robust`` grow from 0. From the start, both would make the first
        guesses final.
    public_strength: of the random variants of public records that smoothness is asked of; ``strength`` is for labelled ones.
    """

    name: ClassVar[str] = "vat"

    radius: float = 0.25
    xi: float = 0.1
    power_steps: int = 1
    weight: float = 1.0
    entropy: float = 1.0
    robust: float = 0.7
    ramp: float = 0.4
    public_strength: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self.radius, f"{self.title} radius")
        positive(self.xi, f"{self.title} xi")
        whole(self.power_steps, f"{self.title} power_steps", 1)
        check_losses(self)

    def _loss(self, net: Net, average: Net, lesson: Lesson) -> Iterator[tuple[Tensor, dict[str, float]]]:
        ball = Ball.around(lesson.public, self.radius)
        batches = zip(lesson.labelled_batches(self.batch), lesson.public_batches(self.public_batch), strict=False)
        for step, ((records, labels), public) in enumerate(batches):
            grown = ramped(step, self.ramp * self.steps)
            with still_statistics(net):
                scores = net(lesson.augment(records, self.strength))
            known = generalised_cross_entropy(scores, labels, grown * self.robust).mean()
            seen = lesson.augment(public, self.public_strength)
            clean = net(seen)  # the one pass that moves the running statistics: predictions are for records like these
            with still_statistics(net):
                moves = worst_direction(net, seen, clean.detach(), ball, self.xi, self.power_steps)
                rough = divergence(clean.detach(), net(seen + moves))
            doubt = entropy_of(clean)
            parts = {"labelled": known, "smoothness": rough, "entropy": doubt}
            total = known + self.weight * rough + grown * self.entropy * doubt
            yield total, {name: float(value.detach()) for name, value in parts.items()}


def check_losses(student: NeuralStudent) -> None:
    """Raise unless the parameters that VAT and GAN share are in their ranges."""
    for what, most in (
        ("weight", math.inf),
        ("entropy", math.inf),
        ("public_strength", math.inf),
        ("robust", 1.0),
        ("ramp", 1.0),
    ):
        value = getattr(student, what)
        if not (math.isfinite(value) and 0 <= value <= most):
            rule = "finite and not negative" if most == math.inf else "between 0 and 1"
            raise StudentError(f"{student.title} {what} must be {rule}, got {value!r}.")


def ramped(step: int, steps: float) -> float:
    """From 0 to 1 over the first ``steps`` steps, then 1."""
    return min(1.0, step / steps) if steps > 0 else 1.0


@dataclass(frozen=True, eq=False)
class Ball:
    """How far a record may be moved: the L2 norm of (its change / ``unit``) is at most ``epsilon``.

    unit: for tables float32[column], the standard deviation of each (0: a constant, never moved); for pictures 1.
    """

    epsilon: float
    unit: Tensor

    @classmethod
    def around(cls, public: Tensor, radius: float) -> Ball:
        """``radius`` x the root mean square distance, in units, of ``public`` [record, ...] from their mean."""
        deviation = public.std(dim=0, correction=0)
        unit = deviation if public.ndim == 2 else torch.ones((), device=public.device)
        moved = torch.where(unit > 0, deviation / unit, 0)
        return cls(radius * float(moved.norm()), unit)

    def surface(self, direction: Tensor) -> Tensor:
        """Moves of norm epsilon, [record, ...], along a direction in units, [record, ...]."""
        return self.unit * self.epsilon * self.unit_step(direction)

    def unit_step(self, direction: Tensor) -> Tensor:
        """``direction`` in units, [record, ...], with norm 1 and no part in constant columns."""
        return unit_norm(torch.where(self.unit > 0, direction, 0))


def worst_direction(net: nn.Module, x: Tensor, scores: Tensor, ball: Ball, xi: float, power_steps: int) -> Tensor:
    """The moves, on the surface of the ball, that change the predictions ``scores`` [record, class] at x the most.

    Power iteration for the dominant eigenvector of the Hessian of the divergence (section 3.3 of the paper).
    """
    direction = torch.randn_like(x)
    for _ in range(power_steps):
        # The slope at the step itself: through its norm, the part along the step, which should grow, would be lost.
        step = ball.unit_step(direction).requires_grad_(True)
        moved = divergence(scores, net(x + ball.unit * (xi * ball.epsilon) * step))
        (direction,) = torch.autograd.grad(moved, step)
    return ball.surface(direction)


def divergence(scores: Tensor, others: Tensor) -> Tensor:
    """Mean over records of KL(softmax(scores) || softmax(others)), both [record, class]."""
    return functional.kl_div(others.log_softmax(dim=1), scores.log_softmax(dim=1), reduction="batchmean", log_target=True)


def entropy_of(scores: Tensor) -> Tensor:
    """Mean over records of the entropy of softmax(scores), [record, class]."""
    logs = scores.log_softmax(dim=1)
    return -(logs.exp() * logs).sum(dim=1).mean()


def unit_norm(x: Tensor) -> Tensor:
    """Each record of x [record, ...] divided by its L2 norm; zeros stay zeros."""
    flat = x.flatten(1)
    # Gradients may be as small as 1e-30, whose squares are 0 in float32: the largest is made 1 first.
    flat = flat / flat.abs().amax(dim=1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
    return functional.normalize(flat, dim=1).reshape(x.shape)


@contextmanager
def still_statistics(net: nn.Module) -> Iterator[None]:
    """Inside the block batch norms use the statistics of their batch, and do not add them to the running ones."""
    norms = [each for each in net.modules() if isinstance(each, _BatchNorm) and each.track_running_stats]
    for each in norms:
        each.track_running_stats = False
    try:
        yield
    finally:
        for each in norms:
            each.track_running_stats = True
