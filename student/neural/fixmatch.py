"""Consistency training with pseudo-labels: the FixMatch family."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from pate.arrays import IntArray
from pate.errors import StudentError
from pate.references import did_you_mean
from pate.student.neural.base import Lesson, NeuralStudent
from pate.student.neural.losses import generalised_cross_entropy
from pate.student.neural.nets import Net

Guide = Literal["average", "live"]

_ALIGNMENTS = ("none", "labels", "uniform")
_MEMORY = 0.99


@dataclass(eq=False, repr=False, kw_only=True)
class FixMatch(NeuralStudent):
    """Consistency training: says of strongly distorted public records what it is sure of when they are weakly distorted.

    Sohn et al., "FixMatch" (2020, arXiv 2001.07685). The loss is that of the labelled queries + ``weight`` x cross-entropy of
    strongly distorted public records towards pseudo-labels, where those are confident enough.

    weak: strength of the distortion before pseudo-labels are predicted; ``strength`` is the strong one, and that of labels.
    guide: which network predicts pseudo-labels: the "average" of weights, or the "live" one, as in the paper.
    threshold: how likely the best class must be for a pseudo-label to count.
    temperature: 0 makes pseudo-labels the best class alone; above, they are the predicted shares to the power 1/temperature.
    weight: of the public records' loss.
    robust: q of the generalised cross-entropy (1 - p^q)/q of the labelled queries (Zhang and Sabuncu 2018, arXiv 1805.07836):
        0 is the usual one, which insists on wrong labels; 1 hardly listens to a label that it disbelieves.
    alignment: what shares the classes are assumed to have among the public records. Pseudo-labels are scaled towards them
        (ReMixMatch, Berthelot et al. 2020, arXiv 1911.09785); a wrong assumption makes wrong labels.
        "none": nothing is assumed.
        "labels": the shares among the answered labels, one more counted for each class. That is the marginal of the
            *queries*: natural shares if they were drawn at random; medoids and k-centre queries over-represent rare kinds.
        "uniform": all classes are as frequent.
        [share of class 0, share of class 1, ...]: what you know from elsewhere, if it is public.
    """

    name: ClassVar[str] = "fixmatch"

    weak: float = 0.2
    guide: Guide = "average"
    threshold: float = 0.95
    temperature: float = 0.0
    weight: float = 3.0
    robust: float = 0.7
    alignment: str | Sequence[float] = "none"
    width: int = 16
    steps: int = 600
    public_batch: int = 192

    def __post_init__(self) -> None:
        super().__post_init__()
        for what in ("weak", "temperature", "weight"):
            if not 0 <= getattr(self, what) < math.inf:
                raise StudentError(f"{self.title} {what} must be finite and not negative, got {getattr(self, what)!r}.")
        for what in ("threshold", "robust"):
            if not 0 <= getattr(self, what) <= 1:
                raise StudentError(f"{self.title} {what} must be between 0 and 1, got {getattr(self, what)!r}.")
        if self.guide not in get_args(Guide):
            raise StudentError(f"{self.title} guide must be one of {', '.join(get_args(Guide))}, got {self.guide!r}.")
        self.alignment = _checked_alignment(self.alignment)

    def _loss(self, net: Net, average: Net, lesson: Lesson) -> Iterator[tuple[Tensor, dict[str, float]]]:
        guide = average if self.guide == "average" else net
        wanted = class_shares(self.alignment, lesson.answers.class_counts)
        wanted = None if wanted is None else wanted.to(lesson.public.device)
        lately: Tensor | None = None  # float32[class]: mean beliefs over about the last 100 steps
        batches = zip(lesson.labelled_batches(self.batch), lesson.public_batches(self.public_batch), strict=False)
        for (records, labels), public in batches:
            with torch.no_grad():
                believed = guide(lesson.augment(public, self.weak)).softmax(dim=1)
                if wanted is not None:
                    now = believed.mean(dim=0)
                    lately = now if lately is None else torch.lerp(now, lately, _MEMORY)
                    believed = aligned(believed, lately, wanted)
                sure = (believed.amax(dim=1) >= self.threshold).float()
                goal = sharpened(believed, self.temperature)
            strong = [lesson.augment(records, self.strength), lesson.augment(public, self.strength)]
            known, unknown = net(torch.cat(strong)).split([len(records), len(public)])
            taught = generalised_cross_entropy(known, labels, self.robust).mean()
            consistency = (sure * functional.cross_entropy(unknown, goal, reduction="none")).mean()
            numbers = {
                "labelled": float(taught.detach()),
                "consistency": float(consistency.detach()),
                "sure": float(sure.mean()),
            }
            yield taught + self.weight * consistency, numbers


def aligned(probabilities: Tensor, found: Tensor, wanted: Tensor) -> Tensor:
    """float32[record, class], scaled by wanted / found and normalised: classes predicted too often become less likely.

    probabilities: float32[record, class]; found, wanted: float32[class], the shares that are predicted and assumed.
    """
    scaled = probabilities * (wanted / found.clamp(min=1e-6))
    return scaled / scaled.sum(dim=1, keepdim=True)


def sharpened(probabilities: Tensor, temperature: float) -> Tensor:
    """float32[record, class]: to the power 1/temperature and normalised; at temperature 0 the best class alone."""
    if temperature == 0:
        return functional.one_hot(probabilities.argmax(dim=1), probabilities.shape[1]).to(probabilities.dtype)
    return (probabilities.clamp(min=1e-12).log() / temperature).softmax(dim=1)


def class_shares(alignment: str | Sequence[float], class_counts: IntArray) -> Tensor | None:
    """float32[class]: the class shares that ``alignment`` assumes; None for "none". class_counts: int64[class] of labels."""
    if alignment == "none":
        return None
    if alignment == "uniform":
        shares = torch.ones(len(class_counts))
    elif alignment == "labels":
        shares = 1.0 + torch.from_numpy(class_counts).float()
    else:
        shares = torch.tensor([float(each) for each in alignment])
        if len(shares) != len(class_counts):
            raise StudentError(
                f"alignment must give a share for each of {len(class_counts)} classes, got {len(shares)} shares."
            )
    return shares / shares.sum()


def _checked_alignment(alignment: str | Sequence[float]) -> str | list[float]:
    """``alignment`` as a JSON value; or an error."""
    rule = f"alignment must be {', '.join(map(repr, _ALIGNMENTS))} or a list of class shares"
    if isinstance(alignment, str):
        if alignment not in _ALIGNMENTS:
            raise StudentError(f"{rule}, got {alignment!r}{did_you_mean(alignment, _ALIGNMENTS)}")
        return alignment
    try:
        shares = [float(each) for each in alignment]
    except (TypeError, ValueError):
        raise StudentError(f"{rule}, got {alignment!r}.") from None
    if len(shares) < 2 or not all(0 < each < 1 for each in shares) or abs(sum(shares) - 1) > 1e-3:
        raise StudentError(f"{rule}, each above 0 and with the sum 1, got {alignment!r}.")
    return shares
