"""Random variants of records: what they keep, what they change, and how they are named."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pate.errors import ReferenceNotFound, StudentError
from pate.features.distortions import cut_out, thickened, warped
from pate.student.neural.augment import MOST_VIEWS, augment_named, fixed_views, photo_variant, table_variant, unchanged
from pate.student.neural.inputs import own_randomness


def pictures(count: int, channels: int = 1, side: int = 12) -> Tensor:
    return torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(1))


def doubled(records: Tensor, strength: float) -> Tensor:
    """An augmentation of a user's own, named by reference below."""
    return records * (1 + strength)


@pytest.mark.parametrize("name", ["digits", "clothing", "photos", "table", "none", "torchvision.transforms.v2:RandomInvert"])
def test_strength_0_changes_nothing(name: str) -> None:
    given = pictures(16, channels=3)
    assert torch.equal(augment_named(name, (3, 12, 12))(given, 0.0), given)


@pytest.mark.parametrize("variant", [warped, thickened, cut_out], ids=lambda each: each.__name__)
def test_each_distortion_fades_to_nothing(variant: object) -> None:
    given = pictures(32)
    with own_randomness(0):
        nearly = variant(given, 0.0)  # type: ignore[operator]
        strong = variant(given, 0.8)  # type: ignore[operator]
    assert (nearly - given).abs().max() < 1e-5  # one resampling at the pixels' own places
    assert (strong - given).abs().mean() > 0.002  # a small square in half of the pictures is the least of the three


@pytest.mark.parametrize("name", ["digits", "clothing", "photos", "table"])
def test_every_record_gets_its_own_variant_from_the_seed(name: str) -> None:
    # A table needs different donors, so all records differ there; elsewhere copies of one picture must become different.
    given = pictures(8, channels=3) if name == "table" else pictures(1, channels=3).repeat(8, 1, 1, 1)
    augment = augment_named(name, (3, 12, 12))
    with own_randomness(3):
        once = augment(given, 0.7)
    with own_randomness(3):
        again = augment(given, 0.7)
    assert torch.equal(once, again)
    assert once.shape == given.shape
    assert len({tuple(each.flatten().tolist()) for each in once}) == 8
    assert not any(torch.equal(each, before) for each, before in zip(once, given, strict=True))


def test_strokes_get_wider_and_thinner() -> None:
    stroke = torch.zeros(400, 1, 12, 12)
    stroke[..., 4:8] = 1.0
    with own_randomness(0):
        ink = thickened(stroke, 1.0).mean(dim=(1, 2, 3)) / stroke.mean()
    # 4 columns become at most 4 + 2 * 0.7 or at least 4 - 2 * 0.7: the change is up to 0.35, either way.
    assert 1.2 < ink.max() <= 1.36
    assert 0.64 <= ink.min() < 0.8


def test_photos_stay_pictures() -> None:
    with own_randomness(0):
        out = photo_variant(pictures(64, channels=3), 1.0)
    assert out.min() >= 0.0
    assert out.max() <= 1.0


def test_table_variant_draws_from_the_same_column() -> None:
    rows, columns = 200, 6
    given = torch.arange(rows)[:, None] + 1000.0 * torch.arange(columns)  # a value says which column it is from
    with own_randomness(0):
        out = table_variant(given, 1.0)
    assert torch.equal((out / 1000).floor(), (given / 1000).floor())
    # 30% of 1,200 places are taken from a random row, one in 200 of them from the row itself: 358 expected, standard
    # deviation below 15.9; six of them allow a false alarm of 2e-9.
    assert abs(int((out != given).sum()) - 358) < 96


def test_table_variant_leaves_a_lone_record_alone() -> None:
    record = torch.tensor([[1.0, 2.0, 3.0]])
    with own_randomness(0):
        assert torch.equal(table_variant(record, 1.0), record)


def test_fixed_views_of_a_record_do_not_depend_on_the_batch() -> None:
    batch = pictures(5)
    together = list(fixed_views(batch, MOST_VIEWS))
    assert len(together) == MOST_VIEWS
    assert torch.equal(together[0], batch)
    for place in range(len(batch)):
        for whole, alone in zip(together, fixed_views(batch[place : place + 1], MOST_VIEWS), strict=True):
            assert torch.equal(whole[place : place + 1], alone)
    differences = [(view - batch).abs().mean() for view in together[1:]]
    assert min(differences) > 0.01


def test_auto_goes_by_the_shape_of_a_record() -> None:
    batch, seed = pictures(4), 5
    for shape, given, name in (((1, 12, 12), batch, "digits"), ((3, 12, 12), batch.repeat(1, 3, 1, 1), "photos")):
        with own_randomness(seed):
            automatic = augment_named("auto", shape)(given, 0.5)
        with own_randomness(seed):
            assert torch.equal(automatic, augment_named(name, shape)(given, 0.5))
    table = batch.flatten(1)
    with own_randomness(seed):
        automatic = augment_named("auto", (144,))(table, 0.5)
    with own_randomness(seed):
        assert torch.equal(automatic, table_variant(table, 0.5))


def test_a_function_by_reference() -> None:
    assert torch.equal(augment_named(f"{__name__}:doubled", (3,))(torch.ones(2, 3), 1.0), torch.full((2, 3), 2.0))


def test_a_torchvision_class_by_reference_is_drawn_for_each_picture() -> None:
    flip = augment_named("torchvision.transforms.v2:RandomHorizontalFlip", (1, 12, 12))
    given = pictures(64)
    with own_randomness(0):
        out = flip(given, 1.0)
    flipped = torch.tensor([torch.equal(each, before.flip(-1)) for each, before in zip(out, given, strict=True)])
    same = torch.tensor([torch.equal(each, before) for each, before in zip(out, given, strict=True)])
    assert bool((flipped ^ same).all())
    assert 0 < int(flipped.sum()) < 64  # one draw for the whole batch would be all or none; false alarm 2 ** -63


def test_unknown_names_are_refused_with_a_hint() -> None:
    with pytest.raises(StudentError, match=r"no augmentation 'digit' \(did you mean 'digits'\?\)"):
        augment_named("digit", (1, 12, 12))
    with pytest.raises(ReferenceNotFound, match="no_such_module"):
        augment_named("no_such_module:Flip", (1, 12, 12))


def test_pictures_only_where_there_are_pictures() -> None:
    with pytest.raises(StudentError, match=r"'photos' is for pictures; these records have shape \(7,\)"):
        augment_named("photos", (7,))


def test_unchanged_is_the_same() -> None:
    given = pictures(2)
    assert unchanged(given, math.inf) is given
