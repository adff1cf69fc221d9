"""Runs in several rounds: what they ask, what they are charged for, and that nothing is paid twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killed_runs import charges_in, go, killed
from pipeline_cases import tiny

from pate.aggregators import GNMax, InteractiveGNMax, curve_ahead
from pate.errors import BudgetExceeded, DataError, ParameterError, RecipeError, StudentError
from pate.execution import Serial
from pate.experiments import accounting
from pate.experiments.accounting import account
from pate.experiments.pipeline.launch import load_material
from pate.experiments.pipeline.store import Stages
from pate.experiments.pipeline.telling import Teller
from pate.experiments.pipeline.voting import Voting
from pate.experiments.recipes.checking import with_noise
from pate.experiments.recipes.reading import check_recipe
from pate.experiments.release_files import read_release
from pate.experiments.reports.page import render
from pate.experiments.results import Result
from pate.experiments.round_costs import account_rounds
from pate.experiments.sweeps import Request, sweep
from pate.ledger import Ledger
from pate.privacy.curve import DEFAULT_ORDERS
from pate.release import ABSTAIN, Electorate, Release
from pate.student import Student
from pate.votes import Votes

for package in ("sklearn", "matplotlib", "jinja2"):
    pytest.importorskip(package, reason=f"{package} is not installed (extras 'train' and 'plot')")

INTERACTIVE = {"name": "interactive-gnmax", "threshold": 5, "sigma1": 1.0, "sigma2": 1.5, "confidence": 0.6}


pytestmark = pytest.mark.usefixtures("own_home")


def two(source: str = "PublicWard", **changes: Any) -> dict[str, Any]:
    queries = {"count": 8, "rounds": 2, "later_count": 5, **changes.pop("queries", {})}
    return tiny(source, queries=queries, **{"privacy": {"epsilon": 30.0}, **changes})


def interactive(source: str = "PublicWard", **changes: Any) -> dict[str, Any]:
    tables = two(source, **{"privacy": {"epsilon": 100.0}, **changes})
    return {**tables, "aggregator": INTERACTIVE}


def test_each_round_is_asked_about_other_records_and_charged_for_itself(tmp_path: Path) -> None:
    done = go(tmp_path, two(aggregator={"sigma": 3.0}))
    first, second = (read_release(done.folder / name) for name in ("release.json", "release-2.json"))
    assert first.queries is not None
    assert second.queries is not None
    assert (len(first.queries), len(second.queries)) == (8, 5)
    assert not np.isin(second.queries, first.queries).any()
    privacy = done.result.privacy
    assert privacy.rounds is not None
    assert [(each.strategy, each.asked) for each in privacy.rounds] == [("medoids", 8), ("uncertainty", 5)]
    whole = 13 * curve_ahead(GNMax(3.0), Electorate(10, 3), 1)
    assert privacy.data_independent == pytest.approx(whole.epsilon(1e-5).epsilon)
    assert privacy.spent == pytest.approx(privacy.data_independent, rel=1e-6)
    with Ledger.open(done.folder / "ledger.db", done.result.data.fingerprint or "") as ledger:
        assert [entry.key for entry in ledger.entries() if entry.kind == "reserve"] == ["answers", "answers, round 2"]
    assert Student.load(done.folder / "student.zip").record["asked"] == 13
    assert [stage.name for stage in done.result.stages].count("votes, round 2") == 1
    page = render(done.result, "", [], {})
    assert "Later queries were chosen from public records and earlier answers" in page
    assert Result.read(done.folder).public().privacy.rounds == privacy.rounds


def test_no_data_dependent_figure_is_given_as_a_bound(tmp_path: Path) -> None:
    result = go(tmp_path, two()).result
    assert result.privacy.data_dependent is None
    assert result.privacy.private_published == {}
    assert result.privacy.curve is not None
    assert result.privacy.curve.dependent is None
    assert any("no data-dependent figure is a bound" in each for each in result.warnings)
    assert go(tmp_path, tiny(privacy={"epsilon": 30.0})).result.privacy.data_dependent is not None


def test_costs_of_rounds_add_up_and_no_smaller_figure_is_made_up() -> None:
    rng = np.random.default_rng(1)
    batches = [
        (Votes(rng.multinomial(50, [0.8, 0.1, 0.1], 7), 50), GNMax(9.0)),
        (Votes(rng.multinomial(50, [0.3, 0.4, 0.3], 4), 50), GNMax(5.0)),
    ]
    report = account_rounds(batches, 1e-5)
    naive = sum(len(votes) * mechanism.rdp_ahead(votes.electorate, DEFAULT_ORDERS) for votes, mechanism in batches)
    np.testing.assert_allclose(report.independent.rdp[-1], naive, rtol=1e-12)
    assert report.independent.queries.tolist() == [*range(1, 8), *range(8, 12)]
    np.testing.assert_array_equal(report.dependent.rdp, report.independent.rdp)
    assert (np.diff(report.independent.epsilons(1e-5)) >= 0).all()
    (paper,) = report.published
    assert paper.key == "proposition8"
    np.testing.assert_allclose(paper.rdp[-1], 7 * DEFAULT_ORDERS / 81 + 4 * DEFAULT_ORDERS / 25)
    alone = account_rounds(batches[:1], 1e-5)
    assert (alone.dependent.rdp[-1] < alone.independent.rdp[-1]).any()


def test_noise_chosen_by_the_budget_counts_all_rounds(tmp_path: Path) -> None:
    tables = two(aggregator={"sigma": "auto"}, privacy={"epsilon": 2.0})
    sigmas = with_noise(check_recipe(tables)).aggregator.parameters["sigma"]
    assert sigmas[0] > sigmas[1], "five queries at half the budget bear less noise than eight at the other half"
    done = go(tmp_path, tables)
    assert 1.9 < done.result.privacy.spent <= 2.0
    assert done.result.privacy.rounds is not None
    one, other = (each.epsilon for each in done.result.privacy.rounds)
    assert one == pytest.approx(other, rel=0.02), "half the budget each"
    assert done.result.privacy.mechanism["sigma"] == sigmas
    equal = with_noise(check_recipe(two(queries={"later_count": 8}, aggregator={"sigma": "auto"})))
    assert isinstance(equal.aggregator.parameters["sigma"], float)


def test_all_rounds_must_be_affordable_before_anybody_is_trained(tmp_path: Path) -> None:
    one_round = curve_ahead(GNMax(3.0), Electorate(10, 3), 8).epsilon(1e-5).epsilon
    with pytest.raises(BudgetExceeded):
        go(tmp_path, two("Ward", privacy={"epsilon": 1.1 * one_round}))
    assert not list((tmp_path / "stages").glob("teachers-*"))
    assert charges_in(tmp_path / "home") == []
    go(tmp_path, tiny("Ward", privacy={"epsilon": 1.1 * one_round}))  # one round alone fits


def test_the_teachers_correct_the_student_in_an_interactive_run(tmp_path: Path) -> None:
    done = go(tmp_path, interactive("Ward"))
    first, second = (read_release(done.folder / name).release for name in ("release.json", "release-2.json"))
    assert first.mechanism["aggregator"] == "gnmax", "there is no student to compare with"
    assert first.mechanism["sigma"] == 1.5
    assert first.reinforced is None
    assert second.mechanism["aggregator"] == "interactive-gnmax"
    assert second.reinforced is not None
    rounds = done.result.privacy.rounds
    assert rounds is not None
    assert rounds[1].reinforced == int((second.reinforced != ABSTAIN).sum())
    electorate = Electorate(10, 3)
    mechanism = InteractiveGNMax(**{key: value for key, value in INTERACTIVE.items() if key != "name"})
    whole = curve_ahead(GNMax(1.5), electorate, 8) + curve_ahead(mechanism, electorate, 5)
    assert done.result.privacy.data_independent == pytest.approx(whole.epsilon(1e-5).epsilon, rel=1e-9)
    (fingerprint,) = Ledger.datasets(tmp_path / "home" / "ledger.db")
    with Ledger.open(tmp_path / "home" / "ledger.db", fingerprint) as ledger:
        memos = [entry.memo for entry in ledger.entries() if entry.kind == "reserve"]
    assert memos[1]["scores"] == second.mechanism["scores"]
    taught = int(first.answered.sum() + second.answered.sum() + (second.reinforced != ABSTAIN).sum())
    assert Student.load(done.folder / "student.zip").record["answered"] == taught
    assert len(charges_in(tmp_path / "home")) == 2
    go(tmp_path, interactive("Ward"))
    assert len(charges_in(tmp_path / "home")) == 2


def test_single_records_vote_in_each_round(tmp_path: Path) -> None:
    tables = two(queries={"count": 8, "later_count": 3}, teachers={"model": "nearest", "votes_per_record": 2})
    del tables["teachers"]["count"]
    done = go(tmp_path, tables)
    privacy = done.result.privacy
    voters = Electorate(300, 3, 2)
    whole = curve_ahead(GNMax(3.0), voters, 8) + curve_ahead(GNMax(3.0), voters, 3)
    assert privacy.data_independent == pytest.approx(whole.epsilon(1e-5).epsilon)
    assert privacy.participation == 4, "later batches add up"
    releases = [read_release(done.folder / name).release for name in ("release.json", "release-2.json")]
    assert [each.electorate for each in releases] == [voters, voters]


def test_records_may_be_asked_again_of_other_noise(tmp_path: Path) -> None:
    everybody = {"count": 120, "strategy": "random", "later_count": 40, "later_strategy": "boundary", "ask_again": True}
    done = go(tmp_path, two(queries=everybody, privacy={"epsilon": 200.0}))
    rows = read_release(done.folder / "release-2.json").queries
    assert rows is not None
    assert len(np.unique(rows)) == 40
    with pytest.raises(DataError, match=r"at most the 120 public records, all rounds together unless queries.ask_again"):
        go(tmp_path, two(queries={**everybody, "ask_again": False}))


def test_a_round_without_any_answer_leaves_no_student_to_choose_by(tmp_path: Path) -> None:
    tables = two(privacy={"epsilon": 1e5})
    tables["aggregator"] = {"name": "confident-gnmax", "threshold": 20, "sigma1": 0.5, "sigma2": 0.5}  # of ten teachers
    with pytest.raises(StudentError, match="all 13 queries were declined"):
        go(tmp_path, tables)
    first, second = (read_release(next(tmp_path.glob(f"tiny-*/{name}"))).queries for name in ("release.json", "release-2.json"))
    assert first is not None
    assert second is not None
    assert not np.isin(second, first).any(), "chosen as the first were, from what is left"


def test_what_is_asked_later_depends_on_public_records_and_answers_alone(tmp_path: Path) -> None:
    """The same answers about the same public records, of other private records: the same further questions."""
    found = []
    for source, labels in (("PublicWard", [0, 1, 2, 0, 1, 2, 0, 1]), ("GroupedWard", [0, 1, 2, 0, 1, 2, 0, 1])):
        recipe = check_recipe(two(source))
        voting = Voting(recipe, load_material(recipe, None, None), Stages(tmp_path / source), Serial(), Teller("none"))
        rows, _ = voting.rows()
        release = Release(np.array(labels), Electorate(10, 3), {"aggregator": "gnmax", "sigma": 3.0}, "simulation")
        found.append(voting.rows_of_round([release], [rows]))
    assert found[0].rows.tolist() == found[1].rows.tolist()
    np.testing.assert_array_equal(found[0].scores, found[1].scores)


# Killed on the way ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tables", [two(aggregator={"sigma": "auto"}), interactive()], ids=["gnmax", "interactive"])
def test_a_simulation_killed_anywhere_goes_on_to_the_same_result(tmp_path: Path, tables: dict[str, Any]) -> None:
    """The next run begins where the killed one was; each round has one charge, and the budget has no room for another."""
    whole = go(tmp_path / "whole", tables).result
    deaths = 0
    while killed(tmp_path / "killed", tables, 6 * deaths + 1):  # each time farther on from where the last one was stopped
        deaths += 1
    assert deaths >= 5
    found = go(tmp_path / "killed", tables)
    for name in ("evaluation", "label_noise", "consensus", "privacy", "data"):
        assert getattr(found.result, name) == getattr(whole, name), name
    with Ledger.open(found.folder / "ledger.db", found.result.data.fingerprint or "") as ledger:
        assert [entry.kind for entry in ledger.entries()] == ["open", "reserve", "settle", "reserve", "settle"]


@pytest.mark.parametrize("tables", [two("Ward", privacy={"epsilon": 200.0}), interactive("Ward", privacy={"epsilon": 900.0})])
def test_a_release_killed_anywhere_pays_for_each_round_once(tmp_path: Path, tables: dict[str, Any]) -> None:
    """Killed 7 events farther each time. What was written once never changes, and only lost answers are charged again."""
    seen: dict[str, str] = {}
    deaths = 0
    while True:
        died = killed(tmp_path, tables, 7 * deaths + 2)
        for file in tmp_path.glob("tiny-*/release*.json"):
            assert seen.setdefault(file.name, file.read_text()) == file.read_text()
        if not died:
            break
        deaths += 1
    found = go(tmp_path, tables)
    assert set(seen) == {"release.json", "release-2.json"}
    assert deaths >= 5
    lost = [each for each in found.result.warnings if "answers lost" in each]
    paid = charges_in(tmp_path / "home")
    assert len(paid) == 2 + (int(lost[0].split()[0]) if lost else 0)
    rows = json.loads((found.folder / "ledger.json").read_text())
    assert sum(row["kind"] == "reserve" for row in rows) == len(paid)


def test_answers_that_are_paid_for_need_no_further_budget(tmp_path: Path) -> None:
    """With room for both rounds and no more: stopped between them, the second is asked and the first is not charged again."""
    both = (curve_ahead(GNMax(3.0), Electorate(10, 3), 8) + curve_ahead(GNMax(3.0), Electorate(10, 3), 5)).epsilon(1e-5)
    tables = two("Ward", privacy={"epsilon": both.epsilon * 1.05})
    done = go(tmp_path, tables)
    once = charges_in(tmp_path / "home")
    (done.folder / "release-2.json").unlink()  # the stages still have it
    shutil.rmtree(next(tmp_path.glob("stages/teachers-*")))
    go(tmp_path, tables)
    assert charges_in(tmp_path / "home") == once
    shutil.rmtree(tmp_path / "stages")  # and the run directory has all of it
    assert go(tmp_path, tables).result.evaluation == done.result.evaluation
    assert charges_in(tmp_path / "home") == once
    for file in ("release-2.json", "student.zip"):
        (done.folder / file).unlink()
    shutil.rmtree(tmp_path / "stages")  # now the second is lost, and there is no budget to ask again
    with pytest.raises(BudgetExceeded):
        go(tmp_path, tables)


def test_another_student_at_the_end_of_the_same_answers_would_ask_other_questions(tmp_path: Path) -> None:
    go(tmp_path, two("Ward", privacy={"epsilon": 60.0}))
    go(tmp_path, two("Ward", privacy={"epsilon": 60.0}, student={"alpha": 0.5}))
    paid = charges_in(tmp_path / "home")
    assert len(paid) in (2, 3), "the first round is the same question; the second may be another"
    assert len({key.split(",")[0] for key in paid}) == len(paid)


# What does not fit together -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({**tiny(), "aggregator": INTERACTIVE}, r"queries.rounds: interactive-gnmax compares .* at least 2"),
        (
            {**interactive(), "teachers": {"model": "nearest"}},
            "states no cost for partial votes",
        ),
        (
            two(queries={"later_count": 2}, teachers={"model": "nearest", "votes_per_record": 3, "count": None}),
            "votes_per_record: at most the 2 queries of a round",
        ),
        (two(queries={"strategy": "boundary"}), "needs a student, and there is none before the first round"),
        (two(queries={"later_strategy": "boundry"}), "later_strategy: 'boundry' is no strategy"),
        (two(aggregator={"sigma": [3.0, 2.0, 1.0]}), "one value for each of the 2 rounds, got 3"),
        (two(aggregator={"sigma": []}), "this one is empty"),
        (two(aggregator={"sigma": [3.0, -1.0]}), "greater than 0"),
        ({**two(), "aggregator": {"name": "service", "url": "http://localhost:1"}}, "a service is asked in one round"),
    ],
)
def test_what_does_not_fit_is_told_before_anything_runs(tables: dict[str, Any], told: str) -> None:
    with pytest.raises(RecipeError, match=told):
        check_recipe(tables)


def test_a_sweep_counts_all_rounds_of_all_trials(tmp_path: Path) -> None:
    request = Request(two("Ward", privacy={"epsilon": 8.0}), {"aggregator.sigma": [3.0, 4.0]}, {})
    with pytest.raises(BudgetExceeded, match="2 trials ask of private votes"):
        sweep(request, out=tmp_path, executor=Serial(), show="none")
    with pytest.raises(ParameterError, match="has no student that could choose later queries"):
        sweep(
            Request(two(), {"aggregator.sigma": [3.0]}, {}, teacher_accuracy=0.9), out=tmp_path, executor=Serial(), show="none"
        )


def test_an_account_of_a_long_batch_compares_each_query_with_its_own_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    votes = Votes(rng.multinomial(40, [0.5, 0.3, 0.2], 11), 40)
    plain = InteractiveGNMax(12, 5.0, 5.0, 0.9)
    mechanism = plain.against(rng.dirichlet(np.ones(3), 11))
    exact = mechanism.exact_rdp(votes.counts, DEFAULT_ORDERS)
    assert exact is not None
    whole = np.minimum(exact, mechanism.rdp_ahead(votes.electorate, DEFAULT_ORDERS)).sum(axis=0)
    monkeypatch.setattr(accounting, "_CHUNK", 4)
    report = account(votes, mechanism, 1e-5)
    np.testing.assert_allclose(report.dependent.rdp[-1], whole, rtol=1e-12)
    assert report.expected_answered is not None
    assert 0 < report.expected_answered < 11
    unknown = account(votes, plain, 1e-5)
    assert "none known" in unknown.dependent.title
    assert unknown.expected_answered is None
    np.testing.assert_allclose(unknown.dependent.rdp, unknown.independent.rdp, rtol=1e-12)
