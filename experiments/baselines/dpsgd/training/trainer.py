"""DP-SGD as an estimator: ``DPSGD("cnn", n_classes=10, …).fit(x, y)``, with what it cost in ``cost_``."""

from __future__ import annotations

import copy
import hashlib
import os
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional

from pate.arrays import FloatArray, IntArray
from pate.errors import ExecutionError, ParameterError
from pate.experiments.baselines.dpsgd.accounting import Cost, Training, least_noise, most_steps, noise_for_epsilon
from pate.experiments.baselines.dpsgd.clipping import ClippedGradients, Clipping, check_model, check_no_mixing
from pate.experiments.baselines.dpsgd.lots import PoissonLots
from pate.experiments.baselines.dpsgd.settings import Settings, make_settings
from pate.experiments.baselines.dpsgd.training.loop import Loop
from pate.experiments.baselines.dpsgd.training.models import make_model
from pate.experiments.baselines.dpsgd.training.optimiser import FlatOptimiser
from pate.experiments.baselines.dpsgd.training.paying import Books, Checkpoints, pieces
from pate.extras import require
from pate.ledger import Budget, Ledger
from pate.ledger.chain import Neighbours
from pate.noise import Noise, OSNoise
from pate.progress import Show, tracked
from pate.student.archive import packed, unpacked
from pate.student.neural.inputs import as_tensor, own_randomness

_FILE = "weights.safetensors"
_PREDICTED_AT_ONCE = 2000
_TRIED = 5  # drawn records on which a model of the user's own must keep its examples apart
_EXPLODED = 100.0  # bounds: a median gradient beyond is worth a word


class DPSGD:
    """Gradient descent in which one record moves what is learnt by a bounded amount, drowned in noise.

    model: "logistic", "mlp", "cnn", "group-norm-cnn", "package.module:factory", or a torch module (a copy of it is trained).
    n_classes: how many classes there are; declared, not counted. epsilon, delta: the target, from which the noise follows.
    settings: see :class:`Settings`; its keys can be given by name.

    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 2000)
    >>> x = rng.normal(size=(2000, 4)) + 2 * y[:, None]
    >>> learner = DPSGD("logistic", n_classes=2, epsilon=1.0, lot_size=500, steps=20).fit(x, y)
    >>> bool(learner.score(x, y) > 0.9), round(learner.cost_.epsilon, 1)
    (True, 1.0)
    """

    def __init__(
        self,
        model: str | nn.Module = "logistic",
        n_classes: int | None = None,
        *,
        epsilon: float | None = None,
        delta: float = 1e-5,
        seed: int = 0,
        settings: Settings | None = None,
        **changes: Any,
    ) -> None:
        self.model = model
        self.n_classes = n_classes
        self.epsilon = epsilon
        self.delta = delta
        self.seed = seed
        self.settings = (
            settings
            if settings is not None and not changes
            else make_settings({**({} if settings is None else settings.model_dump(exclude_unset=True)), **changes})
        )

    def plan(self, n_units: int, budget: Budget | None = None, neighbours: Neighbours | None = None) -> Training:
        """Rate, noise and steps for so many records (or users). budget, neighbours: of the ledger that will be charged."""
        chosen = self.settings
        relation = neighbours or "add-remove"
        rate = chosen.rate_of(n_units)
        steps = chosen.steps_of(rate)
        if budget is None and self.epsilon is not None:
            budget = Budget(self.epsilon, self.delta)
            target: float | None = self.epsilon
        else:
            target = None
        if steps == "budget":
            assert isinstance(chosen.noise_multiplier, float)
            steps = most_steps(rate, chosen.noise_multiplier, self._needed(budget), relation)
            if steps < 1:
                raise ParameterError("The budget does not cover one step with this noise: raise noise_multiplier or epsilon.")
        if chosen.noise_multiplier != "auto":
            return Training(rate, chosen.noise_multiplier, steps)
        if target is not None:  # no ledger: the tighter of both accountants decides
            return Training(rate, noise_for_epsilon(rate, steps, target, self.delta), steps)
        return Training(rate, least_noise(rate, steps, self._needed(budget), relation), steps)

    def _needed(self, budget: Budget | None) -> Budget:
        if budget is None:
            raise ParameterError("Give epsilon, or a number for noise_multiplier: the noise must come from somewhere.")
        return budget

    def fit(
        self,
        x: ArrayLike,
        y: ArrayLike,
        *,
        units: ArrayLike | None = None,
        noise: Noise | None = None,
        ledger: Ledger | None = None,
        key: str = "dp-sgd",
        checkpoint: str | os.PathLike[str] | None = None,
        show: Show = "none",
    ) -> Self:
        """Train on x [record, ...] and y int[record].

        units: int[record]: whose record it is, where one person has several; then a person is protected, not a record.
        noise: OSNoise() unless given; a seeded SimulatedNoise protects nobody.
        ledger: charged piece by piece before a lot is drawn, under ``key``. checkpoint: a directory; the same call with the
        same arguments goes on from there.
        """
        if hasattr(x, "sampler") or hasattr(x, "__next__"):
            raise ParameterError(
                "fit takes arrays, not a loader: lots must be drawn by Poisson sampling, which the guarantee counts on. "
                "A shuffling loader gives lots of one size, for which this epsilon is not proven."
            )
        records, labels = as_tensor(np.asarray(x), self.settings.shape), torch.from_numpy(_labels(y))
        if len(records) != len(labels) or not len(labels):
            raise ParameterError(f"x and y must be equally long and not empty, got {len(records)} and {len(labels)}.")
        source = OSNoise() if noise is None else noise
        n_units = len(labels) if units is None else len(np.unique(np.asarray(units)))
        self._check_delta(n_units)
        training = self.plan(n_units) if ledger is None else self.plan(n_units, ledger.budget, ledger.neighbours)
        lots = PoissonLots(len(labels), training.rate, units)
        with own_randomness(self.seed):
            module = self._module(tuple(records.shape[1:]))
            check_model(module)
            if not isinstance(self.model, str):  # ours do not mix; drawn numbers show it as well as private records
                check_no_mixing(module, torch.randn(_TRIED, *records.shape[1:]))
        if int(labels.min()) < 0 or (self.n_classes is not None and int(labels.max()) >= self.n_classes):
            raise ParameterError(f"y must lie in 0..n_classes-1 = {(self.n_classes or 1) - 1}; found a label outside.")
        clipping = Clipping(self.settings.clip, self.settings.per_layer, self.settings.automatic, self.settings.stability)
        folder = None if checkpoint is None else Path(checkpoint)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with ClippedGradients(module, _losses, clipping) as engine:
            optimiser = FlatOptimiser(engine.parameters, self.settings, training.steps)
            saved = Checkpoints(folder, self._identity(training, module, key, source))
            books = saved.load(optimiser)
            self.notes_ = list(engine.notes)
            loop = Loop(engine, optimiser, records, labels, lots, training, self.settings, source, self.seed)
            with tracked("steps", training.steps, done=books.done, show=show) as progress:
                progress.note = f"noise multiplier {training.sigma:g}"
                for steps in pieces(books, training, self.settings.checkpoints, ledger, source.mode, key, saved):
                    loop.take(steps, lambda: progress.advance(1))
                    if not bool(torch.isfinite(optimiser.weights).all()):  # of noised gradients, so this may be told
                        raise ExecutionError(
                            f"The weights became NaN or infinite by step {optimiser.step} of {training.steps}. Lower the "
                            "learning rate; what was spent stays spent."
                        )
                    books.done += steps
                    books.diagnostics.append(loop.diagnostics())
                    saved.save(books, optimiser)
        with torch.no_grad():
            nn.utils.vector_to_parameters(optimiser.result.clone(), [p for p in module.parameters() if p.requires_grad])
        self.module_ = module.eval().requires_grad_(False)
        self.books_: Books = books
        self.mode_ = source.mode
        self.input_shape_ = tuple(records.shape[1:])
        self.cost_: Cost = Training(training.rate, training.sigma, max(books.charged, 1)).cost(self.delta)
        return self

    @torch.no_grad()
    def predict_proba(self, x: ArrayLike) -> FloatArray:
        """float64[record, class]."""
        if not hasattr(self, "module_"):
            raise ParameterError("This model is not trained yet; call fit first.")
        records = as_tensor(np.asarray(x), self.settings.shape)
        with own_randomness(self.seed):
            parts = [functional.softmax(self.module_(each), dim=1) for each in torch.split(records, _PREDICTED_AT_ONCE)]
        found: FloatArray = torch.cat(parts).double().numpy()
        return found

    def predict(self, x: ArrayLike) -> IntArray:
        """int64[record]."""
        found: IntArray = self.predict_proba(x).argmax(axis=1)
        return found

    def score(self, x: ArrayLike, y: ArrayLike) -> float:
        """Accuracy on labelled records."""
        return float((self.predict(x) == np.asarray(y)).mean())

    @property
    def title(self) -> str:
        name = self.model if isinstance(self.model, str) else type(self.model).__name__
        return f"{name}, DP-SGD"

    @property
    def private_notes(self) -> list[str]:
        """What the training showed of private records: for the owner's eyes."""
        rows = self.books_.diagnostics
        found = []
        if rows and rows[-1]["median_norm"] > _EXPLODED * self.settings.clip:
            found.append(
                f"At the end a typical gradient was {rows[-1]['median_norm'] / self.settings.clip:.3g} times the clipping "
                "bound: it explodes. Lower the learning rate, or normalise inputs."
            )
        if bad := int(sum(row["bad"] for row in rows)):
            found.append(f"{bad} gradients were NaN or infinite and counted as zero.")
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """One file that may be published: settings, weights, and what they cost. No pickle, nothing private; but where ``rate``
        was not declared, it and the noise tell the number of records."""
        header = {
            "student": "dp-sgd",
            "model": self.model if isinstance(self.model, str) else None,
            "n_classes": self.n_classes,
            "input_shape": list(self.input_shape_),
            "settings": self.settings.model_dump(exclude_unset=True),
            "cost": self.cost_.to_json(),
            "mode": self.mode_,
        }
        with packed(path, header) as folder:
            require("safetensors.torch", "train").save_file(self.module_.state_dict(), folder / _FILE)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: nn.Module | None = None) -> DPSGD:
        """A trained model to predict with. model: of the same kind, where it was a module of your own."""
        with unpacked(path) as (header, folder):
            if header.get("student") != "dp-sgd" or (model is None and header["model"] is None):
                raise ParameterError(f"{os.fspath(path)} holds no DP-SGD model that can be made by name; give model=….")
            found = cls(model or header["model"], header["n_classes"], settings=make_settings(header["settings"]))
            module = found._module(tuple(header["input_shape"]))
            module.load_state_dict(require("safetensors.torch", "train").load_file(folder / _FILE))
        found.module_ = module.eval().requires_grad_(False)
        return found

    def _module(self, shape: tuple[int, ...]) -> nn.Module:
        if isinstance(self.model, nn.Module):
            return copy.deepcopy(self.model)
        if self.n_classes is None:
            raise ParameterError("n_classes must be declared: a number counted in private labels tells which classes occur.")
        return make_model(self.model, shape, self.n_classes, self.settings)

    def _check_delta(self, n_units: int) -> None:
        """Where the rate is declared so is the number, roughly: a refusal by the exact one would tell it."""
        if self.settings.rate is not None:
            n_units = round(self.settings.lot_size / self.settings.rate)
        if not 0 < self.delta < 1 / n_units:
            raise ParameterError(
                f"delta must lie above 0 and below 1/{n_units}, one over the number of records (or users), got {self.delta:g}: "
                "a mechanism that publishes a record at random would pass. Take a smaller one."
            )

    def _identity(self, training: Training, module: nn.Module, key: str, source: Noise) -> dict[str, Any]:
        """What must be the same for a run to go on. The data are not hashed here: the caller's key names them."""
        start = hashlib.sha256()
        for name, value in sorted(module.state_dict().items()):
            start.update(name.encode() + value.detach().cpu().numpy().tobytes())
        training_facts = {"rate": training.rate, "sigma": training.sigma, "steps": training.steps}
        settings = self.settings.model_dump(mode="json")
        return {**training_facts, "settings": settings, "start": start.hexdigest(), "key": key, "mode": source.mode}


def _losses(outputs: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, labels, reduction="none")


def _labels(y: ArrayLike) -> NDArray[np.int64]:
    found = np.asarray(y)
    if found.ndim != 1 or found.dtype.kind not in "biu":
        raise ParameterError(f"y must hold whole class numbers [record], got {found.dtype} of shape {found.shape}.")
    return found.astype(np.int64)
