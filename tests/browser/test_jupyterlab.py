"""The same view in JupyterLab: the shipped notebook, opened and run as a person does it."""

from __future__ import annotations

import shutil
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.conftest import Open, Window, started
from tests.browser.scenario import compare_with_an_earlier_run, start_a_run, watch_it_to_its_end
from tests.helpers.runs import ROOT
from tests.service.services import RealService


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def answers(url: str, log: Path) -> None:
    end = time.monotonic() + 180
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(url, timeout=30).close()
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """JupyterLab over a copy of the notebooks, without results: the address of its notebooks, and the folder."""
    tmp_path = tmp_path_factory.mktemp("lab")
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks")
    port, log = free_port(), tmp_path / "lab.log"
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}",
        "--IdentityProvider.token=", "--ServerApp.password=", "--ServerApp.root_dir=.",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.news_url=",
    ]  # fmt: skip
    themes = tmp_path / "jupyter/CONFIG/lab/user-settings/@jupyterlab/apputils-extension/themes.jupyterlab-settings"
    themes.parent.mkdir(parents=True)
    themes.write_text('{"adaptive-theme": true}')  # dark where the browser is
    homes = {f"JUPYTER_{name}_DIR": str(tmp_path / "jupyter" / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    with started(command, tmp_path, log, cwd=tmp_path, **homes):
        url = f"http://127.0.0.1:{port}/lab"
        answers(url, log)
        yield f"{url}/tree/notebooks", tmp_path


def run_all_cells(view: Window) -> None:
    page = view.page
    page.locator(".jp-Notebook .jp-Cell").first.wait_for()
    page.get_by_text("| Idle").filter(visible=True).first.wait_for()  # earlier, it asks for a kernel
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    page.get_by_role("button", name="Live", exact=True).wait_for()


def test_a_run_is_started_from_the_notebook_watched_to_its_end_and_compared(
    window: Open, lab: tuple[str, Path]
) -> None:
    url, folder = lab
    view = window(f"{url}/dashboard.ipynb?reset")
    run_all_cells(view)
    assert view.page.locator("[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
    assert not (folder / "results").exists()
    start_a_run(view)
    watch_it_to_its_end(view)
    view.picture("lab-live", full=False)
    compare_with_an_earlier_run(view, folder / "results")
    view.picture("lab-results", full=False)


def test_the_queue_of_a_service_is_seen_in_the_notebook(lab: tuple[str, Path], window: Open) -> None:
    url, folder = lab
    service = RealService(folder / "service")
    try:
        job = {"command": "run", "options": {"chunk": "2e4", "iterations": 4, "workers": 2, "link-rounds": 0}}
        number = service.add(job)
        book = folder / "notebooks" / "dashboard.ipynb"
        call = f"show('../service/results', queue=Client('{service.url}', '{service.token}'))"
        imported = "from merge_bench.service.client import Client\\n"
        text = book.read_text().replace('show(\\"../results\\")', imported + call)
        book.with_name("queue.ipynb").write_text(text)
        view = window(f"{url}/queue.ipynb?reset")
        run_all_cells(view)
        view.turn_to("Queue")
        view.wait_for_text(f"{number} done")
        view.wait_for_text("Records: ")
        view.picture("lab-queue", full=False)
        view.page.get_by_role("button", name=f"Result {number}").click()
        view.wait_for_text("Throughput of every iteration")
        view.turn_to("History")
        view.wait_for_text("15 results are needed to find a shift")
        view.picture("lab-history", full=False)
        other = service.add({**job, "options": {**job["options"], "iterations": 100_000}})
        view.turn_to("Queue")
        view.page.get_by_role("button", name=f"Cancel {other}").click()
        view.wait_for_text(f"{other} cancelled")
        assert service.stop() == 0
    finally:
        service.close()
