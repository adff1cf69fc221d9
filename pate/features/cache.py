"""Fitted extractors kept on disk, so that the same public data is learnt from once."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import platform
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import numpy as np

from pate.errors import PateError
from pate.features.base import Features, Progress
from pate.features.combine import Chain, Concat
from pate.places import cache_home
from pate.public import PublicData

_LIBRARIES = ("numpy", "scipy", "torch")
_DAMAGE = (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zlib.error, PateError)


def fit_cached(
    features: Features,
    public: PublicData,
    folder: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Features:
    """``features.fit(public, progress)``, or what an earlier fit of the same extractor on the same records left on disk.

    folder: where fitted extractors are kept. Default: ``features`` in $PATE_CACHE, else $XDG_CACHE_HOME/pate, else
        ~/.cache/pate. Where it cannot be read or written, nothing is kept and all else works. It may be emptied at any time.

    The name of a file is a hash of all that decides a fit: class and settings, the code of the classes and of this package,
    the versions of numpy, scipy and torch and the kind of processor, and the public records, their order, type and name. A
    file that is damaged is made again. Processes that fit at the same time do not disturb each other: the last one's file
    stays. The parts of a :class:`~pate.features.combine.Concat` are kept each for itself, a chain as a whole. Public data
    only: what is fitted on private data must not lie about, and ``fit`` refuses it.
    """
    if not isinstance(public, PublicData) or not features.needs_fit:
        return features.fit(public, progress)
    if type(features) is Concat:
        for part in features.parts:
            fit_cached(part, public, folder, progress)
        return features
    where = cache_folder() if folder is None else Path(folder)
    path = None if where is None else where / f"{_key(features, public)}.npz"
    if path is not None and _restored(features, path):
        return features
    features.fit(public, progress)
    if path is not None:
        _keep(features, path)
    return features


def cache_folder() -> Path | None:
    """The default folder; None where there is not even a home."""
    home = cache_home()
    return None if home is None else home / "features"


def _key(features: Features, public: PublicData) -> str:
    """A hash of everything that decides what is fitted, hexadecimal."""
    facts = {
        "class": features.title,
        "settings": features.settings(),
        "code": sorted({*_sources(Path(__file__).parent.glob("*.py")), *_sources(_modules(features))}),
        "libraries": [_version(name) for name in _LIBRARIES] + [platform.machine()],
        "public": [public.name, public.x.dtype.str, list(public.x.shape)],
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    digest.update(np.ascontiguousarray(public.x).view(np.uint8).data)
    return digest.hexdigest()


def _sources(files: Iterator[Path]) -> Iterator[str]:
    """What is in each file, hashed."""
    for file in files:
        with suppress(OSError):
            yield hashlib.sha256(file.read_bytes()).hexdigest()


def _modules(features: Features) -> Iterator[Path]:
    """The files that define an extractor's class and those of its parts."""
    with suppress(TypeError):  # a class from a console has none
        yield Path(inspect.getfile(type(features)))
    for part in features.parts if isinstance(features, Chain | Concat) else ():
        yield from _modules(part)


def _titles(features: Features) -> Iterator[str]:
    yield features.title
    for part in features.parts if isinstance(features, Chain | Concat) else ():
        yield from _titles(part)


def _version(package: str) -> str:
    try:
        return metadata.version(package)  # without importing it
    except metadata.PackageNotFoundError:
        return "none"


def _restored(features: Features, path: Path) -> bool:
    """Whether ``features`` could be taken from the file."""
    try:
        kept = Features.load(path, allow=set(_titles(features)))
    except _DAMAGE:
        return False
    if kept.title != features.title or kept.settings() != features.settings() or kept.fitted_on is None:
        return False
    features.restore(kept.state(), kept.fitted_on)
    return True


def _keep(features: Features, path: Path) -> None:
    """Write the file in one step, or not at all."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        # A folder of its own: threads of one process must not share a temporary name.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".", ignore_cleanup_errors=True) as own:
            features.save(Path(own) / path.name)
            (Path(own) / path.name).replace(path)
