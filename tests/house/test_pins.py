"""constraints.txt pins what ``make`` installs, and nothing else: no paths, no hosts, no version out of range."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LINES = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
PINS = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in LINES)}
REQUIREMENTS = [*PROJECT["dependencies"], *(item for extra in PROJECT["optional-dependencies"].values() for item in extra)]


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_one_exact_pin(line: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.+!]*", line)


@pytest.mark.parametrize("requirement", [item for item in REQUIREMENTS if not item.startswith("pate[")])
def test_every_requirement_is_pinned_inside_its_range(requirement: str) -> None:
    needed = Requirement(requirement)
    assert needed.specifier.contains(PINS[canonicalize_name(needed.name)])


def test_a_name_is_pinned_once() -> None:
    assert len(PINS) == len(LINES)


def test_the_service_leaves_the_ciphers_to_openssl() -> None:
    """Before 0.48 uvicorn's default was "TLSv1": with TLS 1.2 nothing better than AES-CBC with SHA-1."""
    needed = next(each for each in map(Requirement, PROJECT["optional-dependencies"]["serve"]) if each.name == "uvicorn")
    assert not needed.specifier.contains("0.47.0")
    uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra 'serve')")
    assert uvicorn.Config("app").ssl_ciphers is None
