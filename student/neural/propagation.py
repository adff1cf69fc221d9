"""Spread the answers over a graph, teach a network with them, and again on the graph of what the network sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from pate.errors import StudentError
from pate.features import Contrastive, Features
from pate.features.cache import fit_cached
from pate.public import PublicData
from pate.student.diary import Diary
from pate.student.graph.neighbours import unit_length
from pate.student.graph.spreading import Doubt
from pate.student.graph.spreading_student import check_alpha, spread_answers
from pate.student.neural.augment import fixed_views
from pate.student.neural.base import Lesson, NeuralStudent
from pate.student.neural.descent import Average, adamw, descend
from pate.student.neural.inputs import endless
from pate.student.neural.losses import generalised_cross_entropy
from pate.student.neural.nets import Net
from pate.student.records import FeaturesSpec, Float32Array, make_features
from pate.validation import json_values, whole

_ROWS = 500


@dataclass(eq=False, repr=False, kw_only=True)
class Propagation(NeuralStudent):
    """Label spreading on self-supervised features, then a network fine-tuned on what was spread, in rounds.

    First the answers are spread over a graph of the public records (:class:`~pate.student.graph.spreading_student.Spreading`),
    which doubts answers that the others contradict. Then a network learns the spread labels of all public records under random
    distortions, each record weighing as much as its likeliest class leads the second. In the next round the graph is made of
    the network's own embeddings, and the network's predictions are mixed with what is spread on it.

    features: of the first graph; a name or {"name", "settings"}. "auto": "contrastive" for pictures of one channel,
        "standardise" for tables.
    start: "features": the network begins as the self-supervised network of ``features``, which must be "contrastive"; "fresh":
        as ``net`` and ``width`` say. "auto": as the features allow.
    rounds, steps: rounds of spreading and training, and steps of training in each.
    robust: q of the generalised cross entropy, 0 to 1: how much wrong targets are borne.
    mix: the share of spreading, against the network's predictions, in the targets of later rounds.
    neighbours, alpha, wrong, sharpness, majority: of the spreading.
    """

    name: ClassVar[str] = "propagation"

    features: FeaturesSpec = "auto"
    start: str = "auto"
    rounds: int = 2
    robust: float = 0.7
    mix: float = 0.5
    neighbours: int = 10
    alpha: float = 0.99
    wrong: float = 0.1
    sharpness: float = 1.0
    majority: float = 0.5
    steps: int = 300
    public_batch: int = 256
    rate: float = 2e-3
    ema: float = 0.99
    views: int = 9

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self.rounds, "propagation rounds", 1)
        whole(self.neighbours, "propagation neighbours", 1)
        check_alpha(self.alpha)
        self._doubt()
        for what in ("mix", "robust"):
            if not 0 <= getattr(self, what) <= 1:
                raise StudentError(f"propagation {what} must be between 0 and 1, got {getattr(self, what)!r}.")
        if self.start not in ("auto", "features", "fresh"):
            raise StudentError(f"propagation start must be 'auto', 'features' or 'fresh', got {self.start!r}.")
        json_values(self.settings(), self.title)

    def _doubt(self) -> Doubt:
        return Doubt(self.wrong, self.sharpness, self.majority)

    def _train(self, lesson: Lesson, diary: Diary) -> Net:
        shape = tuple(lesson.public.shape[1:])
        records = lesson.public.cpu().numpy()
        if len(shape) == 3 and shape[0] == 1:
            records = records[:, 0]  # as other students and queries see them, so that the cache serves all
        with diary.fitting() as told:
            features = fit_cached(self._features(shape), PublicData(records), progress=told)
        points = features.transform(records)
        if len(shape) == 3:  # directions tell pictures apart, distances rows of a table
            points = unit_length(points)
        net = self._build(shape, lesson.n_classes)
        if self._starts_from(features):
            assert isinstance(features, Contrastive)
            net.body.load_state_dict(features.network().state_dict())
        predicted: Tensor | None = None
        for turn in range(1, self.rounds + 1):
            scores = spread_answers(points, lesson.answers, self.neighbours, self.alpha, self._doubt())
            targets = torch.from_numpy(scores).to(lesson.public)
            if predicted is not None:
                targets = self.mix * targets + (1 - self.mix) * predicted
            net = self._taught(net, lesson, targets, diary, f"round {turn} of {self.rounds}")
            if turn < self.rounds:
                points, probabilities = _seen_by(net, lesson.public, self.views)
                predicted = torch.from_numpy(probabilities).to(lesson.public)
        return net

    def _taught(self, net: Net, lesson: Lesson, targets: Tensor, diary: Diary, stage: str) -> Net:
        """``net`` trained on the likeliest class of each public record, targets float32[record, class]; its average."""
        top = targets.topk(2, dim=1)
        classes, weights = top.indices[:, 0], top.values[:, 0] - top.values[:, 1]
        net.requires_grad_(True)
        average = Average(net, self.ema)
        batches = endless(len(lesson.public), min(self.public_batch, len(lesson.public)))

        def loss(share: float) -> tuple[Tensor, dict[str, float]]:
            chosen = next(batches).to(lesson.public.device)
            records = lesson.augment(lesson.public[chosen], self.strength)
            if records.ndim == 4:
                records = records.contiguous(memory_format=torch.channels_last)
            scores = net(records)
            each = generalised_cross_entropy(scores, classes[chosen], self.robust)
            weight = weights[chosen]
            agreement = (scores.detach().argmax(dim=1) == classes[chosen]).float().mean()
            return (weight * each).sum() / weight.sum().clamp(min=1e-9), {"agreement": float(agreement)}

        optimiser = adamw(net, self.rate, self.weight_decay)
        descend(net, optimiser, loss, self.steps, diary, stage=stage, average=average)
        taught = average.module
        assert isinstance(taught, Net)
        return taught

    def _features(self, shape: tuple[int, ...]) -> Features:
        if self.features != "auto":
            return make_features(self.features)
        if len(shape) == 1:
            return make_features("standardise")
        if shape[0] == 1 and min(shape[1:]) >= 12:
            return make_features("contrastive")
        raise StudentError(
            f"propagation has no features of its own for pictures of shape {shape}: name some, for example features='hog', or "
            "an extractor of your own as 'package.module:Class'."
        )

    def _starts_from(self, features: Features) -> bool:
        possible = isinstance(features, Contrastive)
        if self.start == "features" and not possible:
            raise StudentError(
                f"propagation start='features' needs features='contrastive', whose network it is, got {features!r}."
            )
        return possible and self.start != "fresh"

    def _blank(self, input_shape: tuple[int, ...], n_classes: int) -> Net:
        features = self._features(input_shape)
        if not self._starts_from(features):
            return super()._blank(input_shape, n_classes)
        assert isinstance(features, Contrastive)
        from pate.features.simclr import fresh_network

        body = fresh_network(input_shape[1:], features.channels, features.features)
        return Net(body, features.features, n_classes)


def _seen_by(net: Net, public: Tensor, count: int) -> tuple[Float32Array, Float32Array]:
    """Embeddings of length 1, float32[record, feature], and probabilities, float32[record, class]: means over the views."""
    embeddings, probabilities = [], []
    with torch.inference_mode():
        for start in range(0, len(public), _ROWS):
            records = public[start : start + _ROWS]
            seen = [net.embed(view) for view in (fixed_views(records, count) if records.ndim == 4 else [records])]
            embeddings.append(torch.stack([functional.normalize(each) for each in seen]).mean(dim=0).cpu().numpy())
            probabilities.append(torch.stack([net.head(each).softmax(dim=1) for each in seen]).mean(dim=0).cpu().numpy())
    return unit_length(np.concatenate(embeddings)), np.concatenate(probabilities)
