"""The pages of docs/tutorials whose code prints what they say and draws their figure: running them, and comparing.

``python tests/tutorial_pages.py`` runs them all, writes the figures anew and puts what the code prints into the pages.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

TUTORIALS = Path(__file__).parent.parent / "docs" / "tutorials"
FIGURES = TUTORIALS / "figures"
NAMES = ("neighbours", "composition", "moments-accountant", "group-privacy", "abstention", "publishing-epsilon")

CLOSE = 0.05
"""Points. Numbers of two SVG files may differ by this much: another processor rounds the last digit differently."""

_BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\s*^```text\n(?P<printed>.*?)^```\n)?", flags=re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"(?<![\w.#])-?\d+(?:\.\d+)?(?:e-?\d+)?(?![\w#])")
_IDENTITY = re.compile(r'(?<= id=")[^"]+|(?<=href="#)[^"]+|(?<=url\(#)[^)]+')


def page(name: str) -> Path:
    return TUTORIALS / f"{name}.md"


def run(text: str, name: str) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Run the Python of a page in this folder, block after block: its names, and (said to be printed, printed) of each."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    for block in _BLOCK.finditer(text):
        line = text.count("\n", 0, block.start("code"))
        code = compile("\n" * line + block["code"], f"{name}.md", "exec")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code, names)
        printed.append((block["printed"] or "", out.getvalue()))
    return names, printed


class Ran(NamedTuple):
    """What a page made: its names, what it says that its blocks print and what they do print, and its figure."""

    names: dict[str, Any]
    printed: list[tuple[str, str]]
    figure: str


@cache
def ran(name: str) -> Ran:
    """Run a page, once."""
    with tempfile.TemporaryDirectory() as folder, _inside(folder):
        names, printed = run(page(name).read_text(), name)
        return Ran(names, printed, Path(f"{name}.svg").read_text())


def with_printed(text: str, printed: list[tuple[str, str]]) -> str:
    """The page with what its code prints in place of what it says."""
    news = iter(new for _, new in printed)

    def replaced(block: re.Match[str]) -> str:
        new = next(news)
        return f"```python\n{block['code']}```\n" + (f"\n```text\n{new}```\n" if new else "")

    return _BLOCK.sub(replaced, text)


def maker(svg: str) -> str:
    """The program that drew it, with its version."""
    found = re.search(r"<dc:title>(Matplotlib v[\d.]+)", svg)
    return found[1] if found else ""


def drawn_alike(one: str, other: str) -> bool:
    """Whether two SVG files show the same: equal but for names of parts and for numbers that are :data:`CLOSE`."""
    shapes, numbers = zip(*(_parts(svg) for svg in (one, other)), strict=True)
    return shapes[0] == shapes[1] and all(abs(a - b) <= CLOSE for a, b in zip(*numbers, strict=True))


def _parts(svg: str) -> tuple[str, list[float]]:
    order: dict[str, str] = {}
    # A part's name holds a digest of its numbers; the order of appearance says the same.
    text = _IDENTITY.sub(lambda name: f"part{order.setdefault(name[0], chr(0x4E00 + len(order)))}", svg)
    return _NUMBER.sub("0", text), [float(number) for number in _NUMBER.findall(text)]


@contextlib.contextmanager
def _inside(folder: str) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def main(names: list[str]) -> None:
    for name in names or NAMES:
        _, printed, figure = ran(name)
        (FIGURES / f"{name}.svg").write_text(figure)
        page(name).write_text(with_printed(page(name).read_text(), printed))
        print(f"{name}: written")


if __name__ == "__main__":
    main(sys.argv[1:])
