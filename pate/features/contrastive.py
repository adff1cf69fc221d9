"""Self-supervised features: a small network that learns from public pictures to tell them apart, without labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from pate.arrays import FloatArray
from pate.errors import ParameterError
from pate.extras import require
from pate.features.base import Features, Float32Array, Progress
from pate.features.exact import columns_on_grid, exact_product, unit_rows
from pate.features.images import as_images, checked_shape
from pate.public import PublicData
from pate.validation import positive, whole

if TYPE_CHECKING:
    from torch import nn

_LAYERS = 4
_LEARNT = ("weight", "gain", "shift", "mean", "variance")  # of a layer and its batch normalisation


class Contrastive(Features):
    """SimCLR (Chen et al. 2020) on public pictures of one channel, pixels in 0..1; features of length 1.

    Two random distortions of a picture should lie nearer to each other than to all else of the batch. Distorted by affine
    maps, elastic waves, stroke thickness and cut-outs, times ``strength`` (0.7 was better than 1 and 1.4 on MNIST). Pictures
    [height, width], at least 12 x 12, or flat ones with a ``shape``. The network: conv5/2, conv3, pool, conv3, pool, fc with
    ``features`` outputs, all with batch normalisation; AdamW with a one-cycle rate up to ``rate``.

    Fitting needs torch and repeats itself for a seed on one kind of machine. Transforming is plain numpy with exact sums,
    so the features of a record are the same bits wherever and beside whatever they are computed. :meth:`network` is the
    network itself, to train it further.
    """

    name: ClassVar[str] = "contrastive"
    block_rows: ClassVar[int] = 4  # what the network makes of four pictures fits the processor's cache
    kernel_0_: FloatArray
    kernel_1_: FloatArray
    kernel_2_: FloatArray
    kernel_3_: FloatArray
    bias_0_: FloatArray
    bias_1_: FloatArray
    bias_2_: FloatArray
    bias_3_: FloatArray

    def __init__(
        self,
        features: int = 256,
        epochs: int = 27,
        *,
        batch: int = 512,
        temperature: float = 0.2,
        rate: float = 2e-3,
        strength: float = 0.7,
        channels: Sequence[int] = (16, 32, 64),
        seed: int = 0,
        shape: Sequence[int] | None = None,
    ) -> None:
        whole(features, "Contrastive features", 2)
        whole(epochs, "Contrastive epochs", 1)
        whole(batch, "Contrastive batch", 2)
        positive(temperature, "Contrastive temperature")
        positive(rate, "Contrastive rate")
        positive(strength, "Contrastive strength")
        whole(seed, "Contrastive seed", 0)
        if len(channels) != 3:
            raise ParameterError(f"Contrastive channels must be three whole numbers, got {channels!r}.")
        for count in channels:
            whole(count, "Each of Contrastive channels", 1)
        self.features = features
        self.epochs = epochs
        self.batch = batch
        self.temperature = temperature
        self.rate = rate
        self.strength = strength
        self.channels = list(channels)
        self.seed = seed
        self.shape = checked_shape(shape, "Contrastive shape")

    @property
    def needs_fit(self) -> bool:
        return True

    def _fit(self, public: PublicData, progress: Progress | None) -> None:
        images = as_images(public.x, self.shape, "Contrastive").astype(np.float32)
        if images.min() < 0 or images.max() > 1:
            raise ParameterError(
                f"Contrastive needs pixels in 0..1; {public!r} has others. Put Scale(low, high) with the declared range before."
            )
        if len(images) < 2 or min(images.shape[1:]) < 12:
            raise ParameterError(f"Contrastive needs at least 2 pictures of at least 12 x 12 pixels, got {public!r}.")
        require("torch", "train")
        from pate.features.simclr import folded, train

        layers = train(
            images,
            channels=self.channels,
            features=self.features,
            epochs=self.epochs,
            batch=min(self.batch, len(images)),
            temperature=self.temperature,
            rate=self.rate,
            strength=self.strength,
            seed=self.seed,
            progress=progress,
        )
        for index, (layer, (kernel, bias)) in enumerate(zip(layers, folded(layers), strict=True)):
            setattr(self, f"kernel_{index}_", columns_on_grid(kernel))
            setattr(self, f"bias_{index}_", bias)
            for part, values in zip(_LEARNT, layer, strict=True):
                setattr(self, f"{part}_{index}_", values)

    def network(self) -> nn.Sequential:
        """The trained network, for fine-tuning: a copy of its own at each call, in evaluation mode, float32.

        It maps pictures in 0..1, [record, 1, height, width], to [record, feature]; divided by their lengths these are what
        :meth:`transform` gives, to about 1e-5. Needs torch.
        """
        if self.fitted_on is None:
            raise ParameterError(f"{self.title} is not fitted. Call fit(PublicData(x)) first, or load a fitted one.")
        if not hasattr(self, "weight_0_"):
            raise ParameterError(
                f"{self.title} was saved by an older version, without the network itself; only transform works. "
                "Fit and save it again."
            )
        require("torch", "train")
        from pate.features.simclr import Layer, rebuilt

        return rebuilt([Layer(*(getattr(self, f"{part}_{index}_") for part in _LEARNT)) for index in range(_LAYERS)])

    def _transform_block(self, x: Float32Array) -> NDArray[Any]:
        images = np.clip(as_images(x, self.shape, "Contrastive"), 0.0, 1.0).astype(np.float64)
        maps = convolved(images[..., None], self.kernel_0_, self.bias_0_, side=5, stride=2)
        maps = halved(convolved(maps, self.kernel_1_, self.bias_1_, side=3, stride=1))
        maps = halved(convolved(maps, self.kernel_2_, self.bias_2_, side=3, stride=1))
        flat = maps.reshape(len(maps), -1)
        if flat.shape[1] != len(self.kernel_3_):
            raise ParameterError(f"Contrastive was fitted on pictures of another shape than {images.shape[1:]}.")
        return unit_rows(exact_product(flat, self.kernel_3_) + self.bias_3_)


def convolved(maps: FloatArray, kernel: FloatArray, bias: FloatArray, *, side: int, stride: int) -> FloatArray:
    """relu(convolution + bias) with zeros around, [record, row, column, channel], as one exact product over all places.

    kernel: [channel in * side * side, channel out], in the order of torch's weights.
    """
    edge = side // 2
    padded = np.pad(maps, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
    windows = sliding_window_view(padded, (side, side), axis=(1, 2))[:, ::stride, ::stride]
    rows, down, right = windows.shape[:3]
    product = exact_product(windows.reshape(rows, down * right, -1), kernel)
    product += bias
    return np.maximum(product, 0.0, out=product).reshape(rows, down, right, -1)


def halved(maps: FloatArray) -> FloatArray:
    """The greatest of each 2 x 2 places; an odd last row or column is left out."""
    down, right = maps.shape[1] // 2 * 2, maps.shape[2] // 2 * 2
    rows = np.maximum(maps[:, 0:down:2, :right], maps[:, 1:down:2, :right])
    best: FloatArray = np.maximum(rows[:, :, 0::2], rows[:, :, 1::2])
    return best
