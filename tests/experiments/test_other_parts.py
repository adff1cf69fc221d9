"""A change that names another part takes the old part's parameters along, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from pate.errors import RecipeError
from pate.experiments.recipes.model import DpsgdRecipe, ErmRecipe
from pate.experiments.recipes.reading import change, change_all, check_recipe, load_tables, read_dpsgd_recipe, read_recipe
from pate.experiments.reproduce.studies import STUDIES
from pate.experiments.sweeps import Request

pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra 'train')")
pytest.importorskip("torch", reason="torch is not installed (extra 'train')")


def tables(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "data": {"source": "digits"},
        "features": {"name": "pca", "components": 8},
        "teachers": {"model": "knn", "count": 20, "n_neighbors": 3, "salt": "mine", "holdout": 0.1},
        "queries": {"count": 8, "features": {"name": "pca", "components": 4}},
        "aggregator": {"name": "confident-gnmax", "threshold": 10, "sigma1": 9.0, "sigma2": 6.0},
        "privacy": {"epsilon": 8.0},
        "student": {"model": "spreading", "neighbours": 5, "seed": 3},
    }
    return {**found, **changes}


def test_the_old_part_s_parameters_go_and_the_table_s_own_keys_stay() -> None:
    found = read_recipe(
        tables(),
        {
            "student.model": "vat",
            "teachers.model": "ridge",
            "aggregator.name": "gnmax",
            "aggregator.sigma": 5.0,
            "features.name": "standardise",
            "queries.features.name": "unit",
        },
    )
    assert found.student.parameters == {"seed": 3}
    assert found.teachers.parameters == {}
    assert (found.teachers.count, found.teachers.salt, found.teachers.holdout) == (20, "mine", 0.1)
    assert found.aggregator.parameters == {"sigma": 5.0}
    assert found.features is not None
    assert found.features.parameters == {}
    assert found.queries.features.parameters == {}  # type: ignore[union-attr]


def test_another_source_keeps_the_share_of_its_records() -> None:
    found = read_recipe(tables(data={"source": "mnist", "private_share": 0.25}), {"data.source": "fashion-mnist"})
    assert found.data.private_share == 0.25


def test_what_the_same_command_gives_stays_in_whatever_order_and_form() -> None:
    for changes in (
        {"student.steps": 7, "student.model": "vat"},
        {"student": {"model": "vat", "steps": 7}},
        {"student__model": "vat", "student": {"steps": 7}},
    ):
        assert read_recipe(tables(), changes).student.parameters == {"seed": 3, "steps": 7}


def test_the_same_name_again_changes_nothing() -> None:
    assert read_recipe(tables(), {"student.model": "spreading", "teachers": {"model": "knn"}}) == read_recipe(tables())


def test_a_preset_stays_where_the_new_student_has_it() -> None:
    assert read_recipe("mnist", {"student.model": "vat"}).student.preset == "mnist"
    own = tables(student={"model": "spreading", "preset": "fashion-mnist"})
    assert read_recipe(own, {"student.model": "vote-share"}).student.preset is None


def test_noise_that_is_found_stays_where_it_can_be_found() -> None:
    automatic = tables(aggregator={"name": "gnmax", "sigma": "auto"})
    assert read_recipe(automatic, {"aggregator.name": "noisy-histogram"}).aggregator.parameters == {"sigma": "auto"}
    assert read_recipe(automatic, {"aggregator.name": "lnmax", "aggregator.gamma": 0.1}).aggregator.parameters == {"gamma": 0.1}
    with pytest.raises(RecipeError, match="missing parameter 'gamma'"):
        read_recipe(automatic, {"aggregator.name": "lnmax"})


def test_teachers_and_records_that_vote_take_each_other_s_place() -> None:
    records = read_recipe(tables(aggregator={"name": "gnmax", "sigma": 5.0}), {"teachers.model": "nearest"})
    assert records.teachers.count is None
    some = tables(
        teachers={"model": "nearest", "votes_per_record": 2, "voters": 5000}, aggregator={"name": "gnmax", "sigma": 5.0}
    )
    found = read_recipe(some, {"teachers.model": "logistic", "teachers.count": 20}).teachers
    assert (found.model, found.count, found.votes_per_record, found.voters) == ("logistic", 20, 1, None)


def test_a_baseline_s_training_is_not_its_model_s() -> None:
    before = read_dpsgd_recipe("mnist").dpsgd
    after = read_dpsgd_recipe("mnist", {"dpsgd.model": "mlp"}).dpsgd
    assert after.parameters == before.parameters
    assert after.features == before.features


def test_a_misspelt_part_is_told_as_such() -> None:
    with pytest.raises(RecipeError, match=r"'spreadin' is no known student \(did you mean 'spreading'"):
        read_recipe(tables(), {"student.model": "spreadin"})


def test_a_grid_of_parts_is_a_sweep() -> None:
    request = Request(tables(), {"student.model": ["spreading", "vat"]}, {"student.seed": 4}, seeds=2)
    found = [(recipe.student.model, recipe.student.parameters, recipe.seed) for _, recipe in request.trials()]
    own = {"neighbours": 5, "seed": 4}
    assert found == [("spreading", own, 0), ("spreading", own, 1), ("vat", {"seed": 4}, 0), ("vat", {"seed": 4}, 1)]


@pytest.mark.parametrize("name", STUDIES)
def test_what_was_published_resolves_as_it_did(name: str) -> None:
    """Its changes, applied one by one or as those of one command, make the same recipes."""
    for case in STUDIES[name].cases:
        kind: Any = {"dpsgd": (DpsgdRecipe,), "erm": (ErmRecipe,)}.get(case.kind, ())
        subject, together = load_tables(case.recipe)
        one_by_one = load_tables(case.recipe)[1]
        change_all(together, case.changes, subject)
        for path, value in case.changes.items():
            change(one_by_one, path, value, subject)
        assert check_recipe(together, subject, *kind) == check_recipe(one_by_one, subject, *kind)
