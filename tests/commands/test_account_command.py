"""``pate account`` and ``pate tables`` on real MNIST votes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate.arrays import IntArray

Pate = Callable[..., Any]


def test_gnmax_reproduces_the_known_figures(pate: Pate, vote_file: Path) -> None:
    report = pate(
        "account", vote_file, "--aggregator", "gnmax", "--set", "sigma=40", "--queries", 640, "--delta", 1e-5, "--json"
    ).json
    assert report["queries"] == 640
    assert report["delta"] == 1e-5
    assert report["epsilon"]["data_independent"] == pytest.approx(3.238, rel=3e-3)
    assert report["epsilon"]["data_dependent"] == pytest.approx(0.886, abs=1e-3)
    assert report["epsilon"]["sanitised"] is None
    assert report["published"]["proposition8"] == pytest.approx(4.162, abs=2e-3)
    assert report["published"]["theorem6"] == pytest.approx(1.389, abs=1e-3)
    assert report["classic_conversion"]["theorem6"] == pytest.approx(1.649, abs=2e-3)
    assert report["not_bounds"] == []
    assert report["publishable"] == ["data_independent", "proposition8"]
    assert set(report["orders"]) == {"data_independent", "data_dependent", "proposition8", "theorem6"}
    assert report["expected"] == {"answered": 640.0, "abstained": 0.0}


def test_confident_marks_the_expected_cost_as_no_bound(pate: Pate, vote_file: Path) -> None:
    settings = [part for each in ("threshold=200", "sigma1=150", "sigma2=40") for part in ("--set", each)]
    report = pate("account", vote_file, "-a", "confident-gnmax", *settings, "--queries", 640, "--json").json
    assert report["epsilon"]["data_dependent"] == pytest.approx(0.732, abs=1e-3)
    assert report["published"]["expected_2018"] == pytest.approx(1.068, abs=1e-3)
    assert report["published"]["theorem6"] == pytest.approx(1.582, abs=1e-3)
    assert report["not_bounds"] == ["expected_2018"]
    assert 0 < report["expected"]["answered"] < 640


def test_lnmax(pate: Pate, vote_file: Path) -> None:
    report = pate("account", vote_file, "-a", "lnmax", "-s", "gamma=0.05", "--queries", 640, "--json").json
    assert report["epsilon"]["data_dependent"] == pytest.approx(1.063, abs=1e-3)
    assert report["epsilon"]["data_independent"] == pytest.approx(6.189, abs=1e-3)
    assert report["published"]["theorem3_2017"] >= report["epsilon"]["data_dependent"]


def test_the_table_says_who_may_see_what(pate: Pate, vote_file: Path) -> None:
    ran = pate("account", vote_file, "-a", "gnmax", "-s", "sigma=40", "--queries", 100)
    assert ran.code == 0
    for text in ("data-independent", "anybody", "the owner only", "Theorem 6", "sanitised", "100.0 answered"):
        assert text in ran.out


def test_partial_votes(pate: Pate, tmp_path: Path) -> None:
    np.save(tmp_path / "partial.npy", np.array([[300, 20], [10, 250]]))
    arguments = ("account", tmp_path / "partial.npy", "-a", "noisy-histogram", "-s", "sigma=91", "--json")
    report = pate(*arguments, "--participation", 1, "--teachers", 600).json
    assert report["participation"] == 1
    assert report["epsilon"]["data_independent"] == report["epsilon"]["data_dependent"] == pytest.approx(0.05, rel=0.05)
    assert pate(*arguments, "--participation", 1).code in (2, 5)


def test_plot_is_a_picture(pate: Pate, vote_file: Path, tmp_path: Path) -> None:
    for name, start in (("plot.png", b"\x89PNG"), ("plot.svg", b"<?xml")):
        ran = pate("account", vote_file, "-a", "gnmax", "-s", "sigma=40", "--queries", 50, "--plot", tmp_path / name)
        assert ran.code == 0, ran.err
        assert (tmp_path / name).read_bytes().startswith(start)
    refused = pate("account", vote_file, "-a", "gnmax", "-s", "sigma=40", "--queries", 5, "--plot", tmp_path / "plot.nothing")
    assert refused.code in (2, 5)
    assert ".png" in refused.err


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (np.array([[1, 2], [3, 3]]), "sum to n_teachers=3"),
        (np.array([[1.0, 2.0]]), "integer dtype"),
        (np.array([[np.nan, 2.0]]), "integer dtype"),
        (np.array([1, 2, 3]), "[query, class]"),
        (np.array([[-1, 4]]), "negative"),
        (np.zeros((0, 3), dtype=int), "no query"),
        (np.array([[0, 0]]), "at least 1"),
        (np.array([["a", "b"]]), "integer dtype"),
    ],
)
def test_bad_votes_are_one_clear_line(pate: Pate, tmp_path: Path, counts: IntArray, message: str) -> None:
    np.save(tmp_path / "bad.npy", counts)
    ran = pate("account", tmp_path / "bad.npy", "-a", "gnmax", "-s", "sigma=40")
    assert ran.code in (2, 5)
    assert message in ran.err
    assert len(ran.err.strip().splitlines()) == 1


def test_unreadable_files_are_one_clear_line(pate: Pate, tmp_path: Path) -> None:
    (tmp_path / "text.npy").write_text("no array")
    np.savez(tmp_path / "other.npz", votes=np.eye(2, dtype=int))
    for name, message in (("absent.npy", "no such file"), ("text.npy", "not a readable"), ("other.npz", "'counts'")):
        ran = pate("account", tmp_path / name, "-a", "gnmax", "-s", "sigma=40")
        assert ran.code in (2, 5)
        assert message in ran.err
        assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-a", "gnmx", "-s", "sigma=40"), "did you mean 'gnmax'"),
        (("-a", "gnmax"), "missing parameter 'sigma'"),
        (("-a", "gnmax", "-s", "sigma=-1"), "greater than 0"),
        (("-a", "gnmax", "-s", "sigma=40", "--delta", "2"), "delta must lie strictly between 0 and 1"),
        (("-a", "gnmax", "-s", "sigma=40", "--queries", "99999"), "between 1 and the 9000 rows"),
    ],
)
def test_bad_arguments_are_one_clear_line(pate: Pate, vote_file: Path, arguments: tuple[str, ...], message: str) -> None:
    ran = pate("account", vote_file, *arguments)
    assert ran.code in (2, 5)
    assert message in ran.err


def test_debug_shows_the_traceback(pate: Pate, vote_file: Path) -> None:
    from pate.errors import PateError

    with pytest.raises(PateError, match="missing parameter"):
        pate("--debug", "account", vote_file, "-a", "gnmax")


def test_tables_reproduce_the_comparison(pate: Pate, vote_file: Path) -> None:
    report = pate("tables", vote_file, "--json").json
    exact = [row["exact_improved"] for row in report["data_dependent"]]
    assert exact == pytest.approx([0.886, 0.732, 0.559, 1.063], abs=1e-3)
    published = [(row["published_classic"], row["published_improved"]) for row in report["data_dependent"][:3]]
    assert np.array(published) == pytest.approx(np.array([(1.649, 1.389), (1.866, 1.582), (1.773, 1.501)]), abs=2e-3)
    expected = [row["expected_classic"] for row in report["data_dependent"][1:3]]
    assert expected == pytest.approx([1.293, 0.998], abs=2e-3)
    assert report["data_dependent"][3]["code_2017"] == pytest.approx(3.321, abs=2e-3)
    independent = [(row["published_improved"], row["ours_improved"]) for row in report["data_independent"]]
    assert [row["queries"] for row in report["data_independent"]] == [640] * 4 + [3098]
    # The last pair was first found on a coarser grid of orders, which gives slightly more.
    assert np.array(independent)[[0, 2, 4]] == pytest.approx(
        np.array([(4.162, 3.238), (4.210, 2.056), (10.68, 4.920)]), rel=4e-3
    )
    text = pate("tables", vote_file)
    assert text.code == 0
    assert "0.886" in text.out


@pytest.mark.filterwarnings("default")
def test_the_best_order_at_the_edge_of_the_grid_is_noted(pate: Pate, vote_file: Path) -> None:
    ran = pate("account", vote_file, "-a", "lnmax", "-s", "gamma=0.5", "--queries", 1, "--json")
    assert ran.code == 0
    assert "pate: note: The best Rényi order, 1024, is the largest of the grid" in ran.err
    assert ran.json["orders"]["theorem2_2017"] == 1024


def test_raw_votes_give_the_cost_per_teacher(pate: Pate, tmp_path: Path) -> None:
    predictions = np.random.default_rng(1).choice(3, p=[0.7, 0.2, 0.1], size=(60, 40))
    counts = np.stack([(predictions == label).sum(axis=0) for label in range(3)], axis=1)
    np.savez(tmp_path / "raw.npz", counts=counts, predictions=predictions)
    for settings in (["gnmax", "-s", "sigma=8"], ["lnmax", "-s", "gamma=0.1"]):
        report = pate("account", tmp_path / "raw.npz", "-a", *settings, "--queries", 30, "--json").json
        assert 0 < report["epsilon"]["data_dependent_per_teacher"] < report["epsilon"]["data_dependent"]
    assert "per teacher" in pate("account", tmp_path / "raw.npz", "-a", "gnmax", "-s", "sigma=8").out
    np.savez(tmp_path / "wrong.npz", counts=counts[::-1], predictions=predictions)
    wrong = pate("account", tmp_path / "wrong.npz", "-a", "gnmax", "-s", "sigma=8")
    assert wrong.code in (2, 5)
    assert "disagree" in wrong.err


def test_the_tables_in_the_documents_are_what_the_command_computes(pate: Pate, vote_file: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "accounting.md").read_text()
    report = pate("tables", vote_file, "--json").json
    for row in report["data_dependent"]:
        assert f"{row['exact_classic']:.3f} / **{row['exact_improved']:.3f}**" in page
        assert f"{row['published_classic']:.3f} / {row['published_improved']:.3f}" in page
    for row in report["data_independent"]:
        assert f"{row['published_classic']:.3f} / {row['published_improved']:.3f}" in page
        assert f"{row['ours_classic']:.3f} / **{row['ours_improved']:.3f}**" in page
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    for row in report["data_dependent"]:
        assert f"**{row['exact_improved']:.3f}**" in readme
        assert f"{row['published_improved']:.3f}" in readme
    for row in report["data_independent"][:4]:
        assert f"**{row['ours_improved']:.3f}**" in readme
