"""The owner's page in a real browser: with the keyboard, on a wide screen and on a telephone, light and dark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from http_cases import ANN, BOB, OWNER, Browser, Web, browsing, web_service

from pate.aggregators.service.app import owner_page
from pate.errors import LedgerError

DRIVER, BROWSER = shutil.which("chromedriver"), shutil.which("chromium")
with_browser = pytest.mark.skipif(DRIVER is None or BROWSER is None, reason="chromium and chromedriver are not on the PATH")

WIDE, NARROW = 1200, 360
TAB, ENTER = "\ue004", "\ue007"
STICKING_OUT = """
const wide = document.documentElement.clientWidth;
return [...document.querySelectorAll("body *")]
  .filter(each => !each.parentElement.closest(".scroll, svg") && each.getBoundingClientRect().right > wide + 1)
  .map(each => each.tagName + " " + each.textContent.slice(0, 40));
"""
UNNAMED = """
const named = each => each.getAttribute("aria-label") || each.getAttribute("aria-labelledby") || each.textContent.trim() ||
  (each.labels && each.labels.length);
return [...document.querySelectorAll("button, input, meter, svg, [role=region]")]
  .filter(each => !named(each)).map(each => each.outerHTML);
"""
# WCAG 2.1 AA: 4.5 to 1 for every element that shows text of its own.
LOW_CONTRAST = """
const parts = colour => colour.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const behind = each => {
  for (; each; each = each.parentElement) {
    const colour = parts(getComputedStyle(each).backgroundColor);
    if (colour.length < 4 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
};
return [...document.querySelectorAll("body *:not(script):not(style):not(title):not(noscript)")]
  .filter(each => each.getClientRects().length)
  .filter(each => [...each.childNodes].some(node => node.nodeType === 3 && node.textContent.trim()))
  .map(each => {
    const style = getComputedStyle(each), ink = each.ownerSVGElement ? style.fill : style.color;
    const [a, b] = [light(parts(ink)), light(behind(each))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), each.tagName + " " + each.textContent.slice(0, 40)];
  })
  .filter(([ratio]) => ratio < 4.5);
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
    assert DRIVER is not None
    assert BROWSER is not None
    with browsing(DRIVER, BROWSER, tmp_path_factory.mktemp("browser")) as found:
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


@with_browser
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


@with_browser
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


@with_browser
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
