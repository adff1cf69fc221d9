"""Five folders, one import package: the links, the mapping, the package list and the directories say the same."""

from __future__ import annotations

import fnmatch
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SETUPTOOLS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
MAPPING: dict[str, str] = SETUPTOOLS["package-dir"]
FOLDERS = {"pate": "pate", **MAPPING}


def directories(folder: str) -> list[Path]:
    """The folder and everything below it; links are not followed, so that pate/ does not contain the other four."""
    below = (path for path in (ROOT / folder).rglob("*") if path.is_dir() and not path.is_symlink())
    return [ROOT / folder, *(path for path in below if path.name != "__pycache__")]


def package_name(package: str, folder: str, directory: Path) -> str:
    return ".".join([package, *directory.relative_to(ROOT / folder).parts])


def test_links_and_mapping_agree() -> None:
    links = {f"pate.{path.name}": path.readlink().as_posix() for path in (ROOT / "pate").iterdir() if path.is_symlink()}
    assert links == {package: f"../{folder}" for package, folder in MAPPING.items()}
    assert all(package == f"pate.{folder}" for package, folder in MAPPING.items())


def test_package_list_and_directories_agree() -> None:
    found = [
        package_name(package, folder, directory)
        for package, folder in FOLDERS.items()
        for directory in directories(folder)
        if (directory / "__init__.py").exists()
    ]
    assert sorted(SETUPTOOLS["packages"]) == sorted(found)


def test_no_module_lies_outside_a_package() -> None:
    stray = [
        path.relative_to(ROOT)
        for folder in FOLDERS.values()
        for directory in directories(folder)
        for path in directory.glob("*.py")
        if not (directory / "__init__.py").exists()
    ]
    assert stray == []


def test_every_data_file_is_packaged() -> None:
    patterns = SETUPTOOLS["package-data"]["*"]
    left_behind = [
        path.relative_to(ROOT)
        for folder in FOLDERS.values()
        for directory in directories(folder)
        for path in directory.iterdir()
        if path.is_file()
        and path.suffix not in {".py", ".pyc"}
        and not any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns)
    ]
    assert left_behind == []


@pytest.mark.parametrize("folder", sorted(MAPPING.values()))
def test_a_folder_refuses_its_bare_name(folder: str) -> None:
    run = subprocess.run([sys.executable, "-c", f"import {folder}"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode != 0
    assert f"ImportError: Import this package as pate.{folder}, not as {folder}" in run.stderr


@pytest.mark.parametrize("folder", sorted(MAPPING.values()))
def test_a_folder_imports_under_its_full_name(folder: str) -> None:
    code = f"import sys, pate.{folder}; assert '{folder}' not in sys.modules"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
