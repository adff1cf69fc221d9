"""What stands before a teacher or a student: a function of one record, made from public data or declared numbers only."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate.digests import DIGEST_BYTES, row_digests
from pate.errors import ParameterError
from pate.execution.threads import one_thread
from pate.public import PublicData
from pate.references import construct

Float32Array = NDArray[np.float32]
Digests = NDArray[np.void]

Progress = Callable[[str, int, int], None]
"""Called with what is being fitted, how many steps are done, and of how many."""

Make = Callable[[str, Mapping[str, Any]], "Features"]

_ALIGNMENT = 64  # bytes: where a block starts may decide which instructions sum it
_FORMAT = 1


class Features(ABC):
    """A feature extractor. The constructor stores its parameters under their own names; what is fitted ends in ``_``.

    A teacher's votes, and the vote of a single record, must be a function of their own records bit for bit, so the
    features of a record must not depend on the records beside it. What holds:

    - By construction, for every extractor built in here: sums are exact (:mod:`pate.features.exact`) or taken in an order
      that the code spells out, and what else is done is one correctly rounded operation (+ - * / sqrt) for each number. So
      a record's features are the same in every block, at every place, on any number of threads and any IEEE processor.
    - By construction, for your own subclass: :meth:`_transform_block` gets ``block_rows`` records, the last block filled
      up with zeros, always in an aligned array of one shape. With the default, 1, a record is alone in the call, so
      nothing beside it can matter, if your code itself is deterministic.
    - Not enough: blocks of one shape with several records, computed by BLAS or torch. Measured: with 100 rows a float64
      product of OpenBLAS (36 x 300) and with any height one of torch (784 x 10) round a row differently at different
      places of the block. Raise ``block_rows`` only where sums are exact.

    :func:`~pate.features.checks.check_position_independence` tries it on your machine.
    """

    name: ClassVar[str] = ""
    """The built-in name; empty for a class of your own, which is named ``package.module:Class``."""

    block_rows: ClassVar[int] = 1
    """How many records a call of ``_transform_block`` gets."""

    _fitted_on: str | None = None
    _fitted_digests: Digests | None = None

    @property
    def needs_fit(self) -> bool:
        """Whether there is something to fit. Where not, :meth:`fit` does nothing."""
        return False

    @property
    def fitted_on(self) -> str | None:
        """The name of the public data; None where nothing was fitted."""
        return self._fitted_on

    @property
    def fitted_digests(self) -> Digests:
        """:func:`pate.digests.row_digests` of what it was fitted on, V16[record]; empty where nothing was fitted.

        Whoever holds the private data can see by them that "public" rows were private ones:
        :func:`~pate.features.checks.share_of`.
        """
        return np.empty(0, dtype=f"V{DIGEST_BYTES}") if self._fitted_digests is None else self._fitted_digests

    def fit(self, public: PublicData, progress: Progress | None = None) -> Self:
        """Fit on public data. Anything else is refused: what is fitted goes to every teacher, without noise."""
        if not isinstance(public, PublicData):
            raise ParameterError(
                f"{self.title} is fitted on PublicData only, got {type(public).__name__}. Statistics of private data (least, "
                "greatest, mean, principal components) given to every teacher are a release without noise. Declare the "
                "numbers, or fit on public data, wrapped as PublicData(x)."
            )
        if self.needs_fit:
            self._fitted_on = self._fitted_digests = None  # if it fails half-way, it is not fitted
            with one_thread():
                self._fit(public, progress)
            self._fitted_on, self._fitted_digests = public.name, row_digests(public.x)
        return self

    def _fit(self, public: PublicData, progress: Progress | None) -> None:
        """Set the attributes that end in ``_``: arrays. Called only where :attr:`needs_fit`."""
        raise NotImplementedError(f"{self.title} says that it needs fitting, so it must write _fit.")

    def transform(self, x: ArrayLike) -> Float32Array:
        """Features of each record, float32[record, feature...], for x [record, ...]."""
        if self.needs_fit and self.fitted_on is None:
            raise ParameterError(f"{self.title} is not fitted. Call fit(PublicData(x)) first, or load a fitted one.")
        records = np.asarray(x)
        if records.ndim < 2 or records.dtype.kind not in "biuf":
            found = f"{records.dtype} of shape {records.shape}"
            raise ParameterError(f"{self.title}: x must be a numeric array [record, ...], got {found}.")
        with one_thread():
            return self._run(records)

    def _run(self, records: NDArray[Any]) -> Float32Array:
        """The one loop: block by block."""
        return np.concatenate([self._checked_block(block)[:used] for block, used in self._blocks(records)])

    @abstractmethod
    def _transform_block(self, x: Float32Array) -> NDArray[Any]:
        """Features of a block, [block_rows, feature...], for x float32[block_rows, ...], finite; x is yours to change."""

    def _blocks(self, records: NDArray[Any]) -> Iterator[tuple[Float32Array, int]]:
        """Blocks of one shape in one place, and how many of their rows are records. One block if there are no records."""
        shape = (self.block_rows, *records.shape[1:])
        for start in range(0, max(len(records), 1), self.block_rows):
            part = records[start : start + self.block_rows]
            block = _aligned(shape)
            with np.errstate(over="ignore"):  # found by the next line
                block[: len(part)] = part
            if not np.isfinite(block).all():
                raise ParameterError(
                    f"{self.title}: x must be finite in float32; found NaN, infinity or a number too large. "
                    "Impute or clip by a declared constant first."
                )
            yield block, len(part)

    def _checked_block(self, block: Float32Array) -> Float32Array:
        out = np.asarray(self._transform_block(block), dtype=np.float32)
        if out.ndim < 2 or len(out) != self.block_rows:
            raise ParameterError(
                f"{self.title} must return [{self.block_rows}, feature...] for a block, got an array of shape {out.shape}."
            )
        return out

    @property
    def title(self) -> str:
        """What messages and files call it."""
        return type(self).name or f"{type(self).__module__}:{type(self).__qualname__}"

    def settings(self) -> dict[str, Any]:
        """The constructor's parameters: JSON values only."""
        return {key: value for key, value in vars(self).items() if not key.startswith("_") and not key.endswith("_")}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], make: Make) -> Features:
        """What :meth:`settings` describes. ``make`` makes parts from their names and settings."""
        return construct(cls, settings, cls.name or cls.__qualname__)

    def state(self) -> dict[str, NDArray[Any]]:
        """All that fitting made: arrays by name."""
        fitted = {key: value for key, value in vars(self).items() if key.endswith("_") and not key.startswith("_")}
        return fitted if self._fitted_digests is None else {**fitted, "fitted_digests": self._fitted_digests}

    def restore(self, state: Mapping[str, NDArray[Any]], fitted_on: str | None) -> None:
        """Take back what :meth:`state` gave."""
        for key, value in state.items():
            if key != "fitted_digests" and (key.startswith("_") or not key.endswith("_")):
                raise ParameterError(f"{self.title}: what is fitted is named with a trailing underscore, found {key!r}.")
            setattr(self, "_fitted_digests" if key == "fitted_digests" else key, value)
        self._fitted_on = fitted_on

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file: a NumPy archive of the fitted arrays, with the settings as JSON in it. No pickle."""
        header = {"format": _FORMAT, "name": self.title, "settings": self.settings(), "fitted_on": self.fitted_on}
        arrays = {**self.state(), "header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)}
        final = Path(path)
        temporary = final.with_name(f".{final.name}.{os.getpid()}")
        with temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # the stubs take its keywords for allow_pickle
        temporary.replace(final)

    @staticmethod
    def load(path: str | os.PathLike[str], allow: Collection[str] = ()) -> Features:
        """Read what :meth:`save` wrote. A class named ``package.module:Class`` in the file is imported only if in ``allow``."""
        from pate.features.registry import named_in_file

        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
        try:
            header = json.loads(arrays.pop("header").tobytes())
            version = header["format"]
        except (KeyError, TypeError, ValueError) as error:
            raise ParameterError(f"{os.fspath(path)} holds no feature extractor; write one with save(path).") from error
        if version != _FORMAT:
            raise ParameterError(
                f"{os.fspath(path)} has format {version}; this version reads {_FORMAT}. Fit and save it again."
            )
        features = named_in_file(header["name"], header["settings"], frozenset(allow))
        features.restore(arrays, header["fitted_on"])
        return features

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self.settings().items())})"


def _aligned(shape: tuple[int, ...]) -> Float32Array:
    """Zeros whose first byte lies at a multiple of 64, float32 of ``shape``."""
    size = int(np.prod(shape)) * 4
    raw = np.zeros(size + _ALIGNMENT, dtype=np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size].view(np.float32).reshape(shape)
