"""How a data-dependent cost may be published: how far it can move between neighbours, and releases with noise to match.

docs/sanitised-epsilon.md has the theorems, the proofs and what the published figure means.
"""

from __future__ import annotations

from pate.privacy.smooth.costs import cost_tables, threshold_table
from pate.privacy.smooth.gnmax import (
    Conditions,
    check_conditions,
    discounted_max,
    gnmax_conditions,
    gnmax_local_sensitivity,
    gnmax_logq0,
    gnmax_logq1,
)
from pate.privacy.smooth.growth import Growth
from pate.privacy.smooth.release import bound_factor, gnss_rdp, gnss_rdp_2018, release_rdp
from pate.privacy.smooth.rule import (
    STATED_RULE,
    GnssSettings,
    GrowthSettings,
    Method,
    gnss_settings,
    growth_settings,
    stated_votes,
)
from pate.privacy.smooth.table import CostTable, Reach
from pate.privacy.smooth.tail import gaussian_tail_excess, laplace_tail_excess
from pate.privacy.smooth.threshold import threshold_local_sensitivity

__all__ = [
    "STATED_RULE",
    "Conditions",
    "CostTable",
    "GnssSettings",
    "Growth",
    "GrowthSettings",
    "Method",
    "Reach",
    "bound_factor",
    "check_conditions",
    "cost_tables",
    "discounted_max",
    "gaussian_tail_excess",
    "gnmax_conditions",
    "gnmax_local_sensitivity",
    "gnmax_logq0",
    "gnmax_logq1",
    "gnss_rdp",
    "gnss_rdp_2018",
    "gnss_settings",
    "growth_settings",
    "laplace_tail_excess",
    "release_rdp",
    "stated_votes",
    "threshold_local_sensitivity",
    "threshold_table",
]
