"""The pages about students stay true: their Python runs as it stands and prints what they say."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path

import numpy as np
import pytest
from doc_pages import DOCS, RUN_ALL, check_options, commands, run, run_commands, save_named

for package in ("sklearn", "skops", "safetensors", "threadpoolctl"):
    pytest.importorskip(package, reason=f"{package} is not installed (extra 'train')")

STUDENTS, OWN_STUDENT = DOCS / "students.md", DOCS / "tutorials" / "own-student.md"


@pytest.mark.parametrize("page", [STUDENTS, OWN_STUDENT], ids=lambda page: page.stem)
def test_every_option_named_exists(page: Path) -> None:
    assert commands(page)
    check_options(page)


def test_every_built_in_student_is_in_the_table() -> None:
    from pate.student import known_students

    assert set(re.findall(r"^\| `([a-z-]+)` \| ", STUDENTS.read_text(), flags=re.MULTILINE)) >= set(known_students())


def test_the_page_about_students_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATE_CACHE", str(tmp_path / "cache"))
    failed, tried = doctest.testfile(
        str(STUDENTS), module_relative=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    assert failed == 0
    assert tried > 30
    from sklearn.datasets import load_digits

    pictures = load_digits(return_X_y=True)[0] / 16
    np.save("public.npy", pictures[np.arange(len(pictures)) % 6 > 3])
    run_commands(STUDENTS, tmp_path)
    assert np.load("labels.npy").shape == (598,)


def test_the_tutorial_of_ones_own_student(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed (extra 'train')")
    # The commands in the same process, which has imported torch already.
    shell = f"import sys\nsys.argv[1:] = [{json.dumps(json.dumps(commands(OWN_STUDENT)))}]\n{RUN_ALL}"
    (tmp_path / "program.py").write_text("\n".join([*save_named(OWN_STUDENT, tmp_path), shell]))
    done = run(tmp_path, "-W", "error", "program.py")
    assert done.returncode == 0, done.stderr
    said = done.stdout
    right = {name: int(share) for name, share in re.findall(r"^([\w:-]+): (\d+)% right$", said, re.MULTILINE)}
    assert set(right) == {"spreading", "my_students:SeededKMeans", "supervised", "my_students:EntropyMin"}
    assert right["my_students:SeededKMeans"] >= 75
    assert min(right.values()) >= 40, right
    assert "the same: True" in said
    assert "{'stage': 'k-means', 'step': 20, 'distance': " in said
    assert np.load(tmp_path / "labels.npy").shape == (1200,)
