"""What a model must be for a per-example gradient to exist: rows that do not know of each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy

from pate.errors import ParameterError

_SAME = 1e-4  # relative to the largest output: sums in another order differ by less, examples that mix by more
_NOTHING = 1e-6


def check_model(model: nn.Module) -> None:
    """Raise :class:`~pate.errors.ParameterError`, with all that is wrong at once, unless examples can be told apart.

    What only a run can show, :func:`check_no_mixing` finds.
    """
    if not isinstance(model, nn.Module):
        raise ParameterError(f"The model must be a torch.nn.Module, got {type(model).__name__}.")
    problems = [f"{name or 'the model'} {problem}" for name, module in model.named_modules() for problem in _faults(module)]
    trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
    if not trained:
        problems.append("no parameter is trained: set requires_grad on those that shall be")
    for name, parameter in trained.items():
        if is_lazy(parameter):
            problems.append(f"{name} has no shape yet: call the model once before")
        elif parameter.dtype != torch.float32:
            problems.append(f"{name} is {parameter.dtype}: call model.float()")
    devices = {str(each.device) for each in trained.values()}
    if len(devices) > 1:
        problems.append(f"its parameters are on {', '.join(sorted(devices))}: move the model to one of them")
    if problems:
        raise ParameterError("The model cannot be trained with clipped per-example gradients: " + "; ".join(problems) + ".")


def _faults(module: nn.Module) -> Iterator[str]:
    kind = type(module).__name__
    if isinstance(module, _BatchNorm):
        channels = module.num_features or "channels"
        yield f"({kind}) normalises an example by the others: use nn.GroupNorm(groups, {channels}) in its place"
    if isinstance(module, _InstanceNorm) and module.track_running_stats:
        yield f"({kind}) keeps statistics of all examples: use track_running_stats=False, or nn.GroupNorm"
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        if module.scale_grad_by_freq:
            yield f"({kind}) scales by how often all examples use a row: use scale_grad_by_freq=False"
        if module.max_norm is not None:
            yield f"({kind}) changes its weights in the forward pass, without noise: use max_norm=None"


def check_no_mixing(model: nn.Module, x: Tensor) -> None:
    """Raise :class:`~pate.errors.ParameterError` if an output depends on another example of the batch ``x``.

    Two tests: an example alone has the output that it has among others (in eval mode); and the gradient of an output at the
    inputs of the other examples is zero (in eval mode and in train mode, for inputs that have gradients).
    """
    if len(x) < 2:
        raise ParameterError(f"check_no_mixing needs a batch of at least 2 examples, got {len(x)}.")
    places = sorted({0, len(x) // 2, len(x) - 1})
    with undisturbed(model):
        model.eval()
        with torch.no_grad():
            together = _outputs(model, x)
            size = float(together[together.isfinite()].abs().max()) if together.isfinite().any() else 0.0
            for place in places:
                alone = _outputs(model, x[place : place + 1])
                if not torch.allclose(together[place : place + 1], alone, rtol=_SAME, atol=_SAME * size, equal_nan=True):
                    raise _mixed(f"example {place} of {len(x)} has another output alone than among the others")
        for train in (False, True) if x.is_floating_point() else ():
            model.train(train)
            for place in places:
                _check_gradient(model, x, place)


def _check_gradient(model: nn.Module, x: Tensor, place: int) -> None:
    with torch.enable_grad():
        inputs = x.detach().clone().requires_grad_()
        output = _outputs(model, inputs)[place].sum()
        if not output.requires_grad:
            return
        gradient = torch.autograd.grad(output, inputs, allow_unused=True)[0]
    if gradient is None:
        return
    own = gradient[place].abs().max().nan_to_num()
    others = torch.cat([gradient[:place], gradient[place + 1 :]])
    if not bool((others.abs() <= _NOTHING * own).all()):
        mode = "train" if model.training else "eval"
        raise _mixed(f"the output of example {place} has a gradient at the inputs of others ({mode} mode)")


def _outputs(model: nn.Module, x: Tensor) -> Tensor:
    outputs = model(x)
    if not isinstance(outputs, Tensor) or outputs.dim() < 1 or len(outputs) != len(x):
        shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise ParameterError(f"The model must give one output row for each of the {len(x)} rows of x, got {shape}.")
    return outputs


def _mixed(found: str) -> ParameterError:
    return ParameterError(
        f"The model mixes examples: {found}. A clipped gradient then bounds nobody's influence: "
        "let no operation reach over dimension 0 (means, normalisation, attention, sorting)."
    )


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Modes, buffers and random numbers as before after the block."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(each, each.clone()) for each in model.buffers()]
    devices = {each.device for each in model.parameters() if each.is_cuda}
    try:
        with torch.random.fork_rng(devices=sorted(device.index for device in devices)):
            yield
    finally:
        for module, training in modes:
            module.training = training
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
