"""What a person does in the view, in a browser or in JupyterLab: start a run, watch it, compare it with another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tests.browser.conftest import Window

POINTS = """(() => {
  const found = window.Bokeh.documents.flatMap(one => [...one._all_models.values()])
    .filter(model => model.type === "ColumnDataSource" && model.data.number !== undefined)
    .map(model => model.data.number.length);
  return Math.max(0, ...found);
})()"""
"""How many iterations the page draws."""


def log_in(window: Window, token: str) -> None:
    """Give the token in the form for it."""
    window.page.get_by_label("Your token for this service").fill(token)
    window.page.get_by_role("button", name="Log in").click()
    window.page.get_by_role("button", name="Live", exact=True).wait_for()


def start_a_run(window: Window, *, chunk: str = "2e4", iterations: str = "4") -> None:
    """Fill in the form and start; the Live tab opens with the first record."""
    page = window.page
    window.turn_to("Run")
    for label, value in (("Rows per chunk", chunk), ("Workers", "2"), ("Iterations", iterations)):
        page.get_by_label(label).fill(value)
    window.wait_for_text(f"merge-bench run --chunk={chunk} --workers=2 --iterations={iterations}")
    page.get_by_role("button", name="Start", exact=True).click()
    window.wait_for_text("is running")
    window.picture("started")


def watch_it_to_its_end(window: Window) -> None:
    """Look at the Live tab, which opens with the first record, until the run has ended and all iterations are drawn."""
    window.wait_for_text("Throughput of each iteration")
    window.wait_until(f"{POINTS} === 4")
    window.wait_for_text("4 of 4")
    window.wait_for_text("finished successfully")
    window.wait_for_text("2 checks, all passed")


def choose(row: Any) -> None:
    """Tick a row's box."""
    row.locator("input[type=checkbox]").click()
    row.locator("input:checked").wait_for()


def compare_with_an_earlier_run(window: Window, results: Path) -> None:
    """Choose the one run in `results` and an earlier one in the table; the view compares them.

    The earlier run is made from the other one, because a second real run would show nothing more.
    """
    (run,) = results.glob("*/records.jsonl")
    run = run.parent
    first, _, rest = (run / "records.jsonl").read_bytes().partition(b"\n")
    head = msgspec.json.decode(first)
    head |= {"campaign_id": "20260101T000000Z-default-000000", "time": head["time"] - 3600}
    earlier = results / head["campaign_id"]
    earlier.mkdir()
    (earlier / "records.jsonl").write_bytes(msgspec.json.encode(head) + b"\n" + rest)
    window.turn_to("Results")
    rows = window.page.locator(".tabulator-row", has_text="20,000").filter(
        has_text="verified"
    )  # once its figures are known
    for number in (1, 0):
        window.wait_for(rows.nth(number), f"row {number} of {rows}")
    for number in (1, 0):
        choose(rows.nth(number))
    window.wait_for_text("B: default against A: default")
    window.wait_for_text("INCONCLUSIVE")
    window.wait_for_text("Throughput of every iteration")
