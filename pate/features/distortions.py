"""Random variants of pictures and of rows of tables, a whole batch at once. Imports torch: import it where torch is wanted.

torchvision's transforms draw one random number for a whole batch, so they must be called picture by picture; these draw
for each picture. torchvision has no change of stroke thickness.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


@torch.no_grad()
def distorted(images: Tensor, strength: float, *, flip: bool = False, thickness: bool = True) -> Tensor:
    """A random variant of each picture [record, channel, height, width], as strong as ``strength``.

    Affine map, elastic waves, stroke thickness (for bright strokes on a dark ground), left-right flip, and a square cut out.
    """
    out = warped(images, strength, flip=flip)
    if thickness:
        out = thickened(out, strength)
    return cut_out(out, strength)


@torch.no_grad()
def warped(images: Tensor, strength: float, *, flip: bool = False) -> Tensor:
    """Each picture turned, stretched, sheared, moved and bent in waves, in one resampling; outside is 0."""
    count, _, height, width = images.shape
    angle, stretch_x, stretch_y, shear, move_x, move_y = (torch.rand(6, count) * 2 - 1) * strength
    angle = angle * 0.35  # radians
    across, down = 1 + 0.2 * stretch_x, 1 + 0.2 * stretch_y
    if flip:
        across = across * (2.0 * torch.randint(0, 2, (count,)) - 1)
    cosine, sine = angle.cos(), angle.sin()
    affine = torch.stack(
        [
            torch.stack([cosine * across, -sine * across + 0.25 * shear, 0.15 * move_x], dim=1),
            torch.stack([sine * down, cosine * down, 0.15 * move_y], dim=1),
        ],
        dim=1,
    )
    grid = functional.affine_grid(affine, [count, 1, height, width], align_corners=False)
    waves = torch.randn(count, 2, 5, 5) * (0.06 * strength)
    waves = functional.interpolate(waves, size=(height, width), mode="bicubic", align_corners=False)
    grid = (grid + waves.permute(0, 2, 3, 1)).to(images.device)
    return functional.grid_sample(images, grid, align_corners=False)


@torch.no_grad()
def thickened(images: Tensor, strength: float) -> Tensor:
    """Bright strokes made wider or thinner by up to a pixel on each side."""
    thick = ((torch.rand(len(images), 1, 1, 1) * 2 - 1) * 0.7 * strength).clamp(-1, 1).to(images.device)
    wider = functional.max_pool2d(images, 3, stride=1, padding=1)
    thinner = -functional.max_pool2d(-images, 3, stride=1, padding=1)
    return images + thick.clamp(min=0) * (wider - images) + (-thick).clamp(min=0) * (thinner - images)


@torch.no_grad()
def cut_out(images: Tensor, strength: float) -> Tensor:
    """A square of up to a third of the side set to 0, in half of the pictures."""
    count, _, height, width = images.shape
    half = torch.rand(count, 1, 1) * (min(height, width) * strength / 6)
    half = torch.where(torch.rand(count, 1, 1) < 0.5, half, -1.0)
    row, column = torch.rand(count, 1, 1) * height, torch.rand(count, 1, 1) * width
    rows, columns = torch.arange(height)[None, :, None] + 0.5, torch.arange(width)[None, None, :] + 0.5
    inside = ((rows - row).abs() <= half) & ((columns - column).abs() <= half)
    return images.masked_fill(inside[:, None].to(images.device), 0.0)


@torch.no_grad()
def columns_swapped(records: Tensor, share: float) -> Tensor:
    """About ``share`` of the columns of each of records [record, column] taken from another of them."""
    taken = torch.rand(records.shape, device=records.device) < share
    donors = torch.argsort(torch.rand(records.shape, device=records.device), dim=0)
    return torch.where(taken, records.gather(0, donors), records)
