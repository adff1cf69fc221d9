"""The pages about teachers and features stay true: their Python runs as it stands and prints what they say."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest
from doc_pages import DOCS, blocks, check_options, run, run_commands, save_named

TEACHERS, FEATURES = DOCS / "teachers.md", DOCS / "features.md"
OWN_TEACHER, CLUSTER = DOCS / "tutorials" / "own-teacher.md", DOCS / "tutorials" / "teachers-on-a-cluster.md"
PAGES = [TEACHERS, FEATURES, OWN_TEACHER, CLUSTER]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_option_named_exists(page: Path) -> None:
    check_options(page)


@pytest.mark.parametrize("page", [TEACHERS, FEATURES], ids=lambda page: page.stem)
def test_a_page_with_a_session_prints_what_it_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(
        str(page), module_relative=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    assert failed == 0
    assert tried > 20
    if page == TEACHERS:
        run_commands(page, tmp_path)


def test_the_tutorial_of_ones_own_teacher(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("\n".join(save_named(OWN_TEACHER, tmp_path)))
    done = run(tmp_path, "-W", "error", "program.py")
    assert done.returncode == 0, done.stderr
    right = {name: int(share) for name, share in re.findall(r"^([\w-]+): 0 failed, .* right on (\d+)%$", done.stdout, re.M)}
    assert set(right) == {"svc", "scaled-svc", "net", "centroids"}
    assert min(right.values()) >= 85, right
    assert done.stdout.count("✓") == 10
    assert "✗" not in done.stdout
    said = " ".join(blocks(OWN_TEACHER, "text")[0].split()).removesuffix(" ...")
    assert said in " ".join(done.stdout.split())
    run_commands(OWN_TEACHER, tmp_path)


def test_a_family_takes_under_40_lines(tmp_path: Path) -> None:
    save_named(OWN_TEACHER, tmp_path)
    family = (tmp_path / "my_teachers.py").read_text().partition("class CentroidTeachers")[2].partition("\n\n\n")[0]
    assert "def load" in family
    assert len(family.splitlines()) < 40


ON_RAY = """
import os, runpy, secrets, sys
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # Ray's own way wants to write to the home directory
import ray
ray.init("local", num_cpus=2, resources={"silo:north": 1}, labels={"silo": "south"}, include_dashboard=False)
for script in ("train_ward.py", "silo_ward.py"):
    sys.argv = [script, ".", "2"]
    runpy.run_path(script, run_name="__main__")
"""


@pytest.mark.slow
def test_the_tutorial_of_a_cluster(tmp_path: Path) -> None:
    """On real Ray with two workers, on one node that has the resource of the one silo and the label of the other."""
    assert save_named(CLUSTER, tmp_path) == []
    shards = run(tmp_path, "-W", "error", "make_shards.py")
    assert shards.returncode == 0, shards.stderr
    done = run(tmp_path, "-c", ON_RAY)
    assert done.returncode == 0, done.stderr
    assert "Votes(257 queries, 10 classes, 60 teachers) {} ward-" in done.stdout
    assert "StoredPartition(2 teachers by silo, 1540 records, unit record) Votes(257 queries, 10 classes, 2 teachers)" in (
        done.stdout
    )
    assert not list((tmp_path / "work").rglob("*.npy"))  # private work files are gone
