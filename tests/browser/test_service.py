"""The pages of `merge_bench serve`, in a real browser: a job from its place in the queue to the shift that it shows."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from merge_bench.records.writer import RECORDS
from tests.browser.conftest import Open, Window
from tests.browser.scenario import POINTS
from tests.service.services import RealService

JOB = {"command": "run", "options": {"chunk": "2e4", "iterations": 4, "workers": 2, "link-rounds": 0}}
BEFORE, AFTER = 20, 5


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RealService]:
    found = RealService(tmp_path)
    yield found
    assert found.stop() == 0
    found.close()


def log_in(view: Window, token: str) -> None:
    view.page.get_by_label("Your token for this service").fill(token)
    view.page.get_by_role("button", name="Log in").click()
    view.page.get_by_role("button", name="Live", exact=True).wait_for()


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
    view.turn_to("Queue")
    view.wait_for_text("No job is running, none waits.")
    number = service.add(JOB)
    view.wait_for_text(f"Job {number} is running")
    view.page.get_by_role("button", name=f"Cancel {number}").wait_for()
    view.turn_to("Live")
    view.wait_for_text("Throughput of each iteration")
    view.wait_until(f"{POINTS} === 4")
    view.wait_for_text("finished successfully")
    view.turn_to("Queue")
    view.wait_for_text(f"{number} done")
    view.wait_for_text("Records: ")
    view.picture("service-queue")
    write_nights(service.results, service.until(number, "done")["result"])
    view.turn_to("History")
    view.wait_for_text(f"over {BEFORE + AFTER} results")
    view.wait_for_text("nothing in the records differs")
    view.picture("service-history")
    view.page.get_by_role("button", name="Compare with the result before").click()
    view.wait_for_text("B: default against A: default")
    view.picture("service-compared")
    fits(view)


def fits(view: Window) -> None:
    """No tab is wider than a narrow window."""
    view.page.set_viewport_size({"width": 900, "height": 900})
    for tab in ("Queue", "History"):
        view.turn_to(tab)
        view.wait_until("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_page_that_is_hidden_is_not_updated_and_one_whose_token_was_removed_shows_nothing(
    window: Open, service: RealService
) -> None:
    token = add_token(service, "guest")
    view = window(service.url)
    log_in(view, token)
    view.turn_to("Queue")
    view.wait_for_text("No job is running, none waits.")
    hide(view, True)
    view.wait_until("Bokeh.documents[0].get_model_by_name('page_ready').disabled")
    number = service.add(JOB)
    service.until(number, "done")
    assert view.page.get_by_text("No job is running, none waits.").is_visible()
    assert view.page.get_by_text(f"{number} done").count() == 0
    hide(view, False)
    view.wait_for_text(f"{number} done")
    assert view.page.get_by_role("button", name="Cancel").count() == 0
    remove_token(service, "guest")
    view.wait_for_text("Your token was removed")
    view.page.get_by_role("button", name="Queue", exact=True).wait_for(state="detached")
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
