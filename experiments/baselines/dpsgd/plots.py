"""The picture of composition: what the moments accountant gained, and what numerical composition gains on top."""

from __future__ import annotations

from pathlib import Path

from pate.experiments.baselines.dpsgd.accounting import Composition
from pate.experiments.plots import log_scale, new_figure, save_figure
from pate.experiments.reports.plots import BLUE, GREEN, GREY


def plot_composition(found: Composition, path: Path) -> None:
    """Epsilon over steps, as in Figure 2 of Abadi et al. 2016 (arXiv:1607.00133)."""
    figure = new_figure(7, 4.4)
    axes = figure.subplots()
    strong = found.strong
    label = f"amplification and strong composition: {strong[-1]:.3g}"
    axes.plot(found.steps, strong, "--", color=GREY, linewidth=2, label=label)
    axes.plot(found.steps, found.rdp, color=BLUE, linewidth=2, label=f"moments accountant (RDP): {found.rdp[-1]:.3g}")
    if found.pld is not None:
        label = f"privacy-loss distribution (PLD): {found.pld[-1]:.3g}"
        axes.plot(found.steps, found.pld, color=GREEN, linewidth=2, label=label)
    log_scale(axes)
    axes.set_yscale("log")
    axes.set_xlabel("steps")
    axes.set_ylabel(f"epsilon at delta = {found.delta:g}")
    axes.set_title(f"sampling rate {found.training.rate:.4g}, noise multiplier {found.training.sigma:g}", fontsize=11)
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False, fontsize=9)
    save_figure(figure, path)
