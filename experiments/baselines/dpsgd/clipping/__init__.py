"""Per-example clipped gradient sums, as fast as the plain gradient almost: :class:`ClippedGradients`.

Norms and clipped sums come from what a plain step computes anyway, the inputs of layers and the gradients at their outputs
(book-keeping: Bu et al. 2022, arXiv:2210.00038). A model with a layer that is not known here gets per-sample gradients.
"""

from pate.extras import require

require("torch", "train")

from pate.experiments.baselines.dpsgd.clipping.checks import check_model, check_no_mixing  # noqa: E402
from pate.experiments.baselines.dpsgd.clipping.engine import ClippedGradients, ClippedSum  # noqa: E402
from pate.experiments.baselines.dpsgd.clipping.rule import Clipping  # noqa: E402

__all__ = ["ClippedGradients", "ClippedSum", "Clipping", "check_model", "check_no_mixing"]
