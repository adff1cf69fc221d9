"""Clipped gradient sums against a plain loop of autograd and against Opacus, for every layer, rule and odd model."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from clipping_cases import CASES, CLASSES, Case, batch, check, clipped, cross_entropy, groups_of, rows_by_loop  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from pate.errors import ParameterError  # noqa: E402
from pate.experiments.baselines.dpsgd.clipping import ClippedGradients, Clipping, convolutions, engine, layers  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.mark.parametrize("name", CASES)
def test_every_layer_is_as_opacus_and_a_loop_have_it(name: str) -> None:
    case = CASES[name]
    # Norms are about 1: a bound of 0.7 clips some examples and not others.
    check(case.model(), *batch(case, 6), Clipping(0.7), opacus=case.opacus)


@pytest.mark.parametrize("name", CASES)
def test_views_of_an_example_are_clipped_as_one(name: str) -> None:
    case = CASES[name]
    check(case.model(), *batch(case, 6), Clipping(0.5), views=3, opacus=False)


RULES = {
    "small bound": Clipping(0.01),
    "large bound": Clipping(1000.0),
    "per layer": Clipping(0.9, per_layer=True),
    "automatic": Clipping(2.0, automatic=True),
    "automatic per layer": Clipping(1.0, per_layer=True, automatic=True, stability=0.1),
}
PICTURES = Case(
    lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 4, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(36, CLASSES),
    ),
    (2, 8, 8),
)
WORDS = Case(
    lambda: nn.Sequential(
        nn.Embedding(7, 4), nn.Linear(4, 6), nn.ReLU(inplace=True), nn.LayerNorm(6), nn.Flatten(), nn.Linear(30, CLASSES)
    ),
    (5,),
    7,
)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("case", [PICTURES, WORDS], ids=["pictures", "words"])
def test_every_rule(case: Case, rule: str) -> None:
    # An activation in place is nothing for Opacus's hooks.
    check(case.model(), *batch(case, 5), RULES[rule], opacus=False)
    check(case.model(), *batch(case, 6), RULES[rule], views=2, opacus=False)


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_random_architectures(data: st.DataObject) -> None:
    draw = data.draw
    channels = size = 0
    parts: list[nn.Module] = []
    channels, size = draw(st.integers(1, 3)), draw(st.integers(6, 9))
    shape = (channels, size, size)
    torch.manual_seed(draw(st.integers(0, 99)))
    for _ in range(draw(st.integers(1, 3))):
        wide = draw(st.sampled_from([2, 4]))
        kernel, stride, padding = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(0, 2))
        groups = 2 if channels % 2 == 0 and draw(st.booleans()) else 1
        parts.append(nn.Conv2d(channels, wide, kernel, stride, padding, groups=groups, bias=draw(st.booleans())))
        channels = wide
        if draw(st.booleans()):
            parts.append(nn.GroupNorm(draw(st.sampled_from([1, 2])), channels))
        parts.append(draw(st.sampled_from([nn.ReLU(), nn.Tanh(), nn.AvgPool2d(2, 1, padding=1)])))
    parts.append(nn.Flatten())
    wide = nn.Sequential(*parts)(torch.zeros(1, *shape)).numel()
    parts += [nn.Linear(wide, 5), nn.LayerNorm(5), nn.Linear(5, CLASSES, bias=draw(st.booleans()))]
    model = nn.Sequential(*parts)
    views, rule = draw(st.integers(1, 3)), Clipping(draw(st.sampled_from([0.1, 2.0])), per_layer=draw(st.booleans()))
    check(model, *batch(Case(lambda: model, shape), 2 * views), rule, views)


@pytest.mark.parametrize("channels", [1, 1000])
@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("conv")])
def test_both_ways_for_convolutions(monkeypatch: pytest.MonkeyPatch, name: str, channels: int) -> None:
    monkeypatch.setattr(convolutions, "_CHANNELS", channels)
    for views in (1, 2):
        check(CASES[name].model(), *batch(CASES[name], 4), Clipping(0.5), views, opacus=False)


@pytest.mark.parametrize("views", [1, 2])
def test_small_blocks_and_parts_change_nothing(monkeypatch: pytest.MonkeyPatch, views: int) -> None:
    case = CASES["conv2d, all options"]
    for where, name, value in [
        (convolutions, "_BLOCK", 500),
        (convolutions, "_CHUNK", 500),
        (layers, "_BLOCK", 50),
        (engine, "_HELD", 600),
    ]:
        monkeypatch.setattr(where, name, value)
    check(case.model(), *batch(case, 10), Clipping(0.5), views, opacus=False)
    check(WORDS.model(), *batch(WORDS, 10), Clipping(0.5), views, opacus=False)
    monkeypatch.setattr(convolutions, "_KEPT", 0)  # the sum is then a second convolution
    check(case.model(), *batch(case, 10), Clipping(0.5), views, opacus=False)
    check(CASES["conv1d, all options"].model(), *batch(CASES["conv1d, all options"], 6), Clipping(0.5), views)


def test_statistics_of_norms_need_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another torch may name what its graph keeps in another way: then they are computed."""
    taken = layers._statistics
    monkeypatch.setattr(layers, "_statistics", lambda output, grouped, eps: taken(output.detach(), grouped, eps))
    for name in ("group norm", "layer norm, positions", "layer norm, two dimensions"):
        check(CASES[name].model(), *batch(CASES[name], 4), Clipping(0.5), opacus=False)


@pytest.mark.parametrize("bound", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize("per_layer", [False, True])
def test_no_example_moves_the_sum_by_more_than_the_bound(bound: float, per_layer: bool) -> None:
    for case in (PICTURES, WORDS, CASES["linear, many positions"]):
        model = case.model()
        with ClippedGradients(model, lambda o, t: 1000 * cross_entropy(o, t), Clipping(bound, per_layer)) as found:
            for row in range(8):
                x, y = batch(case, 1, seed=row)
                length = float(found.clipped_sum(x, y).total.double().norm())
                assert length <= bound * (1 + 1e-6)
                assert length >= bound * (1 - 1e-5)


@pytest.mark.parametrize("trained", [{"weight"}, {"weight", "bias"}])
def test_squares_too_small_for_float32_hide_nothing(trained: set[str]) -> None:
    for small, large in ((1e-24, 1e16), (1e16, 1e-24)):
        inputs, gradient = torch.full((2, 3), large), torch.full((2, 5), small)
        call = layers.LinearCall(nn.Linear(3, 5), frozenset(trained), inputs, gradient)
        call.gradient = gradient
        assert (call.norms(2) >= 15**0.5 * small * large).all()


def test_sums_of_many_squares_keep_six_digits() -> None:
    each = torch.rand(2, 1_000_003) * 3
    assert torch.allclose(layers.lengths(each).double(), each.double().norm(dim=1, keepdim=True), rtol=5e-7, atol=0)


def test_positions_that_cancel_leave_a_right_norm() -> None:
    """By products of positions in float32, nothing but rounding would be left of such a norm."""
    gradient = torch.randn(3, 2, 50).mul_(1000)
    gradient[:, 1] = -gradient[:, 0] * (1 + 1e-4)
    inputs = torch.randn(3, 1, 40).expand(3, 2, 40)
    truth = torch.bmm(gradient.double().transpose(1, 2), inputs.double()).square().sum(dim=(1, 2))[:, None]
    assert torch.allclose(layers._by_positions(gradient, inputs).double(), truth.sqrt(), rtol=1e-5)


def test_an_empty_lot_is_zero() -> None:
    x, y = batch(PICTURES, 4)
    for per_layer, groups in ((False, 1), (True, 4)):
        with ClippedGradients(PICTURES.model(), cross_entropy, Clipping(per_layer=per_layer)) as found:
            result = found.clipped_sum(x[:0], y[:0], views=2)
        assert result.total.shape == (found.size,)
        assert not result.total.any()
        assert result.norms.shape == (0, groups)
        assert result.losses.shape == (0,)
        assert result.bad == 0


@pytest.mark.parametrize("case", [PICTURES, WORDS], ids=["pictures", "words"])
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("per_layer", [True, False])
def test_a_gradient_that_is_not_finite_contributes_nothing(case: Case, fast: bool, per_layer: bool) -> None:
    model, (x, y) = case.model(), batch(case, 6)
    rule = Clipping(0.5, per_layer)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        weights = torch.where(targets == CLASSES, float("nan"), 1.0)
        return cross_entropy(outputs, targets.clamp(max=CLASSES - 1)) * weights

    y[4] = CLASSES  # a target whose loss is no number
    if case is PICTURES:
        x[1, 0, 2, 2] = float("inf")
    good = [0, 2, 3, 5] if case is PICTURES else [0, 1, 2, 3, 5]
    with ClippedGradients(model, loss, rule) as found:
        if not fast:
            found._fall_back("the test says so")
        result = found.clipped_sum(x, y)
        twice = found.clipped_sum(x, y, views=2)
    assert len(found.notes) == (not fast)
    truth = clipped(rows_by_loop(model, x[good], y[good]), groups_of(model, per_layer), rule, 1)[0]
    assert result.bad == 6 - len(good)
    assert (result.total - truth).norm() <= 1e-5 * truth.norm()
    assert twice.bad == (2 if case is PICTURES else 1)
    assert twice.total.isfinite().all()
    assert twice.total.any()


def test_frozen_parameters_are_left_out() -> None:
    for frozen in ("0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "6.bias"):
        model = PICTURES.model()
        model.get_parameter(frozen).requires_grad_(False)
        names = [name for name, each in model.named_parameters() if each.requires_grad]
        with ClippedGradients(model, cross_entropy) as found:
            assert found.size == sum(model.get_parameter(name).numel() for name in names)
        check(model, *batch(PICTURES, 4), Clipping(0.5), opacus=False)
    model = PICTURES.model()
    model[0].requires_grad_(False)
    check(model, *batch(PICTURES, 4), Clipping(0.5, per_layer=True), opacus=False)


def test_dropout_has_one_mask_a_row_and_the_callers_modes_stay() -> None:
    model = nn.Sequential(nn.Linear(3, 200, bias=False), nn.Dropout(0.5), nn.Linear(200, CLASSES)).train()
    x, y = torch.ones(2, 3), torch.zeros(2, dtype=torch.int64)
    with ClippedGradients(model, cross_entropy) as found:
        result = found.clipped_sum(x, y)
        assert not found.notes
    assert model.training
    assert model[1].training
    assert result.norms[0] != result.norms[1], "equal rows differ by their masks alone"


def test_bad_requests_are_refused() -> None:
    model, (x, y) = PICTURES.model(), batch(PICTURES, 6)
    with ClippedGradients(model, cross_entropy) as found:
        with pytest.raises(ParameterError, match="as many rows, got 6 and 5"):
            found.clipped_sum(x, y[:5])
        with pytest.raises(ParameterError, match="4 rows for each example, as views says, got 6"):
            found.clipped_sum(x, y, views=4)
        with pytest.raises(ParameterError, match="views must be a whole number of at least 1, got 0"):
            found.clipped_sum(x, y, views=0)
        assert "private" in repr(found.clipped_sum(x, y))
        assert "tensor" not in repr(found.clipped_sum(x, y))
    with pytest.raises(ParameterError, match="The engine is closed"):
        found.clipped_sum(x, y)
    with ClippedGradients(model, nn.CrossEntropyLoss()) as found, pytest.raises(ParameterError, match='reduction="none"'):
        found.clipped_sum(x, y)
    for wrong in ({"bound": 0.0}, {"bound": 1e-20}, {"bound": float("inf")}, {"stability": -1.0}, {"per_layer": 1}):
        with pytest.raises(ParameterError, match=r"must (be|lie)"):
            Clipping(**wrong)  # type: ignore[arg-type]
