"""The semi-supervised GAN with feature matching, the student of PATE 2017."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from pate.student.neural.base import Lesson, NeuralStudent
from pate.student.neural.descent import one_cycle
from pate.student.neural.gan_nets import LATENT, Units, make_generator, without_batch_norm
from pate.student.neural.losses import generalised_cross_entropy
from pate.student.neural.nets import Net
from pate.student.neural.vat import check_losses, entropy_of, ramped
from pate.validation import positive, whole


@dataclass(eq=False, repr=False, kw_only=True)
class GAN(NeuralStudent):
    """A semi-supervised GAN: the classifier also learns to tell public records from generated ones.

    Salimans, Goodfellow, Zaremba, Cheung, Radford and Chen, "Improved Techniques for Training GANs" (2016, arXiv 1606.03498),
    sections 3.1 and 5; the student of PATE 2017. The generator learns to give its records the mean embedding of public ones; it
    is thrown away after fitting.

    net: as for every neural student, but with group norms in the place of batch norms; see
        :func:`~pate.student.neural.gan_nets.without_batch_norm`.
    weight: of telling public from generated records, beside the loss on the labelled queries.
    entropy: weight of the entropy of predictions for public records; 0 is the paper's.
    generator_width: channels before its last layer for pictures, a quarter of the neurons of each layer for tables.
    generator_rate: its learning rate; it goes up and down as ``rate`` does.
    robust: as for :class:`~pate.student.neural.vat.VAT`: 0 for cross-entropy, up to 1, the less a wrong label can pull.
    ramp: share of the steps over which ``entropy`` and ``robust`` grow from 0.
    public_strength: of the random variants of public records; ``strength`` is for labelled ones.
    """

    name: ClassVar[str] = "gan"

    weight: float = 0.3
    entropy: float = 1.0
    generator_width: int = 16
    generator_rate: float = 3e-3
    robust: float = 0.7
    ramp: float = 0.4
    public_strength: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self.generator_width, f"{self.title} generator_width", 1)
        positive(self.generator_rate, f"{self.title} generator_rate")
        check_losses(self)

    def _blank(self, input_shape: tuple[int, ...], n_classes: int) -> Net:
        return without_batch_norm(super()._blank(input_shape, n_classes))

    def _loss(self, net: Net, average: Net, lesson: Lesson) -> Iterator[tuple[Tensor, dict[str, float]]]:
        for each in net.modules():
            if isinstance(each, Units):
                each.measure(lesson.public)
        generator = make_generator(lesson.public, self.generator_width)
        optimiser = torch.optim.Adam(generator.parameters(), lr=self.generator_rate, betas=(0.5, 0.999))
        batches = zip(lesson.labelled_batches(self.batch), lesson.public_batches(self.public_batch), strict=False)
        for step, ((records, labels), public) in enumerate(batches):
            optimiser.param_groups[0]["lr"] = self.generator_rate * one_cycle((step + 0.5) / self.steps)
            scores = net(lesson.augment(records, self.strength))
            embedded = net.embed(lesson.augment(public, self.public_strength))
            made, distance = match_features(net, generator, optimiser, embedded.detach())
            guesses = net.head(embedded)
            grown = ramped(step, self.ramp * self.steps)
            known = generalised_cross_entropy(scores, labels, grown * self.robust).mean()
            told = telling_loss(guesses, net.head(made))
            doubt = entropy_of(guesses)
            parts = {"labelled": known, "telling": told, "entropy": doubt, "distance": distance}
            total = known + self.weight * told + grown * self.entropy * doubt
            yield total, {name: float(value.detach()) for name, value in parts.items()}


def match_features(net: Net, generator: nn.Module, optimiser: torch.optim.Optimizer, features: Tensor) -> tuple[Tensor, Tensor]:
    """One step of the generator towards the mean of ``features`` [record, feature], those of public records.

    Returns the features of as many generated records, ready for the discriminator's own step, and the distance before this
    step.
    """
    made = generator(torch.randn(len(features), LATENT, device=features.device))
    # Cut here, so that one pass through the discriminator serves both: its own loss must not move the generator.
    shown = made.detach().requires_grad_(True)
    found = net.embed(shown)
    distance = feature_distance(features, found)
    (slope,) = torch.autograd.grad(distance, shown, retain_graph=True)
    optimiser.zero_grad(set_to_none=True)
    made.backward(slope)
    optimiser.step()
    return found, distance


def telling_loss(public: Tensor, made: Tensor) -> Tensor:
    """How badly scores [record, class] tell public records from made ones.

    The class "made" has the fixed score log(classes). The paper's is 0, which is the same up to a constant in the head's bias;
    but from there an untrained network first takes all scores down, and forgets its labels over it.
    """
    offset = math.log(public.shape[1])
    seen, faked = public.logsumexp(dim=1) - offset, made.logsumexp(dim=1) - offset
    return 0.5 * (functional.softplus(-seen).mean() + functional.softplus(faked).mean())


def feature_distance(public: Tensor, made: Tensor) -> Tensor:
    """Squared distance of the mean features of two batches, [record, feature] each."""
    return (public.mean(dim=0) - made.mean(dim=0)).square().sum()
