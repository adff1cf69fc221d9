"""The engine: a batch in, the sum of its clipped per-example gradients out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

import torch
from torch import Tensor, nn

from pate.errors import ParameterError
from pate.experiments.baselines.dpsgd.clipping.checks import check_model, undisturbed
from pate.experiments.baselines.dpsgd.clipping.layers import LayerCall, lengths
from pate.experiments.baselines.dpsgd.clipping.rule import Clipping, unusable
from pate.experiments.baselines.dpsgd.clipping.samples import Loss, PerSample, by_loop, by_vmap
from pate.experiments.baselines.dpsgd.clipping.tape import Tape, Unproven, reasons_against, trained_modules
from pate.validation import whole

_PROBE = 3  # rows on which a fast way must agree with one backward pass a row, before it is used
_AGREES = 1e-3  # relative: a wrong gradient is wrong by far more, rounding by far less
_HELD = 1 << 21  # floats of layer inputs in one pass (8 MB): larger batches are cut, which is faster (measured)
_UNCLIPPED = Clipping(bound=1e15, per_layer=True)
_PER_SAMPLE = 1 << 24  # floats of per-sample gradients at a time (64 MB)


@dataclass(frozen=True, eq=False)
class ClippedSum:
    """A sum of clipped gradients, before noise. All of it is private, so nothing of it is printed.

    ``total``: float32[size], parameters in the order of the engine's. ``norms``: float32[example, group], before clipping,
    one group unless clipped per layer. ``losses``: float32[example]. ``bad``: how many examples had a gradient that is not
    finite; they contribute nothing.
    """

    total: Tensor
    norms: Tensor
    losses: Tensor
    bad: int = 0

    def __repr__(self) -> str:
        return f"ClippedSum(private; {len(self.total)} parameters)"


class ClippedGradients:
    """Sums of clipped per-example gradients of a model.

    ``loss(outputs, targets)`` gives one loss a row, as ``cross_entropy(reduction="none")`` does, from these two alone.
    ``notes`` say why layers fall back to per-sample gradients, if they do. Use it as a context manager, or :meth:`close` it.
    """

    def __init__(self, model: nn.Module, loss: Loss, clipping: Clipping = Clipping()) -> None:  # noqa: B008
        check_model(model)
        self.model, self.loss, self.clipping = model, loss, clipping
        named = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
        self.parameters: list[nn.Parameter] = [each for _, each in named]
        self.size = sum(each.numel() for each in self.parameters)
        self.notes: list[str] = []
        self._layers = trained_modules(model)
        self._places: list[tuple[int | None, int | None]] = []  # numbers of weight and bias
        self._shapes = [each.shape for each in self.parameters]
        self._sizes = [each.numel() for each in self.parameters]
        self._spans: list[slice] = []
        self._lay_out()
        self._loop = by_loop(model, loss, self.parameters)
        self._vmap = by_vmap(model, loss, [name for name, _ in named], self.parameters)
        self._checked = self._closed = False
        self._row_floats = 0
        self._weights, self._weight_of = self.parameters[0].new_empty(0), 0
        self._slow: PerSample | None = None
        self._tape: Tape | None = None
        reasons = reasons_against(model)
        if reasons:
            self._fall_back("; ".join(reasons))
        else:
            self._tape = Tape(self._layers)

    def _lay_out(self) -> None:
        """Where the parameters of each layer lie in the flat sum."""
        numbers = {id(each): number for number, each in enumerate(self.parameters)}
        start = 0
        for _, module in self._layers:
            # A parameter that an earlier layer has too is no longer there.
            own = {name: numbers.pop(id(each), None) for name, each in module.named_parameters(recurse=False)}
            self._places.append((own.get("weight"), own.get("bias")))
            stop = start + sum(self._sizes[number] for number in own.values() if number is not None)
            self._spans.append(slice(start, stop))
            start = stop

    def __enter__(self) -> ClippedGradients:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Remove the hooks from the model."""
        self._closed = True
        if self._tape is not None:
            self._tape.close()

    @torch.no_grad()
    def clipped_sum(self, x: Tensor, y: Tensor, views: int = 1) -> ClippedSum:
        """The sum over examples of their clipped gradients.

        ``x`` and ``y`` have ``views`` rows an example, next to each other. An example's gradient is the mean over its views
        (augmentation multiplicity: De et al. 2022, arXiv:2204.13650), and is clipped as one.
        """
        if self._closed:
            raise ParameterError("The engine is closed: make another one for this model.")
        n = self._count(x, y, views)
        if n == 0:
            groups = len(self._layers) if self.clipping.per_layer else 1
            zeros = self.parameters[0].new_zeros
            return ClippedSum(zeros(self.size), zeros(0, groups), zeros(0))
        if not self._checked:
            self._check(x[:_PROBE], y[:_PROBE])
            self._checked = len(x) > 1  # one row cannot show that rows are kept apart
        if self._tape is not None:
            try:
                return self._in_parts(self._book_keeping, self._row_floats, _HELD, x, y, n, views)
            except Unproven as reason:
                self._fall_back(str(reason))
                self._check(x[:_PROBE], y[:_PROBE])
        return self._in_parts(self._per_sample, self.size, _PER_SAMPLE, x, y, n, views)

    def _count(self, x: Tensor, y: Tensor, views: int) -> int:
        whole(views, "views", 1)
        rows, targets = x.shape[0], y.shape[0]
        if rows != targets:
            raise ParameterError(f"x and y must have as many rows, got {rows} and {targets}.")
        if rows % views:
            raise ParameterError(f"x must have {views} rows for each example, as views says, got {rows} rows.")
        return rows // views

    def _in_parts(
        self,
        work: Callable[[Tensor, Tensor, int, Clipping], ClippedSum],
        floats: int,
        limit: int,
        x: Tensor,
        y: Tensor,
        n: int,
        views: int,
    ) -> ClippedSum:
        parts = min(n, max(1, math.ceil(n * views * floats / limit)))
        if parts == 1:
            return work(x, y, views, self.clipping)
        rows = math.ceil(n / parts) * views
        done = [work(x[i : i + rows], y[i : i + rows], views, self.clipping) for i in range(0, len(x), rows)]
        for part in done[1:]:
            done[0].total.add_(part.total)
        norms, losses = torch.cat([part.norms for part in done]), torch.cat([part.losses for part in done])
        return ClippedSum(done[0].total, norms, losses, sum(part.bad for part in done))

    def _book_keeping(self, x: Tensor, y: Tensor, views: int, clipping: Clipping) -> ClippedSum:
        losses, found = self._backward(x, y, views)
        n = x.shape[0] // views
        if not self._checked:
            self._row_floats = sum(call.inputs.numel() for call in found.values()) // n
        norms = self._norms(losses, n, {index: call.norms(n) for index, call in found.items()}, clipping.per_layer)
        factors, bad = clipping.factors(norms), unusable(norms)
        if bad is not None:
            factors.masked_fill_(bad[:, None], 0.0)
            for call in found.values():
                call.leave_out(bad)
        total = losses.new_empty(self.size) if len(found) == len(self._layers) else losses.new_zeros(self.size)
        columns = factors.split_with_sizes([1] * len(self._layers), dim=1) if clipping.per_layer else ()
        parts = total.split_with_sizes(self._sizes)
        for index, call in found.items():
            weight, bias = self._places[index]
            call.sum_into(
                columns[index] if clipping.per_layer else factors,
                None if weight is None else parts[weight].view(self._shapes[weight]),
                None if bias is None else parts[bias],
            )
        return self._result(total, norms, losses, bad)

    def _norms(self, losses: Tensor, n: int, found: dict[int, Tensor], per_layer: bool) -> Tensor:
        """float32[example, group], from those of the layers that have a gradient."""
        nothing = [] if len(found) == len(self._layers) else [losses.new_zeros(n, 1)]
        if per_layer:
            every = [found[index] if index in found else nothing[0] for index in range(len(self._layers))]
            return torch.cat(every, dim=1)
        every = [*found.values(), *nothing]
        return every[0] if len(every) == 1 else lengths(torch.cat(every, dim=1))

    def _result(self, total: Tensor, norms: Tensor, losses: Tensor, bad: Tensor | None) -> ClippedSum:
        n = norms.shape[0]
        each = losses if losses.shape[0] == n else losses.view(n, -1).mean(dim=1)
        return ClippedSum(total, norms, each, 0 if bad is None else int(bad.sum()))

    def _backward(self, x: Tensor, y: Tensor, views: int) -> tuple[Tensor, dict[int, LayerCall]]:
        """float32[row] losses, and the calls of layers with the gradients at their outputs."""
        assert self._tape is not None
        tape, rows = self._tape, x.shape[0]
        try:
            with torch.enable_grad():
                tape.listen(rows)
                outputs = self.model(x)
                tape.rest()
                losses = self.loss(outputs, y)
            if losses.shape != (rows,):
                raise ParameterError(
                    f"The loss must give one number for each of the {rows} rows, got shape {tuple(losses.shape)}; "
                    'most losses of torch do with reduction="none".'
                )
            if not losses.requires_grad:
                return losses, {}
            tape.prove(losses)
            calls = tape.calls
            edges = [edge for _, edge in calls.values()]
            # Only what leads to these edges is computed: gradients of data, none of parameters.
            gradients = torch.autograd.grad(losses, edges, self._shares(losses, views)) if edges else ()
            for (call, _), gradient in zip(calls.values(), gradients, strict=True):
                call.gradient = gradient
            return losses.detach(), {index: call for index, (call, _) in calls.items()}
        finally:
            tape.forget()

    def _shares(self, losses: Tensor, views: int) -> Tensor:
        """float32[row], all 1 / views: an example's gradient is the mean over its views."""
        if self._weights.shape != losses.shape or self._weight_of != views:
            self._weights, self._weight_of = torch.full_like(losses, 1 / views), views
        return self._weights

    def _per_sample(self, x: Tensor, y: Tensor, views: int, clipping: Clipping) -> ClippedSum:
        gradients, losses = (self._slow or self._loop)(x, y)
        n = len(x) // views
        if views > 1:
            gradients = gradients.view(n, views, -1).mean(dim=1)
        groups = self._spans if clipping.per_layer else [slice(0, self.size)]
        norms = torch.cat([lengths(gradients[:, each]) for each in groups], dim=1)
        factors, bad = clipping.factors(norms), unusable(norms)
        if bad is not None:
            factors.masked_fill_(bad[:, None], 0.0)
            gradients = gradients.masked_fill(bad[:, None], 0.0)
        total = torch.cat([torch.mv(gradients[:, each].t(), column) for each, column in zip(groups, factors.t(), strict=True)])
        return self._result(total, norms, losses, bad)

    def _fall_back(self, reason: str) -> None:
        self.notes.append(f"Per-sample gradients for the whole model, which are slower: {reason}.")
        self._slow = self._vmap
        if self._tape is not None:
            self._tape.close()
        self._tape = None

    def _check(self, x: Tensor, y: Tensor) -> None:
        """Compare the way in use with one backward pass a row, on a few rows; take a slower one where they differ.

        What no hook can see, such as layers that get rows in another order, shows here. In eval mode; a model that draws
        random numbers even then cannot be compared, and is trusted to be what its graph says.
        """
        with undisturbed(self.model):
            self.model.eval()
            truth, _ = self._loop(x, y)
            drawn = not torch.allclose(truth, self._loop(x, y)[0], rtol=_AGREES, atol=1e-6, equal_nan=True)
            if self._tape is not None:
                try:
                    found = self._book_keeping(x, y, 1, _UNCLIPPED)
                    if not drawn and not self._agrees(found, truth):
                        self._fall_back("the gradients at the outputs of layers do not give the gradient of the model")
                except Unproven as reason:
                    self._fall_back(str(reason))
            if self._slow is not None:
                try:
                    if drawn or self._agrees(self._per_sample(x, y, 1, _UNCLIPPED), truth):
                        return
                    reason_to_loop = "torch.func.vmap gives other gradients"
                except Exception as error:  # whatever it is that torch.func does not know
                    reason_to_loop = f"torch.func.vmap fails ({type(error).__name__})"
                self.notes.append(f"One backward pass a row, which is slowest: {reason_to_loop}.")
                self._slow = self._loop

    def _agrees(self, found: ClippedSum, truth: Tensor) -> bool:
        """Whether norms and the sum are those of ``truth``: float32[row, size], left out where it is not finite."""
        norms = torch.cat([lengths(truth[:, each]) for each in self._spans], dim=1)
        good = norms.isfinite().all(dim=1)
        scale = lengths(norms)
        total = truth[good].sum(dim=0)
        near = (found.norms - norms).abs() <= _AGREES * scale + 1e-12
        return bool(near[good].all()) and bool((found.total - total).norm() <= _AGREES * scale[good].sum() + 1e-12)
