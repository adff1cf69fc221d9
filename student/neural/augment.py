"""Random variants of records that keep their class, for consistency training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from pate.errors import StudentError
from pate.features.distortions import columns_swapped, cut_out, distorted, warped
from pate.references import did_you_mean, load_reference

Augment = Callable[[Tensor, float], Tensor]
"""(batch [record, ...], strength) -> a random variant of each record; strength 0 changes nothing, 1 is strong."""


def augment_named(name: str, input_shape: tuple[int, ...]) -> Augment:
    """``digits``, ``clothing``, ``photos``, ``table``, ``none``; ``auto``: by the shape of a record; or a reference.

    A reference "package.module:attribute" is a function (batch, strength) -> batch, or a class of torchvision.transforms.v2
    that can be made without arguments, which is then called picture by picture.
    """
    if name == "auto":
        name = "table" if len(input_shape) != 3 else "digits" if input_shape[0] == 1 else "photos"
    if ":" in name:
        return partial(_varied, _referenced(name))
    if name not in _NAMED:
        known = f"It must be auto, {', '.join(_NAMED)}, or 'package.module:function'."
        raise StudentError(f"There is no augmentation {name!r}{did_you_mean(name, _NAMED)} {known}")
    if name not in ("table", "none") and len(input_shape) != 3:
        raise StudentError(
            f"augment={name!r} is for pictures; these records have shape {input_shape}. Use 'table', or give shape=…."
        )
    return partial(_varied, _NAMED[name])


def _varied(augment: Augment, records: Tensor, strength: float) -> Tensor:
    """Strength 0 is settled here, because some variants (a flip) are not a matter of degree."""
    return augment(records, strength) if strength else records


def table_variant(records: Tensor, strength: float) -> Tensor:
    """Some columns of each record taken from another record of the batch (SCARF, Bahri et al. 2022): 30% at strength 1."""
    return columns_swapped(records, 0.3 * strength)


def photo_variant(pictures: Tensor, strength: float) -> Tensor:
    """Warped, flipped, cut out, and changed in brightness, contrast and colour."""
    out = warped(pictures, 0.6 * strength, flip=True)
    gain, offset = (1 + 0.4 * strength * (2 * torch.rand(2, len(out), out.shape[1], 1, 1) - 1)).to(out.device)
    mean = out.mean(dim=(1, 2, 3), keepdim=True)
    return cut_out(((out - mean) * gain + mean * offset).clamp(0, 1), 1.5 * strength)


def fixed_views(pictures: Tensor, count: int) -> Iterator[Tensor]:
    """The pictures, then ``count`` - 1 slightly turned, scaled or moved versions: the same for every picture and every call."""
    yield pictures
    for angle, scale, right, down in _VIEWS[: count - 1]:
        cosine, sine = math.cos(angle) * scale, math.sin(angle) * scale
        affine = torch.tensor([[cosine, -sine, right], [sine, cosine, down]], device=pictures.device)
        grid = functional.affine_grid(affine.expand(len(pictures), 2, 3), list(pictures.shape), align_corners=False)
        yield functional.grid_sample(pictures, grid, align_corners=False)


_VIEWS = (
    *((angle, 1.0, 0.0, 0.0) for angle in (-0.12, 0.12)),  # radians
    *((0.0, scale, 0.0, 0.0) for scale in (0.92, 1.08)),
    *((0.0, 1.0, right, down) for right, down in ((0.07, 0.0), (-0.07, 0.0), (0.0, 0.07), (0.0, -0.07))),  # about a pixel
)
MOST_VIEWS = 1 + len(_VIEWS)


def unchanged(records: Tensor, strength: float) -> Tensor:
    return records


_NAMED: dict[str, Augment] = {
    "digits": distorted,
    "clothing": partial(distorted, flip=True, thickness=False),
    "photos": photo_variant,
    "table": table_variant,
    "none": unchanged,
}


def _referenced(name: str) -> Augment:
    found = load_reference(name)
    if not isinstance(found, type):
        referenced: Augment = found
        return referenced
    transform = found()

    def one_by_one(records: Tensor, strength: float) -> Tensor:
        return torch.stack([transform(record) for record in records])

    return one_by_one
