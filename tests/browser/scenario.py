"""What a person does in the view, whichever program shows it: start a run, watch it, compare it with another."""

from __future__ import annotations

from typing import Any

from tests.browser.conftest import Window

POINTS = """(() => {
  const found = window.Bokeh.documents.flatMap(one => [...one._all_models.values()])
    .filter(model => model.type === "ColumnDataSource" && model.data.number !== undefined)
    .map(model => model.data.number.length);
  return Math.max(0, ...found);
})()"""
"""How many iterations the page draws."""


def start_a_run(window: Window, *, chunk: str = "2e4", iterations: str = "3") -> None:
    """Fill in the form and start."""
    page = window.page
    window.turn_to("Run")
    for label, value in (("Rows per chunk", chunk), ("Workers", "2"), ("Iterations", iterations)):
        page.get_by_label(label).fill(value)
    command = f"python -m merge_bench run --chunk={chunk} --workers=2 --iterations={iterations}"
    window.wait_for_text(command)
    page.get_by_role("button", name="Start", exact=True).click()
    window.wait_for_text("Running:")


def watch_it_to_its_end(window: Window, *, iterations: int = 3) -> None:
    """Look at the Live tab until the run has ended and all iterations are drawn."""
    window.turn_to("Live")
    window.wait_for_text("ended well")
    window.wait_until(f"{POINTS} === {iterations}")
    window.wait_for_text("2 checks, all right")


def choose(row: Any) -> None:
    """Tick a row's box."""
    row.locator("input[type=checkbox]").click()
    row.locator("input:checked").wait_for()


def compare_the_newest_two(window: Window) -> None:
    """Choose the two runs of that size in the table; the view says how much faster one is, and what that proves."""
    page = window.page
    window.turn_to("Results")
    rows = page.locator(".tabulator-row", has_text="20,000")
    for number in (1, 0):
        rows.nth(number).filter(has_text="yes").wait_for()  # it is whole then, and its row does not change any more
    for number in (1, 0):
        choose(rows.nth(number))
    window.wait_for_text("B: default against A: default")
    window.wait_for_text("INCONCLUSIVE")
    window.wait_for_text("Throughput of every iteration")
