"""Teachers one after another, as one would write them in PyTorch and scikit-learn: what the batched ones are timed against.

They are written to be read and serve as the oracle in tests: the same records, first weights, orders and settings as
:mod:`pate.teachers.batched`, through autograd and ``torch.optim.SGD``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pate.arrays import IntArray
from pate.extras import require
from pate.teachers.batched import LogisticTeachers, MLPTeachers
from pate.teachers.batched.aligned import aligned
from pate.teachers.batched.starts import epoch_orders, first_weights, mean_square_length
from pate.teachers.family import Part

if TYPE_CHECKING:
    import torch


def plain_logistic(family: LogisticTeachers, part: Part, n_classes: int) -> torch.nn.Module:
    """One teacher of ``family``, by autograd."""
    torch = require("torch", "train")
    x = _records(part.x)
    length = mean_square_length(x)
    model = torch.nn.Linear(x.shape[1], n_classes)
    _set(model.parameters(), [np.zeros((n_classes, x.shape[1])), np.zeros(n_classes)])
    optimiser = torch.optim.SGD(
        model.parameters(),
        lr=family.learning_rate / length,
        momentum=family.momentum,
        weight_decay=family.weight_decay * length,
    )
    return _descend(model, optimiser, x, part, family.epochs, family.batch)


def plain_mlp(family: MLPTeachers, part: Part, n_classes: int) -> torch.nn.Module:
    """One teacher of ``family``, by autograd."""
    torch = require("torch", "train")
    x = _records(part.x)
    lengths = (mean_square_length(x), family.hidden + 1)
    layers = torch.nn.Linear(x.shape[1], family.hidden), torch.nn.Linear(family.hidden, n_classes)
    weights = first_weights(part.seed, x.shape[1], family.hidden, n_classes, lengths[0])
    for layer, first in zip(layers, weights, strict=True):
        _set(layer.parameters(), [first, np.zeros(len(first))])
    groups = [
        {
            "params": layer.parameters(),
            "lr": family.learning_rate / length,
            "weight_decay": family.weight_decay * length,
        }
        for layer, length in zip(layers, lengths, strict=True)
    ]
    model = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1])
    return _descend(model, torch.optim.SGD(groups, momentum=family.momentum), x, part, family.epochs, family.batch)


def sklearn_logistic(part: Part) -> Any:
    """One fit of scikit-learn's logistic regression with its own settings."""
    estimator = require("sklearn.linear_model", "train").LogisticRegression(max_iter=200)
    return estimator.fit(_records(part.x), part.y)


def plain_votes(models: Sequence[torch.nn.Module], x: NDArray[Any]) -> IntArray:
    """int64[teacher, query]: each model on all queries at once."""
    torch = require("torch", "train")
    queries = torch.from_numpy(_records(x))
    with torch.no_grad():
        votes: IntArray = np.stack([model(queries).argmax(dim=1).numpy() for model in models])
    return votes


def _descend(
    model: torch.nn.Module, optimiser: torch.optim.Optimizer, x: NDArray[np.float32], part: Part, epochs: int, batch: int
) -> torch.nn.Module:
    torch = require("torch", "train")
    inputs, labels = torch.from_numpy(x), torch.from_numpy(np.array(part.y))
    for order in torch.from_numpy(epoch_orders(part.seed, len(x), epochs)):
        for picked in order.split(batch):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs[picked]), labels[picked]).backward()
            optimiser.step()
    return model


def _records(x: NDArray[Any]) -> NDArray[np.float32]:
    """float32[record, feature]."""
    return aligned(np.array(x, dtype=np.float32).reshape(len(x), -1))


def _set(parameters: Any, values: Sequence[NDArray[Any]]) -> None:
    torch = require("torch", "train")
    with torch.no_grad():
        for parameter, value in zip(parameters, values, strict=True):
            parameter.copy_(torch.from_numpy(np.asarray(value, dtype=np.float32)))
