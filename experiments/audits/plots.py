"""Lower bounds beside claims, as bars."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pate.experiments.plots import new_figure, save_figure
from pate.experiments.reports.plots import BLUE, GREY, RED
from pate.testing.audit_report import AuditReport


def plot_audit(report: AuditReport, path: Path) -> None:
    """For each audited claim what it says and what is proven at least."""
    bounds = report.lower_bounds
    figure = new_figure(7, 1.6 + 0.7 * len(bounds))
    axes = figure.subplots()
    most = max((each.claim for each in bounds if np.isfinite(each.claim)), default=1.0) or 1.0
    for place, each in enumerate(bounds):
        claim, lower = (min(value, 1.5 * most) for value in (each.claim, each.lower))
        axes.barh(place - 0.18, claim, 0.34, color=GREY, alpha=0.5)
        axes.barh(place + 0.18, lower, 0.34, color=RED if each.refuted else BLUE)
        axes.text(claim, place - 0.18, f" claimed {each.claim:.3g}", va="center", fontsize=8)
        verdict = ", claim refuted" if each.refuted else ""
        axes.text(lower, place + 0.18, f" at least {each.lower:.3g}{verdict}", va="center", fontsize=8)
    axes.set_yticks(range(len(bounds)), [f"{each.name}\n{each.method}" for each in bounds], fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.25)
    axes.set_xlabel(f"epsilon at delta = {bounds[0].delta:g}\n(a small lower bound is no proof of privacy)", fontsize=9)
    axes.set_title(report.audited, fontsize=10)
    save_figure(figure, path)
