"""``import pate`` is light, and what it promises is there."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import pate

ROOT = Path(__file__).parents[2]
HEAVY = ("fastapi", "matplotlib", "numba", "psycopg", "ray", "scipy", "sklearn", "sqlalchemy", "torch", "torchvision")


def loaded_after(statement: str) -> set[str]:
    """Top-level packages that a fresh interpreter has loaded after the statement."""
    code = f"import sys\n{statement}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.splitlines()[-1].split())


def test_importing_pate_loads_nothing_heavy() -> None:
    assert loaded_after("import pate").isdisjoint({*HEAVY, "numpy"})


def test_the_command_line_loads_nothing_heavy_to_show_its_help() -> None:
    show_help = "import contextlib, io\nfrom pate.cli import main\nsys.argv = ['pate', '--help']\n"
    show_help += "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n    main()"
    assert loaded_after(show_help).isdisjoint({"fastapi", "matplotlib", "numba", "ray", "sklearn", "torch", "torchvision"})


@pytest.mark.parametrize("module", ["pate.privacy.curve", "pate.aggregators", "pate.ledger", "pate.votes"])
def test_the_core_loads_no_training_library_and_no_cluster(module: str) -> None:
    assert loaded_after(f"import {module}").isdisjoint({"fastapi", "matplotlib", "ray", "sklearn", "torch", "torchvision"})


@pytest.mark.parametrize("name", pate.__all__)
def test_every_promised_name_is_there(name: str) -> None:
    assert getattr(pate, name) is not None
    assert name in dir(pate)


def test_the_three_lists_of_names_agree() -> None:
    """The type checker's imports, the lazy table and ``__all__``."""
    tree = ast.parse((ROOT / "pate/__init__.py").read_text())
    for_type_checkers = {alias.name: node.module for node in ast.walk(tree) if _is_own_import(node) for alias in node.names}
    assert for_type_checkers == pate._HOME
    assert sorted(pate.__all__) == sorted([*pate._HOME, "__version__"])


def _is_own_import(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pate.")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'GMax'"):
        _ = pate.GMax
    assert not hasattr(pate, "__path_to_nowhere__")


def test_version_is_the_installed_one() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert pate.__version__ == declared


def test_version_of_a_bare_checkout_is_not_invented(tmp_path: Path) -> None:
    (tmp_path / "pate").symlink_to(ROOT / "pate")
    # -S: no site-packages, so no metadata of an installed pate.
    bare = [sys.executable, "-S", "-c", "import pate; print(pate.__version__)"]
    run = subprocess.run(bare, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "0+uninstalled"
