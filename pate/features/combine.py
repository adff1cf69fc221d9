"""Extractors made of extractors: one after another, or side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pate.errors import ParameterError
from pate.features.base import Digests, Features, Float32Array, Make, Progress
from pate.public import PublicData
from pate.validation import positive


class _Composite(Features):
    """What a chain and a concatenation share: parts, by name in settings and by number in files."""

    block_rows: ClassVar[int] = 64  # each part goes through its own blocks within

    def __init__(self, *parts: Features) -> None:
        if not parts:
            raise ParameterError(f"{type(self).__name__} needs at least one extractor, got none.")
        for part in parts:
            if not isinstance(part, Features):
                raise ParameterError(f"{type(self).__name__} is made of Features, got {type(part).__name__}.")
        self.parts = parts

    @property
    def needs_fit(self) -> bool:
        return any(part.needs_fit for part in self.parts)

    def settings(self) -> dict[str, Any]:
        return {"parts": [{"name": part.title, "settings": part.settings()} for part in self.parts]}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], make: Make) -> Self:
        rest = {key: value for key, value in settings.items() if key != "parts"}
        parts = settings.get("parts")
        if not isinstance(parts, Sequence) or not all(isinstance(part, Mapping) and "name" in part for part in parts):
            raise ParameterError(f'{cls.name}: parts must be a list of {{"name": ..., "settings": {{...}}}}, got {parts!r}.')
        unknown = set(rest) - {"weights"} if cls is Concat else set(rest)
        if unknown:
            raise ParameterError(f"{cls.name}: unknown parameter {sorted(unknown)}.")
        return cls(*(make(part["name"], part.get("settings", {})) for part in parts), **rest)

    def state(self) -> dict[str, NDArray[Any]]:
        arrays = {f"{index}/{key}": value for index, part in enumerate(self.parts) for key, value in part.state().items()}
        names = [part.fitted_on for part in self.parts]
        marks = {f"{index}/fitted_on": _text(name) for index, name in enumerate(names) if name is not None}
        return {**super().state(), **arrays, **marks}

    def restore(self, state: Mapping[str, NDArray[Any]], fitted_on: str | None) -> None:
        own = {key: value for key, value in state.items() if "/" not in key}
        super().restore(own, fitted_on)
        for index, part in enumerate(self.parts):
            mine = {key.removeprefix(f"{index}/"): value for key, value in state.items() if key.startswith(f"{index}/")}
            mark = mine.pop("fitted_on", None)
            part.restore(mine, None if mark is None else mark.tobytes().decode())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.parts))})"


class Chain(_Composite):
    """Extractors one after another, for example ``Chain(Scale(0, 255), HOG(), PCA(128, whiten=0.5))``.

    Fitting fits each part on what the parts before it make of the public data. A chain that needs fitting is fitted as a
    whole: of a later part that was fitted by itself nobody could say which records it saw.

    >>> from pate.features import Scale, Standardise
    >>> Chain(Scale(0, 4), Standardise(0.5, 0.5)).transform([[0, 4]])
    array([[-1.,  1.]], dtype=float32)
    """

    name: ClassVar[str] = "chain"

    def _fit(self, public: PublicData, progress: Progress | None) -> None:
        x: NDArray[Any] = public.x
        for index, part in enumerate(self.parts):
            part.fit(PublicData(x, public.name), progress)
            if index + 1 < len(self.parts):
                x = part.transform(x)

    def _transform_block(self, x: Float32Array) -> Float32Array:
        for part in self.parts:
            x = part._run(x)
        return x


class Concat(_Composite):
    """Extractors side by side: their flattened features one after another, each times its weight (default 1).

    Parts get the same records, so parts that are fitted already make a fitted concatenation.

    >>> from pate.features import Identity, Scale
    >>> Concat(Identity(), Scale(0, 4), weights=[1, 0.5]).transform([[2.0]])
    array([[2.  , 0.25]], dtype=float32)
    """

    name: ClassVar[str] = "concat"

    def __init__(self, *parts: Features, weights: Sequence[float] | None = None) -> None:
        super().__init__(*parts)
        self.weights = [1.0] * len(parts) if weights is None else [float(weight) for weight in weights]
        if len(self.weights) != len(parts):
            raise ParameterError(f"Concat needs one weight for each of {len(parts)} extractors, got {len(self.weights)}.")
        for weight in self.weights:
            positive(weight, "A weight of Concat")

    @property
    def fitted_on(self) -> str | None:
        names = {part.fitted_on for part in self.parts if part.needs_fit}
        return None if None in names or not names else " + ".join(sorted(str(name) for name in names))

    @property
    def fitted_digests(self) -> Digests:
        return np.unique(np.concatenate([part.fitted_digests for part in self.parts]))

    def _fit(self, public: PublicData, progress: Progress | None) -> None:
        for part in self.parts:
            part.fit(public, progress)

    def _transform_block(self, x: Float32Array) -> Float32Array:
        sides = [part._run(x) for part in self.parts]
        return np.concatenate(
            [np.float32(weight) * side.reshape(len(side), -1) for weight, side in zip(self.weights, sides, strict=True)], axis=1
        )

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "weights": self.weights}


def _text(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode(), dtype=np.uint8)
