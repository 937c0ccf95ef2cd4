"""The pages of `report` and of `serve` in a real browser, and the view in JupyterLab.

The notebook is the shipped one, opened and run as a person does it.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import RECORDS
from merge_bench.report.page import html
from merge_bench.report.page.build import PublishedReferences, build_report
from tests.browser.conftest import CONTRAST, PICTURES, Open, Window, started
from tests.browser.scenario import POINTS, compare_with_an_earlier_run, log_in, start_a_run, watch_it_to_its_end
from tests.helpers.runs import ROOT
from tests.service.services import RealService, ends_well

JOB = {"command": "run", "options": {"chunk": "2e4", "iterations": 4, "workers": 1, "link-rounds": 0}}
REFUSED = {"command": "run", "options": {"exchange": "dask", "pipeline": "on"}}
"""A job that ends at once, with status 2."""
BEFORE, AFTER = 20, 5
ONCE_EACH = (("light", 1400), ("dark", 900))
CAMPAIGNS = Path(__file__).parents[1] / "data" / "campaigns"


@pytest.mark.parametrize(
    "kind", [*(pytest.param(kind, marks=pytest.mark.soak) for kind in ("run", "sweep", "p2p")), "tune"]
)
def test_the_contents_stay_in_sight_and_the_page_fits_the_window(kind: str, tmp_path: Path, window: Open) -> None:
    path = tmp_path / "report.html"
    path.write_text(html.render_report(build_report([read_campaign(CAMPAIGNS / kind)], PublishedReferences(), None)))
    view = window(path.as_uri())
    view.complaints.clear()  # the page itself is a file, which no server serves
    page = view.page
    contents = page.get_by_role("navigation", name="Contents")
    for scheme, width in itertools.product(("light", "dark"), (1400, 900)) if PICTURES else ONCE_EACH:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        view.wait_until("document.documentElement.scrollWidth <= window.innerWidth")
        assert page.evaluate(CONTRAST) == {}
        page.evaluate("window.scrollTo(0, 0)")
        view.picture(f"report-{kind}-{scheme}-{width}")
        page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
        view.wait_until("document.querySelector('nav').getBoundingClientRect().top >= 0")
        box = contents.bounding_box()
        assert box is not None
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 900
        assert contents.get_by_role("link", name="Environment").is_visible() is (width == 1400)
    contents.get_by_text("Contents").click()
    contents.get_by_role("link", name="Definitions").click()
    page.get_by_text("A null key matches nothing.").wait_for()  # the link opened what was folded
    assert not contents.get_by_role("link", name="Definitions").is_visible()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    found = RealService(tmp_path_factory.mktemp("service"))
    with ends_well(found):
        yield found


def job(view: Window, number: int, state: str) -> Any:
    """The row of a job in this state."""
    return view.page.get_by_role("row", name=re.compile(f"^{number} {state} "))


def write_nights(results: Path, name: str) -> None:
    """Nights before and after the result `name`; before it, merges took ten times as long."""
    head, *lines = (results / name / RECORDS).read_text().splitlines()
    first = json.loads(head)
    for night in (*range(-BEFORE, 0), *range(1, AFTER)):
        records = [first | {"time": first["time"] + 86400 * night}, *map(json.loads, lines)]
        for record in records:
            if night < 0 and record["kind"] == "iteration":
                record["wall_seconds"] *= 10
        folder = results / f"{'before' if night < 0 else 'x-after'}-{abs(night)}"
        folder.mkdir()
        (folder / RECORDS).write_text("".join(f"{json.dumps(record)}\n" for record in records))


def measured(service: RealService) -> int:
    """The number of a job that is done; there are results of nights before and after its own."""
    done = [job["id"] for job in service.ask("GET", "/api/jobs")[1]["jobs"] if job["state"] == "done"]
    number = int(done[0]) if done else service.add(JOB)
    result = service.until(number, "done")["result"]
    if len(list(service.results.iterdir())) < BEFORE:
        write_nights(service.results, result)
    return number


def test_a_job_is_seen_in_the_queue_and_live_and_its_shift_leads_to_both_results(
    window: Open, service: RealService
) -> None:
    view = window(service.url)
    view.page.get_by_label("Your token for this service").fill("guessed")
    view.page.get_by_role("button", name="Log in").click()
    view.wait_for_text("The service does not have this token.")
    assert [each for each in view.complaints if "401" not in each] == []
    view.complaints.clear()
    log_in(view, service.token)
    view.turn_to("Run")
    view.wait_for_text("No job is running, none waits.")
    number = service.add(JOB)
    view.wait_for_text(f"Job {number} is running")
    view.page.get_by_role("button", name=f"Cancel {number}").wait_for()
    view.turn_to("Live")
    view.wait_for_text("Throughput of each iteration")
    view.wait_until(f"{POINTS} === 4")
    view.wait_for_text("4 of 4")
    view.wait_for_text("finished successfully")
    view.wait_for_text("2 checks, all passed")
    view.turn_to("Run")
    job(view, number, "done").wait_for()
    view.wait_for_text("Records: ")
    view.picture("service-run")
    assert measured(service) == number
    view.turn_to("History")
    view.wait_for_text(f"over {BEFORE + AFTER} results")
    view.wait_for_text("nothing in the records differs")
    view.picture("service-history")
    view.page.get_by_role("button", name="Compare with the result before").click()
    view.wait_for_text("B: default against A: default")
    view.picture("service-compared")
    fits(view)
    inside = view.page.url
    view.turn_to("Run")
    view.page.get_by_role("link", name="Log out").click()
    view.page.get_by_label("Your token for this service").wait_for()
    view.page.goto(inside)
    view.page.get_by_label("Your token for this service").wait_for()


def fits(view: Window) -> None:
    """No tab is wider than a narrow window."""
    view.page.set_viewport_size({"width": 900, "height": 900})
    for tab in ("Run", "History"):
        view.turn_to(tab)
        view.wait_until("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_page_that_is_hidden_is_not_updated_and_one_whose_token_was_removed_shows_nothing(
    window: Open, service: RealService
) -> None:
    token = add_token(service, "guest")
    view = window(service.url)
    log_in(view, token)
    view.turn_to("Run")
    view.wait_for_text("No job is running, none waits.")
    hide(view, True)
    view.wait_until("Bokeh.documents[0].get_model_by_name('page_ready').disabled")
    number = service.add(REFUSED)
    service.until(number, "failed")
    assert view.page.get_by_text("No job is running, none waits.").is_visible()
    assert job(view, number, "failed").count() == 0
    hide(view, False)
    job(view, number, "failed").wait_for()
    assert view.page.get_by_role("button", name="Cancel").count() == 0
    remove_token(service, "guest")
    view.wait_for_text("Your token was removed")
    view.page.get_by_role("button", name="Run", exact=True).wait_for(state="detached")
    view.page.reload()
    view.page.get_by_label("Your token for this service").wait_for()


def hide(view: Window, hidden: bool) -> None:
    """Let the page believe that it is hidden, which it never is without a screen."""
    view.page.evaluate(f"""() => {{
        Object.defineProperty(document, "hidden", {{ get: () => {str(hidden).lower()}, configurable: true }});
        document.dispatchEvent(new Event("visibilitychange"));
    }}""")


def add_token(service: RealService, name: str) -> str:
    process = service.command("token", "add", "--name", name, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return str(process.communicate()[0]).strip()


def remove_token(service: RealService, name: str) -> None:
    process: Any = service.command("token", "remove", name)
    assert process.wait() == 0


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
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--IdentityProvider.token=",
        "--ServerApp.password=",
        "--ServerApp.root_dir=.",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.news_url=",
        # It would import Panel into the server, for pages that no notebook needs.
        "--ServerApp.jpserver_extensions={'panel.io.jupyter_server_extension': False}",
    ]
    themes = tmp_path / "jupyter/CONFIG/lab/user-settings/@jupyterlab/apputils-extension/themes.jupyterlab-settings"
    themes.parent.mkdir(parents=True)
    themes.write_text('{"adaptive-theme": true}')  # dark where the browser is
    saving = themes.parents[1] / "docmanager-extension/plugin.jupyterlab-settings"
    saving.parent.mkdir()
    saving.write_text('{"autosave": false}')  # at each save Panel's extension asks its server part, which is off
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
    assert not list((folder / "results").glob("*/records.jsonl"))
    start_a_run(view)
    watch_it_to_its_end(view)
    view.picture("lab-live", full=False)
    compare_with_an_earlier_run(view, folder / "results")
    view.picture("lab-results", full=False)


@pytest.mark.soak  # the notebook, and the queue in a page, are tested above
def test_the_queue_of_a_service_is_seen_in_the_notebook(
    lab: tuple[str, Path], window: Open, service: RealService
) -> None:
    url, folder = lab
    number = measured(service)
    book = folder / "notebooks" / "dashboard.ipynb"
    call = f"show('{service.results}', queue=Client('{service.url}', '{service.token}'))"
    imported = "from merge_bench.service.client import Client\\n"
    text = book.read_text().replace('show(\\"../results\\")', imported + call)
    assert call in text
    book.with_name("queue.ipynb").write_text(text)
    view = window(f"{url}/queue.ipynb?reset")
    run_all_cells(view)
    view.turn_to("Run")
    job(view, number, "done").wait_for()
    other = service.add({**JOB, "options": {**JOB["options"], "iterations": 100_000}})
    view.page.get_by_role("button", name=f"Cancel {other}").click()
    job(view, other, "cancelled").wait_for()
    view.page.get_by_role("button", name=f"Output {number}").click()
    view.wait_for_text("Records: ")
    view.picture("lab-run", full=False)
    view.page.get_by_role("button", name=f"Result {number}").click()
    view.wait_for_text("Throughput of every iteration")
    view.turn_to("History")
    view.wait_for_text(f"over {BEFORE + AFTER} results")
    view.wait_for_text("nothing in the records differs")
    view.picture("lab-history", full=False)
