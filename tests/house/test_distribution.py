"""The sdist and the wheel built from it hold every file once, and the wheel works on its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAPPING: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
FOLDERS = {"pate": "pate", **MAPPING}
JUNK = shutil.ignore_patterns(".?*", "__pycache__", "*.egg-info", "build", "dist", "htmlcov", "runs")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel that was built from the unpacked sdist."""
    # The blank is part of the test: a path with spaces must do.
    checkout = tmp_path_factory.mktemp("house") / "a checkout"
    shutil.copytree(ROOT, checkout, symlinks=True, ignore=JUNK)
    run = subprocess.run([sys.executable, "-m", "build", "--no-isolation"], cwd=checkout, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return checkout / "dist"


def package_files() -> Counter[tuple[str, str]]:
    """(path in the checkout, path where installed) of every file of the package, once; links are not followed."""
    return Counter(
        (path.relative_to(ROOT).as_posix(), (Path(package.replace(".", "/")) / path.relative_to(ROOT / folder)).as_posix())
        for package, folder in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    )


def test_the_wheel_holds_every_file_once(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = Counter(name for name in archive.namelist() if ".dist-info/" not in name)
    assert names == Counter(installed for _, installed in package_files())


def test_the_sdist_holds_every_source_once(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = Counter(name.partition("/")[2] for name in archive.getnames() if archive.getmember(name).isfile())
    in_folders = {name: count for name, count in names.items() if name.partition("/")[0] in FOLDERS.values()}
    assert in_folders == dict(Counter(source for source, _ in package_files()))
    assert {"LICENSE", "README.md", "CHANGELOG.md", "constraints.txt", "tests/house/test_distribution.py"} <= names.keys()


def test_the_wheel_works_away_from_the_checkout(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = "import pate.aggregators, pate.cli; print(pate.aggregators.__file__); print(pate.GNMax(sigma=40))"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    where, shown = run.stdout.splitlines()
    assert Path(where) == tmp_path / "pate/aggregators/__init__.py"
    assert shown.startswith("GNMax(")
