"""Makes the two pictures of the documentation: `python -m tools.pictures RESULTS`, a folder with a result in it.

The dashboard and the report of the newest result are opened in Chromium, as large as a window.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
SIZE = {"width": 1280, "height": 800}
_COMMAND = (sys.executable, "-m", "merge_bench")
_DRAWN_MS = 3000


def main(results: str) -> None:
    """Write `report.png` and `dashboard.png`."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # or commands are shown with its path
    newest = sorted(Path(results).glob("*/records.jsonl"))[-1].parent
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        report = Path(folder, "report.html")
        subprocess.run([*_COMMAND, "report", newest, "--output", report], check=True)
        _picture(page, report.as_uri(), "report")
        copy = shutil.copytree(newest, Path(folder, "results", newest.name)).parent
        serve = [*_COMMAND, "dashboard", "--results", "results", "--port", "0", "--no-open"]
        with subprocess.Popen(serve, cwd=copy.parent, stderr=subprocess.PIPE, text=True) as server:
            try:
                found = re.search(r"http://\S+/", server.stderr.readline() if server.stderr else "")
                assert found is not None, "the dashboard did not start"
                _picture(page, found[0], "dashboard")
            finally:
                server.terminate()


def _picture(page: Page, url: str, name: str) -> None:
    page.goto(url)
    page.wait_for_timeout(_DRAWN_MS)
    page.screenshot(path=FOLDER / f"{name}.png")


if __name__ == "__main__":
    main(*sys.argv[1:])
