"""Features: what stands before teachers and students, made from public data or declared numbers only."""

from pate.features.base import Features
from pate.features.cache import fit_cached
from pate.features.checks import check_position_independence, share_of
from pate.features.combine import Chain, Concat
from pate.features.contrastive import Contrastive
from pate.features.hog import HOG
from pate.features.masked import Masked
from pate.features.patches import Patches
from pate.features.pca import PCA
from pate.features.registry import features_named
from pate.features.scattering import Scattering
from pate.features.simple import Identity, Scale, Standardise, Unit

__all__ = [
    "HOG",
    "PCA",
    "Chain",
    "Concat",
    "Contrastive",
    "Features",
    "Identity",
    "Masked",
    "Patches",
    "Scale",
    "Scattering",
    "Standardise",
    "Unit",
    "check_position_independence",
    "features_named",
    "fit_cached",
    "share_of",
]
