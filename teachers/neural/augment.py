"""Random changes of images that keep their class. All constants are public; nothing is fitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pate.errors import ParameterError
from pate.extras import require

if TYPE_CHECKING:
    from torch import Generator, Tensor

ROTATION = 0.26  # radians, 15 degrees
LOG_SCALE = 0.15
SHEAR = 0.3
SHIFT = 0.1  # of the picture's height and width


def affine(x: Tensor, generator: Generator) -> Tensor:
    """Each image rotated, scaled, sheared and shifted a little, float32[image, channel, height, width]; outside is 0."""
    _check_images(x, "affine")
    functional = require("torch.nn.functional", "train")
    torch = require("torch", "train")
    draws = (torch.rand(len(x), 6, generator=generator) * 2 - 1).to(x.device)
    angle, shear = draws[:, 0] * ROTATION, draws[:, 3] * SHEAR
    wide, high = torch.exp(draws[:, 1] * LOG_SCALE), torch.exp(draws[:, 2] * LOG_SCALE)
    cosine, sine = angle.cos(), angle.sin()
    across = torch.stack([cosine * wide, shear * cosine - sine * high, draws[:, 4] * 2 * SHIFT], dim=1)
    down = torch.stack([sine * wide, shear * sine + cosine * high, draws[:, 5] * 2 * SHIFT], dim=1)
    grid = functional.affine_grid(torch.stack([across, down], dim=1), list(x.shape), align_corners=False)
    moved: Tensor = functional.grid_sample(x, grid, align_corners=False)
    return moved


def shift(x: Tensor, generator: Generator) -> Tensor:
    """Each image moved by whole pixels, up to a tenth of its size and at least one pixel each way; outside is 0."""
    _check_images(x, "shift")
    torch = require("torch", "train")
    n, channels, height, width = x.shape
    reach = max(1, round(SHIFT * height)), max(1, round(SHIFT * width))
    padded = torch.nn.functional.pad(x, (reach[1], reach[1], reach[0], reach[0]))
    top, left = (torch.randint(0, 2 * each + 1, (n, 1), generator=generator).to(x.device) for each in reach)
    rows = (top + torch.arange(height, device=x.device))[:, None, :, None]
    columns = (left + torch.arange(width, device=x.device))[:, None, None, :]
    images = torch.arange(n, device=x.device)[:, None, None, None]
    planes = torch.arange(channels, device=x.device)[None, :, None, None]
    moved: Tensor = padded[images, planes, rows, columns]
    return moved


def _check_images(x: Tensor, name: str) -> None:
    if x.ndim != 4:
        raise ParameterError(
            f"augment={name!r} needs images [image, channel, height, width], got records of shape {tuple(x.shape[1:])}. "
            "Give reshape=[channel, height, width], or augment=None."
        )
