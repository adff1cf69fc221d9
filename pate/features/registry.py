"""Feature extractors by name: ``hog``, an entry point of the group ``pate.features``, or ``package.module:Class``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pate.errors import ParameterError
from pate.features.base import Features
from pate.features.combine import Chain, Concat
from pate.features.contrastive import Contrastive
from pate.features.hog import HOG
from pate.features.masked import Masked
from pate.features.patches import Patches
from pate.features.pca import PCA
from pate.features.scattering import Scattering
from pate.features.simple import Identity, Scale, Standardise, Unit
from pate.references import resolve

ENTRY_POINT_GROUP = "pate.features"

BUILT_IN: Mapping[str, type[Features]] = MappingProxyType(
    {
        kind.name: kind
        for kind in (Identity, Scale, Unit, Standardise, PCA, HOG, Scattering, Patches, Contrastive, Masked, Chain, Concat)
    }
)


def features_named(name: str, settings: Mapping[str, Any] | None = None) -> Features:
    """An extractor, not yet fitted, from its name and constructor arguments; a chain's parts are named the same way.

    >>> features_named("chain", {"parts": [{"name": "scale", "settings": {"low": 0, "high": 255}}, {"name": "identity"}]})
    Chain(Scale(low=0.0, high=255.0), Identity())
    """
    kind = resolve(name, BUILT_IN, ENTRY_POINT_GROUP, Features)  # type: ignore[type-abstract]
    return kind.from_settings(settings or {}, features_named)


def named_in_file(name: str, settings: Mapping[str, Any], allow: frozenset[str]) -> Features:
    """As :func:`features_named`, but a reference to a class is followed only if it is in ``allow``: files may be strangers'."""
    if ":" in name and name not in allow:
        raise ParameterError(
            f"The file names the class {name!r}, whose import runs code. If you trust it, load with allow=[{name!r}]."
        )
    kind = resolve(name, BUILT_IN, ENTRY_POINT_GROUP, Features)  # type: ignore[type-abstract]
    return kind.from_settings(settings, lambda part, its: named_in_file(part, its, allow))
