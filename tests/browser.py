"""A real browser for tests: Chromium through its driver, and what they ask of every page."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

DRIVER, BROWSER = shutil.which("chromedriver"), shutil.which("chromium")
needs_browser = pytest.mark.skipif(DRIVER is None or BROWSER is None, reason="chromium and chromedriver are not on the PATH")

WIDE, NARROW = 1200, 360
# Boxes that scroll within themselves may hold more than is seen; nothing else may stick out of the page.
STICKING_OUT = """
const wide = document.documentElement.clientWidth;
return [...document.querySelectorAll("body *")]
  .filter(each => !each.parentElement.closest(".scroll, pre, svg") && each.getBoundingClientRect().right > wide + 1)
  .map(each => each.tagName + " " + each.textContent.slice(0, 40));
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


def wait_for(what: Any, name: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"{name} did not come in {seconds} s"
        time.sleep(0.01)


FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars"),
)


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

    def open(self, url: str, width: int, scheme: str = "light") -> None:
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._send("POST", "/url", {"url": url})

    def run(self, script: str) -> Any:
        return self._send("POST", "/execute/sync", {"script": script, "args": []})

    def until(self, script: str) -> None:
        wait_for(lambda: self.run(f"return Boolean({script})"), script)

    def press(self, *keys: str) -> None:
        """On the keyboard, one after the other; text is typed."""
        letters = [letter for key in keys for letter in (key if len(key) > 1 and key[0] != "\ue000" else [key])]
        actions = [{"type": kind, "value": letter} for letter in letters for kind in ("keyDown", "keyUp")]
        self._send("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def log(self, kind: str = "browser") -> list[dict[str, Any]]:
        """What was logged since the last call: "browser" (errors, breaches of policy) or "performance" (requests)."""
        found: list[dict[str, Any]] = self._send("POST", "/se/log", {"type": kind})
        return found

    def picture(self) -> bytes:
        taken = self.devtools("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        return base64.b64decode(taken["data"])

    def close(self) -> None:
        self._send("DELETE", "")


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """The driver picks a free port itself and tells it."""
    assert DRIVER is not None
    assert BROWSER is not None
    log = folder / "driver.log"
    with log.open("w") as out, subprocess.Popen([DRIVER, "--port=0"], stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            said = "started successfully on port "
            wait_for(lambda: said in log.read_text(), "chromedriver")
            port = int(log.read_text().partition(said)[2].split(".")[0])
            found = Browser(f"http://127.0.0.1:{port}", folder / "profile")
            try:
                yield found
            finally:
                found.close()
        finally:
            process.terminate()
