"""What is sent to a cluster and what comes back: never data, nothing private in a log, no parcel that was changed."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from pathlib import Path

import pytest
from pipeline_cases import tiny

from pate.errors import ClusterError, ParameterError, RecipeError
from pate.execution import Serial
from pate.experiments.pipeline.launch import launch
from pate.experiments.recipes.reading import check_recipe, read_recipe
from pate.experiments.submitting import BEGIN, END, check_submittable, packed, shown, stage, unpacked

for package in ("sklearn", "matplotlib", "jinja2"):
    pytest.importorskip(package, reason=f"{package} is not installed (extras 'train' and 'plot')")


def test_a_release_sends_only_what_may_be_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATE_HOME", str(tmp_path / "home"))
    done = launch(check_recipe(tiny("Ward")), out=tmp_path / "runs", executor=Serial(), show="none")
    lines = list(packed(done.folder))
    assert unpacked(["before", *lines, "after"], tmp_path / "back") == (tmp_path / "back" / done.folder.name, False)
    names = {path.name for path in (tmp_path / "back" / done.folder.name).iterdir()}
    public = {"result-public.json", "report-public.html", "plots-public"}
    assert names == public | {"release.json", "student.zip", "recipe.toml", "ledger.json"}
    told = (tmp_path / "back" / done.folder.name / "result-public.json").read_text()
    assert str(done.result.privacy.data_dependent) not in told
    assert list(shown(["before", *lines, "after"])) == ["before", "after"]


def test_a_simulation_on_public_data_sends_all(tmp_path: Path) -> None:
    done = launch(check_recipe(tiny()), out=tmp_path / "runs", executor=Serial(), show="none")
    place, everything = unpacked(packed(done.folder), tmp_path / "back") or (Path(), False)
    assert everything
    assert (place / "result.json").read_bytes() == (done.folder / "result.json").read_bytes()


def _parcel(name: str, damage: bool = False) -> list[str]:
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w") as archive:
        archive.writestr(name, "x")
    content = stored.getvalue()
    checksum = hashlib.sha256(content + b"!" * damage).hexdigest()
    return [f"{BEGIN} {checksum} run-1 all", base64.b64encode(content).decode(), END]


def test_a_parcel_that_was_changed_or_reaches_out_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="damaged"):
        unpacked(_parcel("a.txt", damage=True), tmp_path)
    with pytest.raises(ClusterError, match="outside"):
        unpacked(_parcel("../../evil.txt"), tmp_path)
    with pytest.raises(ClusterError, match="damaged"):
        unpacked([_parcel("a.txt")[0].replace("run-1", "../run"), *_parcel("a.txt")[1:]], tmp_path)
    assert not list(tmp_path.iterdir())
    assert unpacked(["nothing here"], tmp_path) is None
    assert unpacked(_parcel("a.txt")[:-1], tmp_path) is None, "cut off"


def test_the_package_and_named_modules_are_sent_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("x = 1")
    (tmp_path / "private.csv").write_text("secret")
    (tmp_path / "staged").mkdir()
    stage(read_recipe("digits"), tmp_path / "staged", [tmp_path / "mine.py"], installed=False)
    assert {path.name for path in (tmp_path / "staged").iterdir()} == {"pate", "recipe.toml", "mine.py"}
    assert (tmp_path / "staged" / "pate" / "teachers" / "data.py").is_file(), "links are followed"
    assert not (tmp_path / "staged" / "pate" / "teachers").is_symlink()
    with pytest.raises(ParameterError, match="no such file"):
        stage(read_recipe("digits"), tmp_path / "staged", [tmp_path / "nowhere.py"], installed=True)


def test_a_release_needs_a_ledger_and_storage_that_outlive_the_cluster() -> None:
    with pytest.raises(RecipeError, match=r"privacy\.ledger"):
        check_submittable(check_recipe(tiny("Ward")), "/shared")
    with_ledger = check_recipe(tiny("Ward", privacy={"ledger": "/shared/ledger.db"}))
    with pytest.raises(RecipeError, match="--storage"):
        check_submittable(with_ledger, None)
    check_submittable(with_ledger, "/shared")
    check_submittable(check_recipe(tiny()), None)
    own = {"source": "files", "dataset": "d", "private": "p.csv", "public": "q.csv", "classes": 2}
    at_home = check_recipe(tiny(data=own, privacy={"ledger": "/shared/ledger.db"}))
    with pytest.raises(RecipeError, match=r"data\.private: data are not sent"):
        check_submittable(at_home, "/shared")


def test_private_records_are_not_uploaded_by_accident(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    private = tmp_path / "all" / "private.csv"
    private.write_text("secret")
    own = {"source": "files", "dataset": "d", "private": str(private), "public": "q.csv", "classes": 2}
    (tmp_path / "staged").mkdir()
    with pytest.raises(ParameterError, match="holds the private records"):
        stage(check_recipe(tiny(data=own)), tmp_path / "staged", [tmp_path / "all"], installed=True)
    (tmp_path / "recipe.toml").write_text("")
    with pytest.raises(ParameterError, match=r"'recipe\.toml' is sent already"):
        stage(read_recipe("digits"), tmp_path / "staged", [tmp_path / "recipe.toml"], installed=True)
