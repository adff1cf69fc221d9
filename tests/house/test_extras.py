"""A missing extra is a one-line hint, wherever it is met."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pate.errors import MissingExtra, PateError
from pate.extras import require, require_all

ROOT = Path(__file__).parents[2]
EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

# What a machine without extras lacks: theirs, and the tools of development.
HIDDEN = ("numba", "matplotlib", "torch", "torchvision", "sklearn", "ray", "fastapi", "uvicorn", "psycopg")
HIDDEN += ("fsspec", "joblib", "pyarrow", "safetensors", "skops", "threadpoolctl")
HIDDEN += ("dp_accounting", "flint", "hypothesis", "mpmath", "pytest", "_pytest")

# Imported by one place alone, which does without it where numba is missing, or asks for torch first.
OPTIONAL_MODULES = (
    "pate.privacy.exact.compiled",
    "pate.privacy.exact.compiled_moves",
    "pate.features.simclr",
    "pate.features.distortions",
    "pate.features.reconstruction",
)

HIDE = f"""
import sys

class Hider:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HIDDEN!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hider())
"""


def run_without_extras(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", HIDE + code], cwd=ROOT, capture_output=True, text=True)


def test_require_returns_the_module() -> None:
    assert require("json.decoder", "plot").JSONDecoder().decode("[1]") == [1]


def test_require_hints_at_the_extra() -> None:
    with pytest.raises(MissingExtra) as caught:
        require("no_such_package.module", "plot")
    assert str(caught.value) == "no_such_package is not installed. Install it with: pip install 'pate[plot]'"
    assert isinstance(caught.value, PateError)
    assert isinstance(caught.value, ImportError)
    assert caught.value.__suppress_context__


def test_require_does_not_hide_a_broken_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_installed.py").write_text("import its_own_missing_part\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="its_own_missing_part") as caught:
        require("half_installed", "plot")
    assert not isinstance(caught.value, MissingExtra)


def test_a_hidden_package_is_hinted_at_in_one_line() -> None:
    run = run_without_extras("from pate.extras import require\nrequire('matplotlib.pyplot', 'plot')\n")
    assert run.returncode != 0
    last = run.stderr.splitlines()[-1]
    assert last == "pate.errors.MissingExtra: matplotlib is not installed. Install it with: pip install 'pate[plot]'"


def test_everything_that_is_missing_is_told_at_once() -> None:
    with pytest.raises(MissingExtra) as caught:
        require_all({"no_such_a": "train", "json": "plot", "no_such_b.inner": "ray", "no_such_c": "train"})
    told = "no_such_a, no_such_b.inner, no_such_c are not installed. Install them with: pip install 'pate[train,ray]'"
    assert str(caught.value) == told


def test_every_module_imports_without_extras_or_hints_at_one() -> None:
    code = f"""
import importlib, pkgutil, sys
import pate
from pate.errors import MissingExtra

def fail(name):
    if not isinstance(sys.exception(), MissingExtra):
        raise

for found in pkgutil.walk_packages(pate.__path__, "pate.", onerror=fail):
    if found.name not in {OPTIONAL_MODULES!r} and not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
        except MissingExtra as hint:
            print(found.name, hint)
"""
    run = run_without_extras(code)
    assert run.returncode == 0, run.stderr


def test_the_command_line_answers_without_extras() -> None:
    run = run_without_extras("sys.argv = ['pate', '--help']\nfrom pate.cli import main\nmain()\n")
    assert run.returncode == 0, run.stderr
    assert "account" in run.stdout


def test_every_hint_names_an_extra_that_exists() -> None:
    asked = set()
    for folder in ("pate", "aggregators", "teachers", "student", "experiments"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in {"require", "MissingExtra"}:
                    asked |= {argument.value for argument in node.args[1:2] if isinstance(argument, ast.Constant)}
    assert asked <= EXTRAS.keys()


def test_all_is_the_sum_of_what_a_user_may_want() -> None:
    (everything,) = EXTRAS["all"]
    named = everything.removeprefix("pate[").removesuffix("]").split(",")
    not_for_all = {"ray-serve"}  # brings a program under the GPL
    assert sorted(named) == sorted(EXTRAS.keys() - {"all", "dev"} - not_for_all)
