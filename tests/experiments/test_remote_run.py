"""A run whose answers come from a service over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pipeline_cases import PublicWard, tiny

for package in ("sklearn", "matplotlib", "jinja2", "fastapi", "uvicorn", "httpx", "prometheus_client"):
    pytest.importorskip(package, reason=f"{package} is not installed (extras 'train', 'plot', 'serve' and 'client')")

from service_cases import TOKENS, serving  # noqa: E402

from pate.aggregators import ConfidentGNMax, GNMax, SparseVector, curve_ahead, curve_bound  # noqa: E402
from pate.aggregators.service.desk import Service  # noqa: E402
from pate.aggregators.service.sources import Live, Pool  # noqa: E402
from pate.errors import BudgetExceeded, ParameterError, RecipeError  # noqa: E402
from pate.experiments.pipeline.launch import Finished, launch  # noqa: E402
from pate.experiments.pipeline.remote import _claim  # noqa: E402
from pate.experiments.recipes.reading import check_recipe  # noqa: E402
from pate.experiments.sweeps import Request, sweep  # noqa: E402
from pate.ledger import Budget  # noqa: E402
from pate.release import ABSTAIN, Electorate, Release  # noqa: E402
from pate.votes import Votes  # noqa: E402


@pytest.fixture(autouse=True)
def _token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATE_TOKEN", TOKENS["ann"])
    monkeypatch.setenv("PATE_HOME", str(tmp_path / "home"))


def truth() -> Any:
    labels = PublicWard().load(Path()).public_labels
    assert labels is not None
    return labels.of(np.arange(120))


def votes_on(labels: Any) -> Votes:
    counts = np.full((len(labels), 3), 5)
    counts[np.arange(len(labels)), labels] = 90
    return Votes(counts, 100)


def service(tmp_path: Path, live: bool = False, epsilon: float = 5.0) -> Service:
    source: Any = Pool(votes_on(truth()), "ward")
    if live:
        public = PublicWard().load(Path()).public_x
        places = {row.tobytes(): label for row, label in zip(public, truth(), strict=True)}
        source = Live(lambda x: votes_on([places[row.tobytes()] for row in x]), (4,), Electorate(100, 3), "ward")
    return Service(GNMax(sigma=10), source, tmp_path / "ledger.db", Budget(epsilon, 1e-5))


def go(out: Path, url: str, **changes: Any) -> Finished:
    tables = tiny(aggregator={"name": "service", "url": url}, **changes)
    return launch(check_recipe(tables), out=out, show="none")


@pytest.mark.parametrize("live", [False, True])
def test_a_student_learns_from_a_service(tmp_path: Path, live: bool) -> None:
    desk = service(tmp_path, live)
    with serving(desk) as url:
        done = go(tmp_path / "runs", url)
        spent = desk.budget_facts()["spent"]
        again = go(tmp_path / "runs", url)
        assert desk.budget_facts()["spent"] == spent, "asked once, and found again"
    result = done.result
    assert result.evaluation is not None
    assert result.evaluation.accuracy > 0.8
    assert result.label_noise is not None
    assert result.label_noise.right == 1.0
    assert result.privacy.data_independent == pytest.approx(spent, rel=1e-6)
    assert result.privacy.ledger == "the service's"
    assert result.mode == "release"
    assert again.result.evaluation == result.evaluation
    assert not list((tmp_path / "runs").glob("stages/teachers-*")), "nobody was trained here"
    assert "behind a service" in (done.folder / "report.html").read_text()


def test_a_run_that_lost_its_answers_asks_under_the_same_key(tmp_path: Path) -> None:
    desk = service(tmp_path)
    with serving(desk) as url:
        done = go(tmp_path / "runs", url)
        before, spent = (done.folder / "release.json").read_text(), desk.budget_facts()["spent"]
        (done.folder / "release.json").unlink()
        go(tmp_path / "runs", url)
        assert (done.folder / "release.json").read_text() == before
        assert desk.budget_facts()["spent"] == spent


def budget(epsilon: float = 5.0, spent: float = 4.0) -> dict[str, Any]:
    return {"epsilon": epsilon, "delta": 1e-5, "spent": spent}


def test_the_epsilon_of_a_run_is_never_below_what_its_answers_cost() -> None:
    electorate = Electorate(250, 10)

    def told(mechanism: dict[str, Any], labels: Any) -> float:
        return _claim(Release(np.asarray(labels), electorate, mechanism), budget())[0]

    half = np.where(np.arange(640) < 286, 1, ABSTAIN)
    realised = ConfidentGNMax(200, 150, 40, "realised")
    worst = curve_ahead(realised, electorate, 640).epsilon(1e-5).epsilon
    assert curve_bound(realised, Release(half, electorate, realised.mechanism)).epsilon(1e-5).epsilon < 0.7 * worst
    assert told(dict(realised.mechanism), half) == worst, "the realised sum is no claim"
    # 3,000 questions went out in three requests, each a batch of its own: one batch would cost less than half of it.
    assert told(dict(SparseVector(6, 6, 1e-7, refusals=5).mechanism), np.zeros(3000, dtype=np.int64)) == 5.0, "the budget"
    assert told({"aggregator": "a stranger's"}, half) == 5.0, "how it is charged is not known, so the budget"
    assert told(dict(GNMax(40).mechanism), half) == curve_ahead(GNMax(40), electorate, 640).epsilon(1e-5).epsilon


def test_a_run_says_that_its_service_charges_as_realised(tmp_path: Path) -> None:
    desk = Service(
        ConfidentGNMax(60, 10, 10, "realised"), Pool(votes_on(truth()), "ward"), tmp_path / "ledger.db", Budget(30.0, 1e-5)
    )
    with serving(desk) as url:
        result = go(tmp_path / "runs", url).result
    assert any("realised" in each for each in result.warnings)
    assert result.privacy.data_independent >= result.privacy.spent * (1 - 1e-9)


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    with serving(service(tmp_path, epsilon=0.2)) as url:
        with pytest.raises(BudgetExceeded):
            go(tmp_path / "runs", url)
        with pytest.raises(RecipeError, match="knows 3 classes"):
            go(tmp_path / "digits", url, data={"source": "digits"})
        request = Request(tiny(aggregator={"name": "service", "url": url}), {"queries.count": [4, 8]}, {})
        with pytest.raises(ParameterError, match="not here to change"):
            sweep(request, out=tmp_path / "s", show="none")


@pytest.mark.parametrize("url", [None, "ward", "ftp://host", "https://me:secret@host"])
def test_an_address_must_be_one(url: Any) -> None:
    with pytest.raises(RecipeError, match="aggregator: url"):
        check_recipe(tiny(aggregator={"name": "service", "url": url}))
