"""One step of gradient descent, plain and private, by this package and by Opacus. Imports torch.

Run as a module it takes a few steps by one way and prints the memory they needed, in bytes.
"""

from __future__ import annotations

import resource
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pate.extras import require

require("torch", "train")

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from pate.experiments.baselines.dpsgd.clipping import ClippedGradients, Clipping  # noqa: E402
from pate.noise import OSNoise  # noqa: E402

N_CLASSES = 10
RATE, SIGMA, BOUND = 0.05, 1.0, 1.0
PLAIN = "plain"
OURS = "pate"
EXACT = "pate, exact noise"
OPACUS = "Opacus "  # and its mode
Step = Callable[[], object]


def mnist_cnn() -> nn.Module:
    """The network of the DP-SGD papers on MNIST (Papernot et al. 2020, arXiv:2007.14191), as Opacus's example has it."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.ReLU(),
        nn.Linear(32, N_CLASSES),
    )


def group_norm_cnn() -> nn.Module:
    """A network for pictures of CIFAR-10's size, with group normalisation."""
    layers: list[nn.Module] = []
    for narrow, wide in ((3, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(narrow, wide, 3, padding=1), nn.GroupNorm(8, wide), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, N_CLASSES))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(100, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, N_CLASSES))


def logistic() -> nn.Module:
    return nn.Linear(100, N_CLASSES)


class Subject(NamedTuple):
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    batches: tuple[int, int]


SUBJECTS = {
    "mnist-cnn": Subject(mnist_cnn, (1, 28, 28), (256, 1024)),
    "mlp": Subject(mlp, (100,), (256, 1024)),
    "logistic": Subject(logistic, (100,), (256, 1024)),
    "groupnorm-cnn": Subject(group_norm_cnn, (3, 32, 32), (64, 256)),
}


def make_step(way: str, subject: Subject, batch: int) -> Step:
    """A call of it is one step of ``way``, always on the same batch."""
    torch.manual_seed(0)
    model = subject.build()
    x, y = torch.randn(batch, *subject.shape), torch.randint(N_CLASSES, (batch,))
    if way == PLAIN:
        return _plain(model, x, y)
    if way.startswith(OPACUS):
        return _opacus(way.removeprefix(OPACUS), model, x, y)
    return _ours(model, x, y, _exact if way == EXACT else torch.randn)


def _plain(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def _ours(model: nn.Module, x: Tensor, y: Tensor, normal: Callable[[int], Tensor]) -> Step:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets, reduction="none")

    engine = ClippedGradients(model, loss, Clipping(BOUND))
    flat = _in_one(engine.parameters)

    def step() -> None:
        total = engine.clipped_sum(x, y).total
        total.add_(normal(engine.size), alpha=SIGMA * BOUND)
        flat.add_(total, alpha=-RATE / len(x))

    return step


def _in_one(parameters: list[nn.Parameter]) -> Tensor:
    """The parameters moved into one vector, of which they are views from now on: an update is one addition."""
    flat = torch.cat([each.detach().reshape(-1) for each in parameters])
    for each, part in zip(parameters, flat.split_with_sizes([each.numel() for each in parameters]), strict=True):
        each.data = part.view(each.shape)
    return flat


def _exact(size: int) -> Tensor:
    draw = OSNoise().gaussian(SIGMA, (size,))
    return torch.from_numpy(draw.values).float()


def _opacus(mode: str, model: nn.Module, x: Tensor, y: Tensor) -> Step:
    from opacus.grad_sample import wrap_model
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped: Any = wrap_model(model, grad_sample_mode=mode)
    kind = DPOptimizerFastGradientClipping if mode == "ghost" else DPOptimizer
    plain = torch.optim.SGD(wrapped.parameters(), lr=RATE)
    optimizer = kind(plain, noise_multiplier=SIGMA, max_grad_norm=BOUND, expected_batch_size=len(x))
    loss: Any = nn.CrossEntropyLoss()
    if mode == "ghost":
        loss = DPLossFastGradientClipping(wrapped, optimizer, loss)

    def step() -> None:
        optimizer.zero_grad()
        loss(wrapped(x), y).backward()
        optimizer.step()

    return step


def peak_bytes(way: str, name: str, batch: int, steps: int = 3) -> int:
    """How far ``steps`` steps raise the peak memory of this process; ask in a fresh one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make_step(way, SUBJECTS[name], 2)()  # libraries that a first step loads are not its memory
        work = make_step(way, SUBJECTS[name], batch)
        before = _peak_memory()
        for _ in range(steps):
            work()
    return _peak_memory() - before


def _peak_memory() -> int:
    status = Path("/proc/self/status")
    if status.exists():  # Linux lets ru_maxrss begin with the peak of the process that started this one
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(peak_bytes(sys.argv[1], sys.argv[2], int(sys.argv[3])))
