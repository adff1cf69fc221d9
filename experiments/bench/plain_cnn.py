"""A small CNN trained by the loop that anybody would write in torch: what the CNN teachers are timed and tested against."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pate.extras import require
from pate.teachers.neural.augment import affine
from pate.teachers.neural.nets import small_cnn
from pate.teachers.neural.parts import one_cycle

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from pate.teachers.family import Part


def plain_cnn(part: Part, n_classes: int) -> Module:
    """The small CNN, trained on one part with the settings of CNNTeachers."""
    torch = require("torch", "train")
    images, labels = torch.tensor(part.x).float(), torch.tensor(part.y)
    images = images[:, None] if images.ndim == 3 else images
    torch.manual_seed(part.seed)
    model = small_cnn(n_classes, images.shape[1:])
    train_plain_cnn(model, images, labels, seed=part.seed)
    return model


def train_plain_cnn(
    model: Module,
    images: Tensor,
    labels: Tensor,
    *,
    epochs: int = 40,
    batch: int = 32,
    learning_rate: float = 6e-3,
    weight_decay: float = 0.01,
    augment: bool = True,
    seed: int = 0,
) -> list[float]:
    """Train ``model`` in place; the loss of every step. The net, the augmentation and all numbers are those of CNNTeachers.

    images: float32[image, channel, height, width]; labels: int64[image].
    """
    torch = require("torch", "train")
    functional = require("torch.nn.functional", "train")
    shuffles, changes = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed + 1)
    steps = epochs * -(-len(images) // batch)
    optimiser = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: one_cycle(step / steps))
    losses = []
    model.train()
    for _ in range(epochs):
        for chosen in torch.randperm(len(images), generator=shuffles).split(batch):
            x = affine(images[chosen], changes) if augment else images[chosen]
            loss = functional.cross_entropy(model(x), labels[chosen])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            losses.append(loss.item())
    return losses


def predict_plain_cnn(model: Module, images: Tensor) -> Tensor:
    """int64[image]: the most likely class of each image, all images at once."""
    model.eval()
    with require("torch", "train").no_grad():
        votes: Tensor = model(images).argmax(dim=1)
    return votes
