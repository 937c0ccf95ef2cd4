"""A real Chromium, driven over its DevTools protocol; what it complains of, and pictures for a person to look at."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
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
PICTURES = "SCREENSHOTS"
"""Environment variable: the folder for pictures; without it they lie in pytest's temporary folder."""

_taken: list[Path] = []


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _taken:
        terminalreporter.write_line(f"{len(_taken)} screenshots in {_taken[0].parent}")


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots are kept."""
    named = os.environ.get(PICTURES)
    folder = Path(named) if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser. Of a module, because other tests cannot run an event loop while it is there."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class Window:
    """A page, and what it complained of: errors of the console and of scripts, dialogs, requests to other machines."""

    def __init__(self, page: Any, pictures: Path) -> None:
        self.page = page
        self.complaints: list[str] = []
        self._pictures = pictures
        page.set_default_timeout(PATIENCE)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        page.on("dialog", self._dialog)
        page.on("request", self._request)

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
        """Choose a tab of the view."""
        self.page.get_by_role("button", name=tab, exact=True).click()

    def slow_down(self, times: int) -> None:
        """Let the page compute so many times slower, as on a slow or busy machine."""
        self.page.context.new_cdp_session(self.page).send("Emulation.setCPUThrottlingRate", {"rate": times})

    def wait_for_text(self, text: str) -> None:
        """Wait until the page shows `text` somewhere."""
        self.page.get_by_text(text).filter(visible=True).first.wait_for()

    def wait_until(self, script: str, *, patience: float = PATIENCE / 1000) -> None:
        """Wait until `script`, an expression, is true in the page; asked from outside, as its policy forbids `eval`."""
        end = time.monotonic() + patience
        while not self.page.evaluate(script):
            assert time.monotonic() < end, f"not true in time: {script}"
            self.page.wait_for_timeout(50)

    def picture(self, name: str, *, full: bool = True) -> None:
        """Keep a screenshot."""
        path = self._pictures / f"{name}.png"
        self.page.screenshot(path=path, full_page=full)
        _taken.append(path)


Open = Callable[..., Window]


@pytest.fixture
def window(chromium: Any, pictures: Path, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens pages; at the end none may have complained of anything. What each showed last is kept as a picture."""
    opened: list[Window] = []

    def make(url: str, *, width: int = 1400, scheme: str = "light") -> Window:
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        found = Window(context.new_page(), pictures)
        opened.append(found)
        found.page.goto(url)
        return found

    yield make
    complaints = [complaint for one in opened for complaint in one.complaints]
    for number, one in enumerate(opened):
        one.picture(f"last-{re.sub(r'[^a-z0-9]+', '-', request.node.name)}-{number}")
        one.page.context.close()
    assert complaints == []


@pytest.fixture(scope="session")
def earlier_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small real run, made once, to compare others with."""
    results = tmp_path_factory.mktemp("earlier")
    command = [sys.executable, "-m", "merge_bench", "--chunk", "2e4", "--iterations", "3", "--workers", "2"]
    done = subprocess.run(
        [*command, "--results", str(results)],
        capture_output=True, text=True, cwd=ROOT, env=environment(results), timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (folder,) = results.glob("*-default-*")
    return folder


@contextmanager
def started(
    command: list[str], temp: Path, log: Path, cwd: Path = ROOT, **extra: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A server as a process that ends with the block."""
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
