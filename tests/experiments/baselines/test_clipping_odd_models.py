"""Models that clipping by book-keeping does not fit: right by a slower way, or refused; never wrong."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from clipping_cases import CLASSES, Case, batch, check, cross_entropy, rows_by_loop  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from pate.errors import ParameterError  # noqa: E402
from pate.experiments.baselines.dpsgd.clipping import ClippedGradients, Clipping, check_model, check_no_mixing  # noqa: E402


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


class Net(nn.Module):
    """Two hidden layers of one size, and a head; ``way`` says what is odd about it."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.first, self.second, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, CLASSES)
        self.calls = 0
        if way == "tied":
            self.second.weight = self.first.weight
        if way == "own parameter":
            self.scale = nn.Parameter(torch.ones(6))
        if way == "hidden alias":
            self.alias = (self.first.weight,)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        inputs, x = x, torch.tanh(self.first(x))
        if self.way == "in place on the batch" and self.training:
            inputs.add_(1)
        if self.way == "reused" or (self.way == "sometimes reused" and not self.training):
            x = torch.tanh(self.first(x))
        if self.way == "reused later" and self.calls > 20:
            x = torch.tanh(self.first(x))
        if self.way == "by hand":
            x = functional.linear(x, self.second.weight, self.second.bias)
        elif self.way == "by hand beside":
            x = functional.linear(self.second(x), self.second.weight)
        elif self.way == "hidden alias":
            x = functional.linear(self.second(x), self.alias[0])
        elif self.way == "rows in another order":
            x = self.second(x.flip(0)).flip(0)
        elif self.way == "folded":
            x = self.second(torch.cat([x, x])).view(2, *x.shape).sum(dim=0)
        elif self.way == "swallowed":
            x = self.second(x).detach() + x
        elif self.way == "by keyword":
            x = self.second(input=x)
        elif self.way == "unused":
            self.second(x)
        elif self.way == "in place on the input":
            y = self.second(x)
            x = x.add_(1) * y.detach()
        elif self.way != "not called":
            x = self.second(x)
        if self.way == "own parameter":
            x = x * self.scale
        return self.head(torch.tanh(x))


ROWS = Case(lambda: Net("plain"), (6,))
SLOW = {
    "tied": "first.weight and second.weight are one parameter",
    "reused": "first is called more than once",
    "by hand": "parameters of second are used outside of its call",
    "by hand beside": "parameters of second are used outside of its call",
    "hidden alias": "parameters of first are used outside of its call",
    "rows in another order": "do not give the gradient of the model",
    "folded": "second gets an input of shape (6, 6), not a row for each of 3",
    "own parameter": "Net (Net) is no layer with known norms",
}


@pytest.mark.parametrize("per_layer", [False, True])
@pytest.mark.parametrize("way", SLOW)
def test_what_hooks_cannot_tell_gets_per_sample_gradients(way: str, per_layer: bool) -> None:
    model = Net(way)
    if per_layer and way in ("own parameter", "tied"):
        per_layer = False  # the harness names groups by the parameter's first name
    notes = check(model, *batch(ROWS, 6), Clipping(0.5, per_layer), views=2, opacus=False, fast=False)
    assert SLOW[way] in notes[0]
    assert ("slowest: torch.func.vmap gives other gradients" in notes[-1]) == (way == "hidden alias")


@pytest.mark.parametrize("way", ["plain", "swallowed", "by keyword", "unused", "not called"])
def test_layers_without_a_gradient_are_zero(way: str) -> None:
    model = Net(way)
    check(model, *batch(ROWS, 6), Clipping(0.5, per_layer=way != "plain"), opacus=False)
    with ClippedGradients(model, cross_entropy) as found:
        second = found.clipped_sum(*batch(ROWS, 6)).total[42:84]
    assert bool(second.any()) == (way in ("plain", "by keyword"))


def test_a_layer_that_is_called_twice_in_some_steps_only_is_found_then() -> None:
    model, (x, y) = Net("reused later"), batch(ROWS, 5)
    switched = []
    with ClippedGradients(model, cross_entropy, Clipping(1e6)) as found:
        for _ in range(30):
            result = found.clipped_sum(x, y)
            calls, model.calls = model.calls, 21 if model.calls > 20 else -1000  # the loop goes as this step went
            truth = sum(torch.cat([each.reshape(-1) for each in row]) for row in rows_by_loop(model, x, y))
            assert (result.total - truth).norm() <= 1e-5 * truth.norm()
            model.calls = calls
            switched.append(bool(found.notes))
    assert 0 < switched.count(True) < 30
    assert "first is called more than once" in found.notes[0]


def test_an_input_changed_in_place_after_the_call_is_an_error_as_in_torch() -> None:
    x, y = batch(ROWS, 4)
    with ClippedGradients(Net("in place on the input"), cross_entropy) as found, pytest.raises(RuntimeError, match="inplace"):
        found.clipped_sum(x, y)
    # No backward pass goes by the first layer, so that torch would not see it.
    found = ClippedGradients(Net("in place on the batch"), cross_entropy)
    with found, pytest.raises(ParameterError, match="The input of first is changed in place"):
        found.clipped_sum(x, y)


def test_an_activation_in_place_after_a_layer() -> None:
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.head = nn.Linear(3, 6), nn.Linear(12, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.first(x)
            before = hidden * 2  # the output as it was, and as it becomes: both lead to the layer
            return self.head(torch.cat([before, hidden.relu_()], dim=-1).flatten(1))

    class Positions(Branch):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(60, CLASSES)

    check(Branch(), *batch(Case(Branch, (3,)), 5), Clipping(0.5), opacus=False)
    check(Positions(), *batch(Case(Positions, (5, 3)), 5), Clipping(0.5), opacus=False)
    convolution = nn.Sequential(nn.Conv1d(2, 3, 2), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(12, CLASSES))
    check(convolution, *batch(Case(lambda: convolution, (2, 5)), 5), Clipping(0.5), opacus=False)


class LastOutput(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.inner = kind(3, 4, batch_first=True)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x)[0][:, -1])


OTHERS = {
    "transposed convolution": (
        lambda: nn.Sequential(nn.ConvTranspose1d(3, 2, 2), nn.Flatten(), nn.Linear(12, CLASSES)),
        (3, 5),
    ),
    "convolution in space": (lambda: nn.Sequential(nn.Conv3d(1, 2, 2), nn.Flatten(), nn.Linear(16, CLASSES)), (1, 3, 3, 3)),
    "instance norm": (lambda: nn.Sequential(nn.InstanceNorm1d(3, affine=True), nn.Flatten(), nn.Linear(15, CLASSES)), (3, 5)),
    "slope": (lambda: nn.Sequential(nn.Linear(5, 6), nn.PReLU(), nn.Linear(6, CLASSES)), (5,)),
    "LSTM": (lambda: LastOutput(nn.LSTM), (5, 3)),
    "GRU": (lambda: LastOutput(nn.GRU), (5, 3)),
    "attention": (
        lambda: nn.Sequential(nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), nn.Flatten(), nn.Linear(12, CLASSES)),
        (3, 4),
    ),
    "weight norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(5, 6)), nn.Linear(6, CLASSES)),
        (5,),
    ),
}


@pytest.mark.filterwarnings("ignore")  # torch.func warns of what it does slowly
@pytest.mark.parametrize("name", OTHERS)
def test_other_modules_get_per_sample_gradients(name: str) -> None:
    build, shape = OTHERS[name]
    model = build()
    notes = check(model, *batch(Case(build, shape), 4), Clipping(0.5), views=2, opacus=False, fast=False)
    assert "is no layer with known norms" in notes[0]


def test_positions_before_rows_are_found_even_if_there_are_as_many() -> None:
    class PositionsFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = nn.Linear(4, 5), nn.Linear(5, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.tanh(self.inner(x.transpose(0, 1))).sum(dim=0))

    for positions in (2, 3, 6):
        check(PositionsFirst(), *batch(Case(PositionsFirst, (positions, 4)), 6), Clipping(0.5), opacus=False, fast=False)


def test_a_loss_that_uses_the_weights_is_right() -> None:
    model, (x, y) = Net("plain"), batch(ROWS, 4)
    decay = lambda o, t: cross_entropy(o, t) + model.head.weight.square().sum()  # noqa: E731
    with ClippedGradients(model, decay, Clipping(1e6)) as found:
        total = found.clipped_sum(x, y).total
    assert "parameters of head are used outside of its call" in found.notes[0]
    decay(model(x), y).sum().backward()
    truth = torch.cat([each.grad.reshape(-1) for each in model.parameters()])
    assert (total - truth).norm() <= 1e-5 * truth.norm()


def test_models_that_mix_examples_are_refused_with_what_to_do() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.InstanceNorm2d(4, track_running_stats=True))
    model.append(nn.Embedding(3, 2, max_norm=1.0, scale_grad_by_freq=True)).append(nn.Linear(2, 2).double())
    with pytest.raises(ParameterError) as caught:
        ClippedGradients(model, cross_entropy)
    for part in (
        "1 (BatchNorm2d)",
        "nn.GroupNorm(groups, 4)",
        "2 (InstanceNorm2d)",
        "scale_grad_by_freq=False",
        "max_norm=None",
    ):
        assert part in str(caught.value)
    assert "4.weight is torch.float64: call model.float()" in str(caught.value)
    for refused, match in [
        (nn.SyncBatchNorm(3), "SyncBatchNorm"),
        (nn.Linear(2, 2).requires_grad_(False), "no parameter is trained"),
        (nn.LazyLinear(2), "has no shape yet"),
        (lambda x: x, "must be a torch.nn.Module, got function"),
    ]:
        with pytest.raises(ParameterError, match=match):
            check_model(refused)  # type: ignore[arg-type]


class Mixing(nn.Module):
    def __init__(self, mix: str) -> None:
        super().__init__()
        self.mix = mix
        self.inner = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        if self.mix == "mean":
            x = x - x.mean(dim=0)
        elif self.mix == "in training" and self.training:
            x = functional.batch_norm(x, None, None, training=True)
        elif self.mix == "neighbour":
            x = x + 0.1 * x.roll(1, dims=0)
        return self.inner(functional.dropout(x, training=self.training))


@pytest.mark.parametrize("mix", ["mean", "in training", "neighbour", "nothing"])
def test_mixing_that_no_hook_sees_is_found_by_a_run(mix: str) -> None:
    model, (x, _) = Mixing(mix).train(), batch(ROWS, 5)
    state = torch.get_rng_state()
    if mix == "nothing":
        check_no_mixing(model, x)
    else:
        with pytest.raises(ParameterError, match="The model mixes examples"):
            check_no_mixing(model, x)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)


def test_mixing_needs_rows_to_compare() -> None:
    with pytest.raises(ParameterError, match="at least 2 examples, got 1"):
        check_no_mixing(Mixing("nothing"), torch.zeros(1, 6))
    with pytest.raises(ParameterError, match=r"one output row for each of the 3 rows of x, got \(12,\)"):
        check_no_mixing(nn.Sequential(nn.Linear(6, 4), nn.Flatten(0)), torch.zeros(3, 6))
