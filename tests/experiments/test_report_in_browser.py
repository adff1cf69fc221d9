"""The report in a real browser: it fits a telephone, asks the network for nothing and breaks none of its own rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import LOW_CONTRAST, NARROW, STICKING_OUT, WIDE, Browser, browsing, needs_browser
from result_cases import CASES, LEDGER, RECIPE

from pate.experiments.reports.page import OWNER, PUBLIC
from pate.experiments.reports.writing import write_all

pytestmark = needs_browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for name, case in CASES.items():
        folder = made[name] = tmp_path_factory.mktemp("run")
        (folder / "recipe.toml").write_text(RECIPE + f"# {'a long line ' * 40}\n")
        (folder / "ledger.json").write_text(json.dumps(LEDGER))
        write_all(case(), folder)
    return made


@pytest.mark.parametrize("file", [OWNER, PUBLIC])
@pytest.mark.parametrize("name", CASES)
def test_a_page_fits_its_screen_and_asks_for_nothing(browser: Browser, folders: dict[str, Path], name: str, file: str) -> None:
    page = folders[name] / file
    for width in (WIDE, NARROW):
        browser.log("performance")  # what was before
        browser.open(page.as_uri(), width)
        assert browser.run("document.querySelectorAll('details').forEach(each => each.open = true); return innerWidth") == width
        assert browser.run("return document.documentElement.scrollWidth") <= width
        assert browser.run(STICKING_OUT) == []
        assert browser.run("return [...document.images].filter(each => !each.naturalWidth).length") == 0
        events = [json.loads(entry["message"])["message"] for entry in browser.log("performance")]
        sent = [each["params"] for each in events if each["method"] == "Network.requestWillBeSent"]
        # By this document: the browser's own start page may still be loading.
        asked = [each["request"]["url"] for each in sent if each["documentURL"] == page.as_uri()]
        assert page.as_uri() in asked  # else the log would prove nothing
        assert [url for url in asked if url != page.as_uri() and not url.startswith("data:")] == []
    assert browser.log("browser") == []  # no breach of the content security policy, no error


def test_a_script_in_a_title_is_text(browser: Browser, folders: dict[str, Path]) -> None:
    browser.open((folders["own data"] / OWNER).as_uri(), WIDE)
    assert browser.run("return document.querySelector('h1').textContent") == "Ward, <script>alert(1)</script>"
    assert browser.run("return document.scripts.length") == 0


def test_letters_stand_out_in_both_schemes(browser: Browser, folders: dict[str, Path]) -> None:
    """WCAG 2.1 AA: contrast of at least 4.5 to 1, for every element with text of its own."""
    for scheme in ("light", "dark"):
        browser.open((folders["unverified"] / OWNER).as_uri(), WIDE, scheme)
        assert browser.run(LOW_CONTRAST) == []
