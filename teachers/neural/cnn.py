"""The small CNN preset."""

from __future__ import annotations

from collections.abc import Sequence

from pate.teachers.neural.family import TorchTeachers
from pate.validation import positive


class CNNTeachers(TorchTeachers):
    """Small convolutional nets trained from scratch with light augmentation, for images of 4x4 pixels and more.

    Pixels may be 0..255 or 0..1; the background should be 0, which is what augmentation moves in from outside.
    With 240 MNIST images a teacher and the default 40 epochs, a teacher is 95.4% right after about 2 seconds on one core (91.4%
    without augmentation); 20 epochs give 94.1%, 80 epochs 96.0% and 160 epochs 96.3%, at half, twice and four times the time.

    width: channels of the first layer; the next two have twice as many. See :func:`pate.teachers.neural.nets.small_cnn`.
    augment, device, strategy, stack, reshape: as in :class:`~pate.teachers.neural.family.TorchTeachers`.
    """

    def __init__(
        self,
        width: int = 16,
        *,
        epochs: int = 40,
        batch: int = 32,
        learning_rate: float = 6e-3,
        weight_decay: float = 0.01,
        augment: str | None = "affine",
        device: str = "cpu",
        reshape: Sequence[int] | None = None,
        strategy: str = "loop",
        stack: int = 16,
    ) -> None:
        positive(learning_rate, "learning_rate")
        self.width = width
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        super().__init__(
            "pate.teachers.neural.nets:small_cnn",
            {"width": width},
            optimiser="adamw",
            optimiser_settings={"lr": learning_rate, "weight_decay": weight_decay},
            schedule="one_cycle",
            epochs=epochs,
            batch=batch,
            augment=augment,
            device=device,
            reshape=reshape,
            strategy=strategy,
            stack=stack,
        )
