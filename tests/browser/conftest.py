"""A real Chromium, driven over its DevTools protocol: its complaints, and screenshots to look at."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.runs import ROOT, environment

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE = 60_000.0  # ms: far beyond what anything takes, for a machine that is busy
CONTRAST = Path(__file__).with_name("contrast.js").read_text()
PICTURES = os.environ.get("SCREENSHOTS")
"""The folder for screenshots; without the environment variable none are taken, because they cost seconds."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser. Its scope is a module, because other tests cannot run an event loop while it is open."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class Window:
    """A page with its complaints: errors of the console and of scripts, dialogs, requests to other machines."""

    def __init__(self, chromium: Any, url: str) -> None:
        page = chromium.new_context(viewport={"width": 1400, "height": 900}, color_scheme="light").new_page()
        self.page = page
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        page.on("dialog", self._dialog)
        page.on("request", self._request)
        page.goto(url)

    def _console(self, message: Any) -> None:
        if message.type == "error":
            self.complaints.append(f"console: {message.text} ({message.location.get('url')})")

    def _dialog(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Any) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:")):
            self.complaints.append(f"request: {request.url}")

    def turn_to(self, tab: str) -> None:
        """Open a tab of the view."""
        self.page.get_by_role("button", name=tab, exact=True).click()

    def slow_down(self, times: int) -> None:
        """Make the page compute so many times slower, as on a slow or busy machine."""
        self.page.context.new_cdp_session(self.page).send("Emulation.setCPUThrottlingRate", {"rate": times})

    def wait_for_text(self, text: str) -> None:
        """Wait until the page shows `text` somewhere; if it never does, fail with what it shows."""
        self.wait_for(self.page.get_by_text(text).filter(visible=True).first, repr(text))

    def wait_for(self, element: Any, name: str) -> None:
        """Wait until the page shows `element`; if it never does, fail with its `name` and what the page shows."""
        try:
            element.wait_for()
        except sync_api.TimeoutError:
            raise AssertionError(f"{name} is not in\n{self.page.locator('body').aria_snapshot()}") from None

    def wait_until(self, script: str, *, patience: float = PATIENCE / 1000) -> None:
        """Wait until `script`, an expression, is true in the page. It is polled, because the policy forbids `eval`."""
        end = time.monotonic() + patience
        while not self.page.evaluate(script):
            assert time.monotonic() < end, f"not true in time: {script}"
            self.page.wait_for_timeout(50)

    def edge_of(self, element: Any) -> float:
        """The right edge of an element, in pixels; waits while the page draws it anew, because then it has none."""
        until = time.monotonic() + PATIENCE / 1000
        while (box := element.bounding_box()) is None:
            assert time.monotonic() < until, f"{element} is never drawn"
            self.page.wait_for_timeout(50)
        return float(box["x"] + box["width"])

    def picture(self, name: str, *, full: bool = True) -> None:
        """Take a screenshot in light and one in dark."""
        for scheme in ("dark", "light") if PICTURES else ():
            self.page.emulate_media(color_scheme=scheme)
            self.page.wait_for_timeout(2000)  # JupyterLab loads its theme
            self.page.screenshot(path=Path(PICTURES or "") / f"{name}-{scheme}.png", full_page=full)

    def check(self, test: str) -> None:
        """Fail if the page complained of anything since the last check; take a picture of what it shows."""
        complaints, self.complaints = self.complaints, []
        self.picture(f"last-{re.sub(r'[^a-z0-9]+', '-', test)}")  # its server may have ended
        assert complaints == []


Open = Callable[[str], Window]


@pytest.fixture
def window(chromium: Any, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens a page in a window of its own, and checks it at the end."""
    opened: list[Window] = []

    def make(url: str) -> Window:
        opened.append(Window(chromium, url))
        return opened[-1]

    yield make
    for one in opened:
        one.check(request.node.name)
        one.page.context.close()


@contextmanager
def started(
    command: list[str], temp: Path, log: Path, cwd: Path = ROOT, **extra: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A server: a process that ends with the block."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=environment(temp, extra),
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
