"""The report in a real browser: it fits a telephone, asks the network for nothing and breaks none of its own rules."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from result_cases import CASES, LEDGER, RECIPE

from pate.experiments.reports.page import OWNER, PUBLIC
from pate.experiments.reports.writing import write_all

DRIVER, BROWSER = shutil.which("chromedriver"), shutil.which("chromium")
pytestmark = pytest.mark.skipif(DRIVER is None or BROWSER is None, reason="chromium and chromedriver are not on the PATH")

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars"),
)
WIDE, NARROW = 1200, 360
# Boxes that scroll within themselves may hold more than is seen; nothing else may stick out of the page.
STICKING_OUT = """
const wide = document.documentElement.clientWidth;
return [...document.querySelectorAll("body *")]
  .filter(each => !each.parentElement.closest(".scroll, pre") && each.getBoundingClientRect().right > wide + 1)
  .map(each => each.tagName + " " + each.textContent.slice(0, 40));
"""


class Browser:
    """As much of the WebDriver protocol (W3C) as these tests need, without another package."""

    def __init__(self, place: str, profile: Path) -> None:
        self._place = place
        options = {"binary": BROWSER, "args": [*FLAGS, f"--user-data-dir={profile}"]}
        asked = {"browserName": "chrome", "goog:chromeOptions": options}
        asked["goog:loggingPrefs"] = {"performance": "ALL", "browser": "ALL"}
        session = self._send("POST", "/session", {"capabilities": {"alwaysMatch": asked}})
        self._place = f"{place}/session/{session['sessionId']}"

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._place + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def devtools(self, command: str, **parameters: Any) -> Any:
        return self._send("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, page: Path, width: int, scheme: str = "light") -> None:
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._send("POST", "/url", {"url": page.as_uri()})

    def run(self, script: str) -> Any:
        return self._send("POST", "/execute/sync", {"script": script, "args": []})

    def log(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._send("POST", "/se/log", {"type": kind})
        return found

    def picture(self) -> bytes:
        taken = self.devtools("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        return base64.b64decode(taken["data"])

    def close(self) -> None:
        self._send("DELETE", "")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The driver picks a free port itself and tells it."""
    log = tmp_path_factory.mktemp("driver") / "log"
    assert DRIVER is not None
    with log.open("w") as out, subprocess.Popen([DRIVER, "--port=0"], stdout=out, stderr=subprocess.STDOUT) as driver:
        try:
            found = Browser(f"http://127.0.0.1:{_port(log, driver)}", tmp_path_factory.mktemp("profile"))
            try:
                yield found
            finally:
                found.close()
        finally:
            driver.terminate()


def _port(log: Path, driver: subprocess.Popen[bytes]) -> int:
    said = "started successfully on port "
    for _ in range(200):
        text = log.read_text()
        if said in text:
            return int(text.partition(said)[2].split(".")[0])
        assert driver.poll() is None, text
        time.sleep(0.05)
    raise AssertionError(f"chromedriver did not start: {log.read_text()}")


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
        browser.open(page, width)
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
    browser.open(folders["own data"] / OWNER, WIDE)
    assert browser.run("return document.querySelector('h1').textContent") == "Ward, <script>alert(1)</script>"
    assert browser.run("return document.scripts.length") == 0


def test_letters_stand_out_in_both_schemes(browser: Browser, folders: dict[str, Path]) -> None:
    """WCAG 2.1 AA: contrast of at least 4.5 to 1, for every element with text of its own."""
    for scheme in ("light", "dark"):
        browser.open(folders["unverified"] / OWNER, WIDE, scheme)
        assert browser.run(_LOW_CONTRAST) == []


_LOW_CONTRAST = """
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
return [...document.querySelectorAll("body *")]
  .filter(each => [...each.childNodes].some(node => node.nodeType === 3 && node.textContent.trim()))
  .map(each => {
    const [a, b] = [light(parts(getComputedStyle(each).color)), light(behind(each))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), each.tagName + " " + each.textContent.slice(0, 40)];
  })
  .filter(([ratio]) => ratio < 4.5);
"""
