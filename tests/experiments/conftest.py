"""A home of its own for the runs of a test, and no pictures unless it looks at them."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """PATE_HOME lies in ``tmp_path``. Pictures take a second a run and decide nothing: there are none without ``reports``."""
    from pate.experiments.baselines import running
    from pate.experiments.pipeline import launch as launching

    monkeypatch.setenv("PATE_HOME", str(tmp_path / "home"))
    if "reports" not in request.fixturenames:
        for module in (launching, running):
            monkeypatch.setattr(module, "write_all", lambda result, folder: None)


@pytest.fixture
def reports() -> None:
    """For tests that look at plots and pages."""
