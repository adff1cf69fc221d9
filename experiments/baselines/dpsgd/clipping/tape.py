"""What a forward pass did with the layers: their inputs, the places of their outputs in the graph, and a proof of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from pate.errors import ParameterError
from pate.experiments.baselines.dpsgd.clipping.convolutions import ConvCall
from pate.experiments.baselines.dpsgd.clipping.layers import (
    EmbeddingCall,
    GroupNormCall,
    LayerCall,
    LayerNormCall,
    LinearCall,
)

_KINDS: dict[type[nn.Module], Callable[[Any, frozenset[str], Tensor, Tensor], LayerCall]] = {
    nn.Linear: LinearCall,
    nn.Conv1d: ConvCall,
    nn.Conv2d: ConvCall,
    nn.GroupNorm: GroupNormCall,
    nn.LayerNorm: LayerNormCall,
    nn.Embedding: EmbeddingCall,
}
_ACCUMULATE: Any = type(get_gradient_edge(torch.zeros(1, requires_grad=True)).node)


class Unproven(Exception):
    """A forward pass in which the inputs and outputs of layers don't tell the whole gradient. Never leaves the engine."""


def trained_modules(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The modules that own a trained parameter, each parameter counted where it is met first."""
    seen: set[int] = set()
    found = []
    for name, module in model.named_modules():
        new = {id(each) for each in module.parameters(recurse=False) if each.requires_grad} - seen
        if new:
            found.append((name or type(module).__name__, module))
            seen |= new
    return found


def reasons_against(model: nn.Module) -> list[str]:
    """Why book-keeping cannot serve the model, one sentence a module; empty if it can."""
    reasons = []
    for name, module in trained_modules(model):
        # The exact type: a subclass may do anything in its forward.
        if type(module) not in _KINDS:
            reasons.append(f"{name} ({type(module).__name__}) is no layer with known norms")
        elif (
            "forward" in vars(module)
            or not set(module._parameters) <= {"weight", "bias"}
            or module._parameters["weight"] is None
        ):
            reasons.append(f"{name} ({type(module).__name__}) has a forward pass or parameters of its own")
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter.requires_grad:
            names.setdefault(id(parameter), []).append(name)
    reasons += [f"{' and '.join(each)} are one parameter" for each in names.values() if len(each) > 1]
    return reasons


class Tape:
    """Forward hooks on the trained layers of a model. It hears what comes after :meth:`listen`."""

    def __init__(self, layers: list[tuple[str, nn.Module]]) -> None:
        self._layers = layers
        self._trained = [[id(each) for each in module.parameters(recurse=False) if each.requires_grad] for _, module in layers]
        self._rows = -1  # not listening
        self._called: set[int] = set()
        self._fault: str | None = None
        self.calls: dict[int, tuple[LayerCall, GradientEdge]] = {}
        # First among the hooks, so that the output is the layer's own; a hook of the user may change it afterwards.
        self._hooks = [
            module.register_forward_hook(self._hook(index), prepend=True, with_kwargs=True)
            for index, (_, module) in enumerate(layers)
        ]

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def listen(self, rows: int) -> None:
        """Record the forward pass over ``rows`` rows that follows, until :meth:`rest`."""
        self.calls, self._called, self._fault = {}, set(), None
        self._rows = rows

    def rest(self) -> None:
        """What calls layers now is not the forward pass: a backward pass may do so again (checkpoints)."""
        self._rows = -1

    def forget(self) -> None:
        self._rows = -1
        self.calls = {}

    def _hook(self, index: int) -> Callable[[Any, tuple[Any, ...], dict[str, Any], Tensor], None]:
        name, module = self._layers[index]
        trained = frozenset(each for each, parameter in module.named_parameters(recurse=False) if parameter.requires_grad)
        kind, least = _KINDS[type(module)], _least_dimensions(module)

        def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
            if self._rows < 0:
                return
            inputs: Tensor = args[0] if args else kwargs["input"]
            # Kept and raised by prove(): the model's own code might catch it here.
            if index in self._called:
                self._fault = f"{name} is called more than once"
            elif inputs.dim() < least or inputs.shape[0] != self._rows:
                self._fault = f"{name} gets an input of shape {tuple(inputs.shape)}, not a row for each of {self._rows}"
            elif output._is_view():  # an operation in place would change the graph of what it is a view of
                self._fault = f"{name} gives a view"
            elif output.requires_grad:
                self.calls[index] = kind(module, trained, inputs, output), get_gradient_edge(output)
            self._called.add(index)

        return record

    def prove(self, losses: Tensor) -> None:
        """Raise :class:`Unproven` unless the graph from ``losses`` reaches every trained parameter by its layer's call only.

        Parameters require gradients in the forward pass, so that the graph tells each use of each; none is computed,
        since none is asked for. So a layer called twice, a weight used beside its layer, or a graph changed after the call
        is found in the very step that does it.
        """
        if self._fault is not None:
            raise Unproven(self._fault)
        uses: dict[int, int] = {}
        seen: set[Any] = {losses.grad_fn}
        waiting: list[Any] = [losses.grad_fn]
        for node in waiting:
            for below, _ in node.next_functions:
                if type(below) is _ACCUMULATE:
                    used = id(below.variable)
                    uses[used] = uses.get(used, 0) + 1
                elif below is not None and below not in seen:
                    seen.add(below)
                    waiting.append(below)
        for index, trained in enumerate(self._trained):
            reached = index in self.calls and self.calls[index][1].node in seen
            if any(uses.get(each, 0) > reached for each in trained):
                raise Unproven(f"parameters of {self._layers[index][0]} are used outside of its call")
            if not reached:
                self.calls.pop(index, None)
        for index, (call, _) in self.calls.items():
            if call.inputs._version != call.version:
                raise ParameterError(
                    f"The input of {self._layers[index][0]} is changed in place after its call, so that its gradient is lost; "
                    "torch's own backward pass refuses this too. Use an operation that makes a new tensor."
                )


def _least_dimensions(module: nn.Module) -> int:
    """Dimensions of an input that has one for the rows; torch takes some without it."""
    if isinstance(module, nn.LayerNorm):
        return 1 + len(module.normalized_shape)
    least: dict[type[nn.Module], int] = {nn.Conv2d: 4, nn.Conv1d: 3, nn.Embedding: 1}
    return least.get(type(module), 2)
