"""The owner's page in a real browser: with the keyboard, on a wide screen and on a telephone, light and dark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import LOW_CONTRAST, NARROW, STICKING_OUT, WIDE, Browser, browsing, needs_browser
from http_cases import ANN, BOB, OWNER, Web, web_service

from pate.aggregators.service.app import owner_page
from pate.errors import LedgerError

TAB, ENTER = "\ue004", "\ue007"
UNNAMED = """
const named = each => each.getAttribute("aria-label") || each.getAttribute("aria-labelledby") || each.textContent.trim() ||
  (each.labels && each.labels.length);
return [...document.querySelectorAll("button, input, meter, svg, [role=region]")]
  .filter(each => !named(each)).map(each => each.outerHTML);
"""


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with web_service(tmp_path_factory.mktemp("owner")) as found:
        for number in range(12):
            assert found.ask(f"k{number}", list(range(number, number + 3))).status_code == 200
        assert found.ask("more than the quota", [90, 91, 92, 93], BOB).status_code == 403
        assert found.ask("within it", [90], BOB).status_code == 200
        yield found


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as found:
        yield found


def text_of(browser: Browser, name: str) -> str:
    return str(browser.run(f"return document.getElementById('{name}').textContent"))


def sign_in(browser: Browser, token: str) -> None:
    """By keyboard alone."""
    browser.run("document.getElementById('token').focus()")
    browser.press(token, ENTER)


def enter(browser: Browser, web: Web, width: int, scheme: str = "light") -> None:
    browser.open(f"{web.url}/owner", width, scheme)
    shown = "!document.getElementById('room').hidden"
    browser.until(f"{shown} || !document.getElementById('door').hidden")
    browser.run(f"if ({shown}) document.getElementById('leave').click()")  # a token of the test before
    sign_in(browser, OWNER)
    browser.until(shown)


def test_the_page_itself_holds_nothing_and_loads_nothing(web: Web) -> None:
    answer = web.get("/owner", None)
    assert answer.text == owner_page()[0]
    assert "unsafe" not in answer.headers["content-security-policy"]
    for word in ("http://", "https://", "innerHTML", "eval(", " style=", " onclick=", "ledger.db"):
        assert word not in answer.text.replace("http://www.w3.org/2000/svg", "")


@needs_browser
@pytest.mark.parametrize(("width", "scheme"), [(WIDE, "light"), (NARROW, "dark")])
def test_the_page_shows_the_budget_and_fits(browser: Browser, web: Web, width: int, scheme: str) -> None:
    browser.log()
    enter(browser, web, width, scheme)
    facts = web.get("/v1/owner/summary", OWNER).json()
    assert f"{100 * facts['remaining_fraction']:.0f}%" in text_of(browser, "gauge-big")
    figures = text_of(browser, "figures")
    assert f"{facts['spent']:.3f}" in figures
    assert f"{facts['answered']}answered" in figures
    assert "1requests refused" in figures
    clients = text_of(browser, "clients")
    assert "ann" in clients
    assert "33%" in clients
    assert browser.run("return document.querySelectorAll('#recent tr').length") == facts["rows"]
    assert browser.run("return document.querySelectorAll('#lines path').length") == 2
    assert str(facts["epsilon"]).rstrip("0").rstrip(".") in text_of(browser, "gauge-caption")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run(STICKING_OUT) == []
    assert browser.run(UNNAMED) == []
    assert browser.run(LOW_CONTRAST) == []
    assert browser.log() == []  # no breach of the content security policy, no error


@needs_browser
def test_the_ledger_is_verified_by_keyboard(browser: Browser, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(browser, web, WIDE)
    browser.until("document.activeElement.id === 'again'")
    browser.press(TAB, TAB)
    assert browser.run("return document.activeElement.id") == "verify"
    browser.press(ENTER)
    browser.until("document.getElementById('verified').textContent.startsWith('Sound')")

    def unsound() -> None:
        raise LedgerError("a row was changed")

    monkeypatch.setattr(web.service, "verify", unsound)
    browser.press(ENTER)
    browser.until("document.getElementById('verified').textContent.includes('unsound')")
    assert browser.run("return document.querySelector('#verified .warn') !== null")


@needs_browser
def test_a_wrong_token_is_told_and_forgotten(browser: Browser, web: Web) -> None:
    enter(browser, web, NARROW)
    assert browser.run("return sessionStorage.length") == 1
    browser.run("document.getElementById('leave').click()")
    assert browser.run("return sessionStorage.length") == 0
    assert browser.run("return document.querySelectorAll('#recent tr').length") == 0
    for token, told in (("pate_wrong", "does not know"), (ANN, "not an owner")):
        sign_in(browser, token)
        browser.until(f"document.getElementById('said').textContent.includes('{told}')")
        assert browser.run("return document.getElementById('room').hidden && sessionStorage.length === 0")
        assert browser.run("return document.activeElement.id") == "token"
    assert browser.run(STICKING_OUT) == []
