"""The published PATE bounds, each as its paper states it. docs/accounting.md says which of them is a bound on what."""

from __future__ import annotations

from pate.privacy.published.confident import confident_expected_rdp, confident_independent_rdp, confident_worst_rdp
from pate.privacy.published.gnmax import gnmax_logq, gnmax_rdp, proposition8
from pate.privacy.published.lnmax import (
    lnmax_independent_log_moments,
    lnmax_independent_rdp,
    lnmax_log_moments,
    lnmax_log_moments_2017,
    lnmax_logq,
    lnmax_q,
    lnmax_q_approx,
    lnmax_rdp_2018,
)
from pate.privacy.published.threshold import threshold_log_answered, threshold_rdp, threshold_rdp_independent

__all__ = [
    "confident_expected_rdp",
    "confident_independent_rdp",
    "confident_worst_rdp",
    "gnmax_logq",
    "gnmax_rdp",
    "lnmax_independent_log_moments",
    "lnmax_independent_rdp",
    "lnmax_log_moments",
    "lnmax_log_moments_2017",
    "lnmax_logq",
    "lnmax_q",
    "lnmax_q_approx",
    "lnmax_rdp_2018",
    "proposition8",
    "threshold_log_answered",
    "threshold_rdp",
    "threshold_rdp_independent",
]
