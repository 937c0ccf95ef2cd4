"""How fast the dashboard view is in a real browser: over 1,000 campaigns, and over 100 iterations of 64 workers.

    python -m benchmarks.dashboard_speed [--campaigns 1000] [--workers 64] [--iterations 100] [--repeat 5]

The goals are 2 s for the first view and 200 ms of work for an update. An update is measured twice: the work that it
costs (reading, figures, and making the browser draw them, which ends when the page has drawn), and the time from the
line in the file to the picture, which holds the twentieth of a second between two looks of the view. Needs playwright
and Chromium. Prints a table in Markdown.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from benchmarks import command
from merge_bench.analysis.statistics import median
from merge_bench.dashboard.background import PageSession
from merge_bench.dashboard.live_tab import LiveView
from tests.helpers.large_campaigns import append, make_large, make_many

_WIDE = {"width": 1400, "height": 900}
_POINTS = """(() => Math.max(0, ...window.Bokeh.documents.flatMap(one => [...one._all_models.values()])
    .filter(model => model.type === "ColumnDataSource" && model.data.number !== undefined)
    .map(model => model.data.number.length)))()"""
_DRAWN = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"


@contextmanager
def served(results: Path) -> Iterator[str]:
    """The address of a server over `results`, in a process of its own."""
    command = [sys.executable, "-m", "merge_bench", "dashboard", "--results", str(results), "--no-open", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"http://\S+/", process.stderr.readline())
            assert found is not None
            yield found[0]
        finally:
            process.terminate()


def timed(*steps: Callable[[], object]) -> float:
    """Seconds that these take, one after the other."""
    begun = time.perf_counter()
    for step in steps:
        step()
    return time.perf_counter() - begun


def drawn(page: Any, ready: str) -> None:
    """Wait until the page shows `ready` and has drawn it."""
    page.wait_for_function(ready, polling="raf")
    page.evaluate(_DRAWN)


def first_view(browser: Any, url: str, ready: str) -> tuple[float, Any]:
    """Seconds from asking for the page until it shows `ready` and has drawn it, in a new window."""
    page = browser.new_context(viewport=_WIDE, bypass_csp=True).new_page()
    return timed(lambda: page.goto(url), lambda: drawn(page, ready)), page


def results_view(page: Any, rows: int) -> float:
    """Seconds from choosing the Results tab until so many rows with numbers are drawn."""
    button, row = page.get_by_role("button", name="Results", exact=True), page.locator(".tabulator-row").nth(rows - 1)
    return timed(button.click, row.wait_for, lambda: page.evaluate(_DRAWN))


def seen_update(page: Any, folder: Path, workers: int, number: int) -> float:
    """Seconds from a new line in the records until the page has drawn it."""
    before = page.evaluate(_POINTS)
    append(folder, workers, [number])
    return timed(lambda: drawn(page, f"{_POINTS} > {before}"))


def worked_updates(folder: Path, workers: int, numbers: range) -> Iterator[float]:
    """Seconds of the server's work for each new line: reading, figures, and the data of all charts."""
    from merge_bench.records.results_folder import ResultsFolder

    entries = ResultsFolder(folder.parent).entries()
    view = LiveView(PageSession(), lambda: entries)
    view.show_update(view.read_update())
    for number in numbers:
        append(folder, workers, [number])
        yield timed(lambda: view.show_update(view.read_update()))


def drawn_updates(page: Any, repeat: int) -> list[float]:
    """Seconds in which the page draws the largest figure, the pairs, anew."""
    script = """async () => { const models = window.Bokeh.documents.flatMap(one => [...one._all_models.values()]);
        const source = models.find(one => one.type === "ColumnDataSource" && one.data.lanes !== undefined);
        const begun = performance.now(); source.data = {...source.data};
        await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
        return (performance.now() - begun) / 1000 }"""
    return [page.evaluate(script) for _ in range(repeat)]


def close(views: Sequence[tuple[float, Any]]) -> None:
    """Close the pages, so that they do not disturb what is measured next."""
    for _, page in views:
        page.context.close()


@click.command(context_settings=command.CONTEXT)
@command.option("--campaigns", click.IntRange(2), 1000, "Number of stored campaigns.")
@command.option("--workers", click.IntRange(2), 64, "Number of workers of the large campaign.")
@command.option("--iterations", click.IntRange(1), 100, "Number of iterations of the large campaign.")
@command.option("--repeat", click.IntRange(1), 5, "Number of measurements of each time.")
def dashboard_speed(campaigns: int, workers: int, iterations: int, repeat: int) -> None:
    """Measure how fast the dashboard opens and updates in a browser."""
    from playwright.sync_api import sync_playwright

    rows: list[tuple[str, Sequence[float]]] = []
    with tempfile.TemporaryDirectory(prefix="merge-bench-view-") as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        many, large = Path(name, "many"), Path(name, "large")
        make_many(many, campaigns)
        folder = make_large(large, workers, iterations)
        what = f"{iterations} iterations × {workers} workers"
        with served(many) as url:
            views = [first_view(browser, url, f"{_POINTS} > 0") for _ in range(repeat)]
            rows.append((f"First view, {campaigns:,} campaigns", [seconds for seconds, _ in views]))
            found = [results_view(page, min(campaigns, 6)) for _, page in views]
            rows.append((f"Results tab, {campaigns:,} campaigns", found))
            close(views)
        with served(large) as url:
            views = [first_view(browser, url, f"{_POINTS} === {iterations}") for _ in range(repeat)]
            rows.append((f"First view, {what}", [seconds for seconds, _ in views]))
            close(views)
        with served(large) as url:  # Anew, since a server keeps pages that were closed for some time.
            page = first_view(browser, url, f"{_POINTS} === {iterations}")[1]
            numbers = range(iterations, iterations + repeat)
            seen = [seen_update(page, folder, workers, number) for number in numbers]
            rows.append(("Update, from the line in the file to the picture", seen))
            rows.append((f"Update, drawing {workers} × {workers} pairs", drawn_updates(page, repeat)))
        numbers = range(iterations + repeat, iterations + 2 * repeat)
        rows.append(("Update, work of the server", [*worked_updates(folder, workers, numbers)]))
        browser.close()
    cells = [(name, *(f"{1e3 * each(times):,.0f}" for each in (median, min, max))) for name, times in rows]
    click.echo(command.table(("What", "Median (ms)", "Least (ms)", "Most (ms)"), cells))
    click.echo(f"\nLoad of the machine at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    command.run(dashboard_speed, "dashboard_speed")
