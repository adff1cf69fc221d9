"""Where training begins and in which order it goes: shared with the plain loops that the batched teachers are checked against.

All random numbers of a teacher come from its seed, in two streams: the order of its records, and its first weights.
"""

from __future__ import annotations

import math

import numpy as np

from pate.arrays import IntArray
from pate.teachers.batched.aligned import Float32, zeros

_ORDER, _WEIGHTS = 0, 1


def epoch_orders(seed: int, n_records: int, epochs: int) -> IntArray:
    """int64[epoch, record]: the order in which a teacher sees its records; mini-batches are consecutive runs of a row."""
    rows = np.tile(np.arange(n_records, dtype=np.int64), (epochs, 1))
    return np.random.default_rng([seed, _ORDER]).permuted(rows, axis=1)


def mean_square_length(x: Float32) -> float:
    """1 + the mean squared length of the records x: float32[record, feature]; the 1 is the constant feature of the intercept.

    The unit of a first layer's learning rate. It is the teacher's own number, made from its own records.
    """
    flat = x.reshape(-1)
    return 1.0 + float(np.dot(flat, flat)) / len(x)


def first_weights(seed: int, n_features: int, hidden: int, n_classes: int, square_length: float) -> tuple[Float32, Float32]:
    """float32[hidden, feature] and float32[class, hidden], uniform. Intercepts begin at 0.

    A hidden unit's input has variance about 2 before the rectifier, so its output has mean square about 1; a class's score
    has variance about 1.
    """
    rng = np.random.default_rng([seed, _WEIGHTS])
    layers = []
    for shape, variance in (((hidden, n_features), 2 / square_length), ((n_classes, hidden), 1 / hidden)):
        weights = zeros(*shape)
        rng.random(out=weights, dtype=np.float32)
        weights -= 0.5
        weights *= math.sqrt(12 * variance)
        layers.append(weights)
    return layers[0], layers[1]
