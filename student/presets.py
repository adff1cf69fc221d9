"""Settings that are known to work, by student and data set."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pate.errors import StudentError
from pate.references import did_you_mean

Settings = Mapping[str, Any]

HOG_PCA: Settings = {
    "name": "chain",
    "settings": {"parts": [{"name": "hog"}, {"name": "pca", "settings": {"components": 128, "whiten": 0.5}}]},
}
"""What pictures of clothes are best compared by: 250 medoids of it spread to 84.8% of them, those of SimCLR to 76.3%."""

CELLS_OF_CLOTHES: Settings = {
    "name": "chain",
    "settings": {"parts": [*HOG_PCA["settings"]["parts"], {"name": "unit"}]},
}
"""The directions of the same features, in which records find their nearest query."""


def _hog(**settings: int) -> Settings:
    return {"name": "chain", "settings": {"parts": [{"name": "hog", "settings": settings}, {"name": "unit"}]}}


LINEAR_FEATURES: Settings = {
    "name": "chain",
    "settings": {
        "parts": [
            {
                "name": "concat",
                "settings": {"parts": [_hog(), _hog(cell=5, orientations=12), _hog(cell=7, orientations=12)]},
            },
            {"name": "pca", "settings": {"components": 500, "whiten": 0.75}},
            {"name": "unit", "settings": {"constant": 0.1}},
        ]
    },
}
"""In which a linear model tells pictures of one channel apart: HOG in cells of three sizes. Those of the DP-SGD baseline."""

_CLEAR: Settings = {"wrong": 0.2, "sharpness": 2.0, "majority": 0.4}
"""How to doubt answers where neighbours nearly always share a class. On 9,000 MNIST pictures with 5 of 50 medoids wrong, 30
draws: 97.6% of them right in the mean, where the default gives 96.1% and believing every answer 93.1%."""

_TABLE: Settings = {"net": "mlp", "width": 32, "steps": 200}
_PICTURE: Settings = {"width": 16, "views": 9}
_CLOTHES: Settings = {**_PICTURE, "augment": "clothing", "strength": 0.4}

_PLAIN: Settings = {"entropy": 0.0, "robust": 0.0}
"""For VAT and GAN where classes are not clusters: neither sure of itself nor deaf to single labels."""


def _on_tables(settings: Settings) -> dict[str, Settings]:
    return dict.fromkeys(("adult", "diabetes", "kddcup99"), settings)


PRESETS: Mapping[str, Mapping[str, Settings]] = MappingProxyType(
    {
        "supervised": {
            "mnist": {**_PICTURE, "steps": 300},
            "fashion-mnist": {**_CLOTHES, "steps": 300, "strength": 0.7},
            **_on_tables({**_TABLE, "strength": 0.5}),
        },
        "vat": {
            "mnist": {**_PICTURE, "steps": 800},
            "fashion-mnist": {**_CLOTHES, **_PLAIN, "steps": 800, "public_strength": 0.3, "radius": 0.05},
            **_on_tables({**_TABLE, **_PLAIN}),
        },
        "gan": {
            "mnist": {**_PICTURE, "steps": 800, "weight": 0.3, "entropy": 1.0},
            "fashion-mnist": {**_CLOTHES, **_PLAIN, "steps": 800, "public_strength": 0.3},
            **_on_tables({**_TABLE, **_PLAIN}),
        },
        "fixmatch": {
            "mnist": _PICTURE,
            "fashion-mnist": {**_CLOTHES, "weak": 0.1, "threshold": 0.7, "temperature": 0.5, "weight": 1.0, "robust": 0.4},
            **_on_tables(
                {**_TABLE, "strength": 1.0, "weak": 0.0, "threshold": 0.0, "temperature": 1.0, "weight": 1.0, "robust": 0.7}
            ),
        },
        "spreading": {
            "mnist": {"features": "contrastive", **_CLEAR},
            "fashion-mnist": {"features": HOG_PCA, **_CLEAR},
            **_on_tables({"features": "standardise", "unit": False}),
        },
        "propagation": {
            "mnist": _CLEAR,
            "fashion-mnist": {
                "features": HOG_PCA,
                "augment": "clothing",
                "strength": 0.3,
                "rate": 3e-3,
                "precision": "bfloat16",
                **_CLEAR,
            },
            **_on_tables({"net": "mlp", "width": 32, "strength": 0.5}),
        },
        "self-training": {
            "adult": {"base": "logistic"},
            "diabetes": {"base": "logistic", "parameters": {"C": 0.1}},
            "kddcup99": {"base": "logistic", "parameters": {"C": 0.1}},
        },
        "vote-share": {
            "adult": {"ridge": 3.0},
            "diabetes": {"ridge": 10.0, "components": 20},
            "kddcup99": {"ridge": 10.0},
        },
        "proportions": {
            "fashion-mnist": {"features": LINEAR_FEATURES, "cells": CELLS_OF_CLOTHES, "votes": 10, "ridge": 1.5},
            **_on_tables({"features": "standardise", "cells": "standardise"}),
            "diabetes": {"features": "identity"},
        },
    }
)
"""student name -> preset name -> constructor arguments."""


def presets_of(name: str) -> tuple[str, ...]:
    """The presets of a built-in student."""
    return tuple(PRESETS.get(name, {}))


def preset_settings(name: str, preset: str) -> dict[str, Any]:
    """The constructor arguments of one preset; or an error that names those there are."""
    known = presets_of(name)
    if preset not in known:
        listed = ", ".join(known) or "none; give its settings one by one"
        raise StudentError(f"{name!r} has no preset {preset!r}{did_you_mean(preset, known)} It has: {listed}.")
    return dict(PRESETS[name][preset])
