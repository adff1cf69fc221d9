"""Recipes: the built-in ones are sound, and whatever is wrong with one is told in one line, all at once."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from pipeline_cases import tiny

from pate.errors import DataError, PateError, RecipeError
from pate.experiments.recipes.catalogue import descriptions, write_new
from pate.experiments.recipes.checking import with_noise
from pate.experiments.recipes.reading import built_in_recipes, check_recipe, read_recipe, recipe_text

pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra 'train')")
pytest.importorskip("torch", reason="torch is not installed (extra 'train')")

NAMES = (
    *("adult", "adult-records", "adult-rounds", "cifar10", "diabetes", "diabetes-records", "digits", "fashion-mnist"),
    *("kddcup99", "mnist", "mnist-2018", "mnist-records", "svhn"),
)


def test_the_built_in_recipes_are_those_promised() -> None:
    assert tuple(built_in_recipes()) == NAMES
    assert all(len(text) > 40 for text in descriptions().values())


@pytest.mark.parametrize("name", NAMES)
def test_a_built_in_recipe_is_sound_and_can_be_written_down(name: str) -> None:
    recipe = with_noise(read_recipe(name))
    assert recipe.title == name
    assert check_recipe(tomllib.loads(recipe_text(recipe))) == recipe


def test_the_paper_s_own_parameters() -> None:
    """PATE 2018 (arXiv:1802.08908), MNIST: 250 teachers, Confident-GNMax with T = 200, sigma1 = 150, sigma2 = 40."""
    recipe = read_recipe("mnist-2018")
    assert recipe.teachers.count == 250
    assert recipe.data.parameters == {"protocol": "A"}
    assert recipe.aggregator.parameters == {"threshold": 200, "sigma1": 150.0, "sigma2": 40.0}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown table": ({"studnet": {}}, r"studnet: unknown key \(did you mean 'student'\?\)"),
    "unknown key": ({"queries": {"cuont": 3}}, r"queries\.cuont: unknown key \(did you mean 'count'\?\)"),
    "a part's unknown key": ({"aggregator": {"sgima": 3}}, r"unknown parameter 'sgima' \(did you mean 'sigma'\?\)"),
    "unknown aggregator": ({"aggregator": {"name": "gnmx"}}, r"'gnmx' is no known aggregator \(did you mean 'gnmax'"),
    "negative sigma": ({"aggregator": {"sigma": -1.0}}, "aggregator: GNMax sigma"),
    "sigma in words": ({"aggregator": {"sigma": "forty"}}, "aggregator: "),
    "auto for another": ({"aggregator": {"name": "lnmax", "sigma": "auto"}}, 'sigma = "auto" is for gnmax'),
    "epsilon 0": ({"privacy": {"epsilon": 0.0}}, r"privacy\.epsilon: input should be greater than 0, got 0\.0"),
    "delta 1": ({"privacy": {"delta": 1.0}}, r"privacy\.delta: input should be less than 1, got 1\.0"),
    "a password": ({"privacy": {"ledger": "postgresql+psycopg://me:secret@host/db"}}, "it must hold no password"),
    "budget beyond reach": ({"privacy": {"epsilon": 1e-9, "delta": 1e-300}}, "privacy: "),
    "a student that counts other votes": (
        {
            "teachers": {"model": "nearest", "votes_per_record": 3, "voters": 999, "count": None},
            "aggregator": {"name": "noisy-histogram", "sigma": 3.0},
            "student": {"model": "proportions", "preset": None, "votes": 2},
        },
        r"student\.votes: 2, but teachers\.votes_per_record is 3",
    ),
    "unknown data set": ({"data": {"source": "minst"}}, "data: 'minst' is no known dataset source"),
    "unknown protocol": ({"data": {"source": "mnist", "protocol": "C"}}, "mnist protocol must be A or B, got 'C'"),
    "option of another": ({"data": {"source": "digits", "protocol": "A"}}, "data: digits: unknown parameter 'protocol'"),
    "unknown family": ({"teachers": {"model": "logistics"}}, r"'logistics' is no known teacher family \(did you mean"),
    "no teachers": ({"teachers": {"count": 0}}, r"teachers\.count: input should be greater than or equal to 1, got 0"),
    "count with nearest": ({"teachers": {"model": "nearest"}}, 'count: with model = "nearest" every record votes'),
    "voters with teachers": ({"teachers": {"voters": 5}}, 'voters belong to model = "nearest"'),
    "votes per record": ({"teachers": {"votes_per_record": 2}}, 'and voters belong to model = "nearest"'),
    "half a teacher": ({"teachers": {"count": 2.5}}, r"teachers\.count: input should be a valid integer, got 2\.5"),
    "holdout of all": ({"teachers": {"holdout": 1.0}}, r"teachers\.holdout: input should be less than 1"),
    "no queries": ({"queries": {"count": 0}}, r"queries\.count: input should be greater than or equal to 1"),
    "queries in words": ({"queries": {"count": "many"}}, r"queries\.count: input should be a valid integer, got 'many'"),
    "unknown strategy": ({"queries": {"strategy": "medoid"}}, r"strategy: 'medoid' is no strategy \(did you mean 'medoids'"),
    "rounds": ({"queries": {"strategy": "uncertainty"}}, "strategy: uncertainty needs a student"),
    "unknown features": ({"features": {"name": "hogg"}}, r"features: 'hogg' is no known features \(did you mean 'hog'"),
    "inner features": ({"queries": {"count": 3, "features": {"name": "pcaa"}}}, r"queries\.features: 'pcaa' is no known"),
    "unknown student": ({"student": {"model": "spreadin"}}, r"'spreadin' is no known student \(did you mean 'spreading'"),
    "unknown preset": ({"student": {"preset": "mnits"}}, "student: 'spreading' has no preset 'mnits'"),
    "student's setting": ({"student": {"alpha": 2.0}}, "student: "),
    "unknown module": ({"student": {"model": "nowhere:Student"}}, "student: No module named 'nowhere'"),
    "unknown class": ({"aggregator": {"name": "pipeline_cases:Nobody"}}, "'pipeline_cases' has no 'Nobody'"),
    "not a part": ({"aggregator": {"name": "pipeline_cases:Ward"}}, "must be a subclass of pate.aggregators"),
    "mode": ({"mode": "secret"}, "mode: input should be 'release' or 'simulation', got 'secret'"),
    "seed": ({"seed": -1}, "seed: input should be greater than or equal to 0, got -1"),
    "ledger of a simulation": ({"mode": "simulation", "privacy": {"ledger": "x.db"}}, r"privacy\.ledger: a simulation keeps"),
    "partial votes": (
        {"teachers": {"model": "nearest", "count": None}, "aggregator": {"name": "recipe_parts:NoPartialVotes"}},
        "states no cost for partial votes",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_told_in_one_line(what: str) -> None:
    changes, message = WRONG[what]
    tables = tiny(**changes)
    if tables["teachers"].get("count", 0) is None:
        del tables["teachers"]["count"]
    with pytest.raises(RecipeError, match=message) as caught:
        check_recipe(tables)
    assert "\n" not in str(caught.value)


def test_all_problems_come_at_once() -> None:
    tables = tiny(queries={"cuont": 3}, aggregator={"sgima": 3}, student={"model": "spreadin"}, seed=-1)
    del tables["privacy"]
    with pytest.raises(RecipeError) as caught:
        check_recipe(tables, "Recipe mine.toml")
    said = str(caught.value)
    assert said.startswith("Recipe mine.toml: 5 problems: ")
    for each in ("queries.cuont", "sgima", "spreadin", "seed", "privacy: missing"):
        assert each in said, said


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"title = ", "not TOML"),
        (b"\xff\xfe\x00", "not TOML"),
        (b"", "missing"),
        (b"[data]\nsource = 'digits'\n[data]\n", "not TOML"),
        (b"data = 3", "data: "),
    ],
)
def test_a_file_that_is_no_recipe(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "mine.toml").write_bytes(content)
    with pytest.raises(RecipeError, match=message):
        read_recipe(tmp_path / "mine.toml")


def test_a_recipe_that_is_not_there() -> None:
    with pytest.raises(RecipeError, match=r"'mnits' is no built-in recipe \(did you mean 'mnist'\?\)"):
        read_recipe("mnits")
    with pytest.raises(RecipeError, match=r"pate recipes new nowhere\.toml"):
        read_recipe("nowhere.toml")


def test_changes_by_path_make_tables_and_merge_into_them() -> None:
    recipe = read_recipe("digits", {"aggregator.sigma": 5, "evaluation.upper_bounds": True, "teachers": {"count": 7}})
    assert recipe.aggregator.parameters == {"sigma": 5}
    assert recipe.evaluation.upper_bounds
    assert (recipe.teachers.count, recipe.teachers.model) == (7, "knn")
    with pytest.raises(RecipeError, match="'title' is a value and not a table"):
        read_recipe("digits", {"title.sub": 1})
    with pytest.raises(RecipeError, match=r"must name a key by its path"):
        read_recipe("digits", {"aggregator.": 1})


def test_a_new_recipe_is_sound_but_for_the_files(tmp_path: Path) -> None:
    write_new(tmp_path / "ward.toml")
    recipe = read_recipe(tmp_path / "ward.toml")
    assert recipe.data.parameters["dataset"] == "ward"
    with pytest.raises(PateError, match="not overwritten"):
        write_new(tmp_path / "ward.toml")
    write_new(tmp_path / "like.toml", like="digits")
    assert read_recipe(tmp_path / "like.toml").teachers.count == 60


def test_a_recipe_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises((RecipeError, DataError)):
        read_recipe(tmp_path / "folder.toml")
