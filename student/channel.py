"""What the public facts of a mechanism say about its answers: how likely each label is, given the teachers' vote shares.

A student may know sigma, the number of teachers and the threshold, never the votes. If a share s_j of K teachers votes for
class j, GNMax answers argmax_j(K s_j + N(0, sigma^2)); so an answer is evidence about s, weak where the noise is large, and an
abstention says that no class had many votes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import log_ndtr, logsumexp

from pate.arrays import FloatArray, IntArray
from pate.errors import StudentError
from pate.release import ABSTAIN, Release
from pate.validation import positive

Noise = Literal["gaussian", "laplace"]

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_LOG_2 = math.log(2)
_RELATIVE_ERROR = 1e-10  # of a probability by the trapezoid rule
_TAIL = 9.0  # standard deviations beyond which a Gaussian holds less than that error
_PANEL = 2.0  # widest panel of the Laplace quadrature, in scales of the noise
_PANEL_NODES = 16
_CELLS = 2_000_000  # numbers in one array of a quadrature at a time
_LEAST_SHARE = 1e-300


class ConfidenceTest(NamedTuple):
    """Passes where max(counts) + N(0, sigma^2) >= threshold, in votes."""

    threshold: float
    sigma: float


@dataclass(frozen=True)
class Channel:
    """The probability of every public outcome of a query, given the share of teachers that vote for each class.

    noise, scale: what is added to each count, in votes: Gaussian noise of this standard deviation, or Laplace of this scale.
    test: of a Confident mechanism, which answers where its noisy test passes; None where every query is answered.

    >>> channel = Channel("gaussian", scale=40.0, n_teachers=250, n_classes=2)
    >>> np.exp(channel.log_probs(np.array([[0.5, 0.5], [0.6, 0.4]]))).round(3)
    array([[0.5  , 0.5  ],
           [0.812, 0.188]])
    """

    noise: Noise
    scale: float
    n_teachers: int
    n_classes: int
    test: ConfidenceTest | None = None

    @classmethod
    def of(cls, release: Release) -> Channel | None:
        """The channel of a release, from its mechanism and electorate.

        None where they do not say it: an aggregator that is not built in, or partial votes, where how many vote on a query is
        not public. A student then takes the labels as they are.
        """
        facts, electorate = release.mechanism, release.electorate
        if electorate.participation is not None:
            return None
        test: ConfidenceTest | None = None
        name = facts.get("aggregator")
        if name == "confident":
            test = ConfidenceTest(_number(facts, "threshold"), _number(facts, "sigma"))
            facts = {key.removeprefix("inner_"): value for key, value in facts.items() if key.startswith("inner_")}
            name = facts.get("aggregator")
        elif name == "confident-gnmax":
            test = ConfidenceTest(_number(facts, "threshold"), _number(facts, "sigma1"))
            name, facts = "gnmax", {"aggregator": name, "sigma": _number(facts, "sigma2")}
        noise: Noise
        if name in ("gnmax", "noisy-histogram"):  # the label beside a noisy histogram is its argmax
            noise, scale = "gaussian", _number(facts, "sigma")
        elif name == "lnmax":
            noise, scale = "laplace", 1 / _number(facts, "gamma")
        else:
            return None
        return cls(noise, scale, electorate.n_teachers, electorate.n_classes, test)

    def log_probs(self, shares: FloatArray) -> FloatArray:
        """float64[record, outcome] for shares float64[record, class]: each class, then abstention if there is a test."""
        columns = [self._answer(shares, np.full(len(shares), j, dtype=np.int64))[0] for j in range(self.n_classes)]
        if self.test is not None:
            columns.append(self._tested(self.test, shares, -1.0)[0])
        return np.stack(columns, axis=1)

    def log_likelihood(
        self, shares: FloatArray, labels: IntArray, histogram: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """log P(outcome | shares), float64[record], and its derivative by the shares, float64[record, class].

        labels: int64[record], ABSTAIN where the query was declined. histogram: float64[record, class], the noisy counts where
        they were published; the labels then say nothing more.
        """
        if histogram is not None:
            miss = histogram - self.n_teachers * shares
            return -(miss**2).sum(axis=1) / (2 * self.scale**2), miss * (self.n_teachers / self.scale**2)
        silent = labels == ABSTAIN
        if not silent.any():
            return self._answer(shares, labels)
        if self.test is None:
            raise StudentError("There are abstentions, but the mechanism of the release has no test and answers every query.")
        value, gradient = np.empty(len(shares)), np.empty_like(shares)
        value[silent], gradient[silent] = self._tested(self.test, shares[silent], -1.0)
        value[~silent], gradient[~silent] = self._answer(shares[~silent], labels[~silent])
        return value, gradient

    def _answer(self, shares: FloatArray, labels: IntArray) -> tuple[FloatArray, FloatArray]:
        value, gradient = winner_log_prob(shares * (self.n_teachers / self.scale), labels, self.noise)
        gradient = gradient * (self.n_teachers / self.scale)
        if self.test is None:
            return value, gradient
        passed, slope = self._tested(self.test, shares, 1.0)
        return value + passed, gradient + slope

    def _tested(self, test: ConfidenceTest, shares: FloatArray, sign: float) -> tuple[FloatArray, FloatArray]:
        """log P of passing the test (sign 1) or failing it (-1), and its derivative: by the largest share only."""
        rows, top = np.arange(len(shares)), shares.argmax(axis=1)
        lead = sign * (self.n_teachers * shares[rows, top] - test.threshold) / test.sigma
        value = log_ndtr(lead)
        gradient = np.zeros_like(shares)
        gradient[rows, top] = sign * self.n_teachers / test.sigma * np.exp(_log_normal(lead) - value)
        return value, gradient


def plain_log_likelihood(shares: FloatArray, labels: IntArray) -> tuple[FloatArray, FloatArray]:
    """As :meth:`Channel.log_likelihood` where the mechanism is unknown: a label is one draw from the shares.

    That makes a maximum-likelihood fit an ordinary logistic regression on the labels. An abstention then says nothing.
    """
    rows, answered = np.arange(len(shares)), labels != ABSTAIN
    chosen = np.maximum(shares[rows, labels], _LEAST_SHARE)
    gradient = np.zeros_like(shares)
    gradient[rows, labels] = np.where(answered, 1 / chosen, 0.0)
    return np.where(answered, np.log(chosen), 0.0), gradient


def winner_log_prob(scores: FloatArray, labels: IntArray, noise: Noise) -> tuple[FloatArray, FloatArray]:
    """log P(argmax_i(scores_i + noise_i) = label), float64[record], and its derivative, float64[record, class].

    scores: float64[record, class] in units of the noise: standard deviations (Gaussian) or scales (Laplace). Two classes have
    a closed form; more are integrated, with a relative error below 1e-9 however small the probability.
    """
    if scores.shape[1] == 2:
        return _two_classes(scores, labels, noise)
    value, gradient = np.empty(len(scores)), np.empty_like(scores)
    spread = float((scores.max(axis=1) - scores.min(axis=1)).max(initial=0.0))
    step = _nodes_wanted(scores.shape[1], spread, noise) * scores.shape[1]
    rows = max(1, _CELLS // step)
    for start in range(0, len(scores), rows):
        part = slice(start, start + rows)
        value[part], gradient[part] = _integrated(scores[part], labels[part], noise)
    return value, gradient


def _two_classes(scores: FloatArray, labels: IntArray, noise: Noise) -> tuple[FloatArray, FloatArray]:
    rows = np.arange(len(scores))
    lead = scores[rows, labels] - scores[rows, 1 - labels]
    if noise == "gaussian":  # the difference of two draws has standard deviation sqrt(2)
        value = log_ndtr(lead / np.sqrt(2))
        slope = np.exp(_log_normal(lead / np.sqrt(2)) - value) / np.sqrt(2)
    else:  # the difference d of two draws exceeds |d| with probability e^-|d| (1/2 + |d|/4)
        size = np.abs(lead)
        tail = np.log(0.5 + size / 4) - size
        value = np.where(lead >= 0, np.log1p(-np.exp(tail)), tail)
        slope = np.exp(-size - value) * (1 + size) / 4
    gradient = np.empty_like(scores)
    gradient[rows, labels], gradient[rows, 1 - labels] = slope, -slope
    return value, gradient


def _integrated(scores: FloatArray, labels: IntArray, noise: Noise) -> tuple[FloatArray, FloatArray]:
    """P_j = ∫ f(x - a_j) ∏_{i≠j} F(x - a_i) dx, in log space, so that small probabilities keep their digits."""
    x, log_weights = _gaussian_nodes(scores) if noise == "gaussian" else _laplace_nodes(scores)
    away = x[:, :, None] - scores[:, None, :]  # [record, node, class]
    below = log_ndtr(away) if noise == "gaussian" else _log_laplace_cdf(away)
    log_ratio = (_log_normal(away) if noise == "gaussian" else _log_laplace(away)) - below
    own = np.take_along_axis(log_ratio, labels[:, None, None], axis=2)[:, :, 0]
    terms = below.sum(axis=2) + own + log_weights
    value: FloatArray = logsumexp(terms, axis=1)
    posterior = np.exp(terms - value[:, None])  # of where the winner's noisy count was
    # d/da_i = -E[f(x-a_i)/F(x-a_i)] for the others; only differences of scores matter, so the winner's is what is left.
    gradient = -np.einsum("rn,rnc->rc", posterior, np.exp(log_ratio))
    rows = np.arange(len(scores))
    gradient[rows, labels] = 0.0
    gradient[rows, labels] = -gradient.sum(axis=1)
    return value, gradient


def _gaussian_nodes(scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Nodes float64[record, node] and log weights of the trapezoid rule.

    With step h its relative error is about 2 exp(-2 pi^2 / (k h^2)) for each of k classes, however unlikely, since
    |Phi(x + iy)| <= e^(y^2/2) Phi(x). Gauss-Hermite nodes around the winner would be good in absolute terms only. All but a
    negligible part lies between half-way down to the lowest score and the highest, tails added.
    """
    h = _trapezoid_step(scores.shape[1])
    top, bottom = scores.max(axis=1), scores.min(axis=1)
    length = float((top - bottom).max(initial=0.0)) / 2 + 2 * _TAIL
    x = top[:, None] + _TAIL - h * np.arange(int(np.ceil(length / h)) + 1)
    return x, np.full(x.shape, np.log(h))


def _laplace_nodes(scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Nodes float64[record, node] and log weights: Gauss-Legendre panels between scores, both tails exact.

    Below the lowest score every factor is an exponential, so the tail is the value there divided by the number of classes.
    Above the highest, with v = e^-(x - highest), the integrand is a polynomial of degree k-1 in v.
    """
    k = scores.shape[1]
    ordered = np.sort(scores, axis=1)
    gaps = np.diff(ordered, axis=1)
    pieces = max(1, int(np.ceil(gaps.max(initial=0.0) / _PANEL)))
    unit, unit_weights = _legendre(_PANEL_NODES)
    places = ((np.arange(pieces)[:, None] + unit) / pieces).ravel()  # of a gap, 0 to 1
    inside = ordered[:, :-1, None] + gaps[:, :, None] * places
    with np.errstate(divide="ignore"):  # equal scores: a panel of no width and no weight
        log_inside = np.log(gaps[:, :, None] * np.tile(unit_weights / pieces, pieces))
    v, v_weights = _legendre((k + 1) // 2)
    above = ordered[:, -1:] - np.log(v)
    rows = len(scores)
    x = np.concatenate([ordered[:, :1], inside.reshape(rows, -1), above], axis=1)
    tails = np.full((rows, 1), -np.log(k)), np.tile(np.log(v_weights / v), (rows, 1))
    return x, np.concatenate([tails[0], log_inside.reshape(rows, -1), tails[1]], axis=1)


def _nodes_wanted(k: int, spread: float, noise: Noise) -> int:
    """How many nodes a record takes at most."""
    if noise == "gaussian":
        return int((spread / 2 + 2 * _TAIL) / _trapezoid_step(k)) + 2
    return (k - 1) * _PANEL_NODES * max(1, int(np.ceil(spread / _PANEL))) + k + 1


def _trapezoid_step(k: int) -> float:
    return float(np.pi * np.sqrt(2 / (k * np.log(2 / _RELATIVE_ERROR))))


def _legendre(count: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights on 0..1."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1) / 2, weights / 2


def _log_normal(x: FloatArray) -> FloatArray:
    density: FloatArray = -(x**2) / 2 - _LOG_SQRT_2PI
    return density


def _log_laplace(x: FloatArray) -> FloatArray:
    density: FloatArray = -np.abs(x) - _LOG_2
    return density


def _log_laplace_cdf(x: FloatArray) -> FloatArray:
    tail = _log_laplace(x)
    return np.where(x < 0, tail, np.log1p(-np.exp(tail)))


def _number(facts: Mapping[str, Any], key: str) -> float:
    if key not in facts:
        raise StudentError(
            f"The mechanism {facts.get('aggregator')!r} of the release must state {key!r}, got {', '.join(map(str, facts))}. "
            "A label without its mechanism is learnt from as it is: leave out the key 'aggregator'."
        )
    positive(facts[key], f"{key} of the release's mechanism")
    return float(facts[key])
