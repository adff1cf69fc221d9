"""The tutorials about what an epsilon means print what they say, and draw the figures that they show."""

from __future__ import annotations

import re

import pytest
from tutorial_pages import FIGURES, NAMES, TUTORIALS, drawn_alike, maker, page, ran, run, with_printed

for package in ("matplotlib", "dp_accounting"):
    pytest.importorskip(package, reason=f"{package} is not installed (extras 'plot' and 'dpsgd')")

NOT_PRINTED = {"moments-accountant": {"24.22", "2.55", "0.02"}}
"""Numbers that a page quotes from a paper, and how near it comes to them: test_tutorial_claims.py compares."""


@pytest.mark.parametrize("name", NAMES)
def test_a_page_prints_what_it_says(name: str) -> None:
    printed = ran(name).printed
    assert any(new for _, new in printed)
    for said, new in printed:
        assert said == new


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_between_the_code_are_printed_by_it(name: str) -> None:
    printed = ran(name).printed
    prose = re.sub(r"^```.*?^```$", "", page(name).read_text(), flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"\]\([^)]*\)|arXiv:[\d.]+", "", prose)
    prose = re.sub(r"(Theorem|Proposition|Lemma)s? [\d.]+(( and|,) [\d.]+)*", "", prose)
    quoted = set(re.findall(r"\d+\.\d+", prose))
    known = set(re.findall(r"\d+\.\d+", page(name).read_text().split("```python", 1)[1].split("```", 1)[0]))  # its parameters
    computed = {number for _, new in printed for number in re.findall(r"\d+\.\d+", new)}
    assert quoted - known - computed == NOT_PRINTED.get(name, set())


@pytest.mark.parametrize("name", NAMES)
def test_the_figure_in_the_page_is_the_one_that_its_code_draws(name: str) -> None:
    kept = (FIGURES / f"{name}.svg").read_text()
    assert re.search(rf"!\[[^\]]{{80,}}\]\(figures/{name}\.svg\)", page(name).read_text()), "no figure, or no words for it"
    drawn = ran(name).figure
    if maker(drawn) != maker(kept):
        pytest.skip(f"the figure was drawn by {maker(kept)}, which places things a little differently from {maker(drawn)}")
    assert drawn_alike(kept, drawn), "run: python tests/tutorial_pages.py"


def test_a_figure_with_another_number_is_not_alike() -> None:
    svg = (FIGURES / "composition.svg").read_text()
    path = re.search(r'<path d="M ([\d.]+) ', svg)
    assert path
    moved = svg.replace(path[0], path[0].replace(path[1], str(float(path[1]) + 0.2)))
    nearly = svg.replace(path[0], path[0].replace(path[1], str(float(path[1]) + 0.001)))
    renamed = re.sub(r'(id="|url\(#)p(?=[0-9a-f]{10})', r"\1q", svg)
    assert svg not in (moved, nearly, renamed)
    assert drawn_alike(svg, nearly)
    assert drawn_alike(svg, renamed)
    assert not drawn_alike(svg, moved)
    assert not drawn_alike(svg, svg.replace("#0072b2", "#0072b3"))
    assert not drawn_alike(svg, svg.replace("</svg>", "<path/></svg>"))


def test_what_is_printed_goes_back_into_the_page() -> None:
    text = "a\n\n```python\nprint(1)\n```\n\n```text\n0\n```\n\n```python\nx = 2\n```\n\nb\n"
    _, printed = run(text, "x")
    assert printed == [("0\n", "1\n"), ("", "")]
    assert with_printed(text, printed) == text.replace("0\n", "1\n")


def test_the_index_lists_every_tutorial_once() -> None:
    index = (TUTORIALS / "README.md").read_text()
    listed = re.findall(r"^(\d+)\. \[([\w-]+\.md)\]\(\2\): \S", index, flags=re.MULTILINE)
    assert [int(place) for place, _ in listed] == list(range(1, len(listed) + 1))
    assert sorted(name for _, name in listed) == sorted(
        each.name for each in TUTORIALS.glob("*.md") if each.name != "README.md"
    )
    order = [name.removesuffix(".md") for _, name in listed]
    assert [name for name in order if name in NAMES] == list(NAMES)


def test_figures_that_no_page_shows_are_not_kept() -> None:
    assert {each.stem for each in FIGURES.iterdir()} == set(NAMES)
