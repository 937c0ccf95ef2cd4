"""How quick the dashboard view is in a real browser: over 1,000 campaigns, and over 100 iterations of 64 workers.

    python -m benchmarks.dashboard_speed [--campaigns 1000] [--workers 64] [--iterations 100] [--repeat 5]

The view is to be there within 2 s, and an update within 200 ms of work. An update is measured twice: the work that it
costs (reading, figures, and making the browser draw them, which ends when the page has drawn), and the time from the
line in the file to the picture, which holds the twentieth of a second between two looks of the view. Needs playwright
and Chromium. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
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
from statistics import median
from typing import Any

import msgspec

from merge_bench.view.dashboard.live_view import LiveView
from merge_bench.view.dashboard.session import Session
from tests.helpers.synthetic_campaigns import Script, iteration, launches, plan, write_campaign

_WIDE = {"width": 1400, "height": 900}
_POINTS = """(() => Math.max(0, ...window.Bokeh.documents.flatMap(one => [...one._all_models.values()])
    .filter(model => model.type === "ColumnDataSource" && model.data.number !== undefined)
    .map(model => model.data.number.length)))()"""
_DRAWN = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"


def make_many(results: Path, count: int) -> None:
    """`count` campaigns of six launches each; copies of one, for what is in them costs the view nothing."""
    first = write_campaign(results, *launches(6))
    for number in range(count - 1):
        shutil.copytree(first, results / f"{first.name}-{number}")


def make_large(results: Path, workers: int, iterations: int) -> Path:
    """A campaign that goes on: a launch of that many workers and iterations, whose pairs differ."""
    script = Script(plan=plan(workers, iterations=2 * iterations), walls=(), measure_link=False, end_status=None)
    folder = write_campaign(results, script, end=None)
    append(folder, workers, range(iterations))
    return folder


def append(folder: Path, workers: int, numbers: Sequence[int]) -> None:
    """Write iterations of these numbers, as a driver does."""
    script = Script(plan=plan(workers))
    with (folder / "records.jsonl").open("ab") as stream:
        for number in numbers:
            line = iteration(script, number, 0.1 + 0.001 * (number % 7))
            pairs = [
                msgspec.structs.replace(
                    pair, seconds=0.02 + 0.0001 * ((pair.from_rank * 7 + pair.to_rank + number) % 50)
                )
                for pair in line.pairs
            ]
            stream.write(msgspec.json.encode(msgspec.structs.replace(line, pairs=pairs)) + b"\n")


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


def first_view(browser: Any, url: str, ready: str) -> tuple[float, Any]:
    """Seconds from asking for the page until it shows `ready` and has drawn it, in a window that knows nothing yet."""
    page = browser.new_context(viewport=_WIDE, bypass_csp=True).new_page()
    begun = time.perf_counter()
    page.goto(url)
    page.wait_for_function(ready, polling="raf")
    page.evaluate(_DRAWN)
    return time.perf_counter() - begun, page


def results_view(page: Any) -> float:
    """Seconds from choosing the Results tab until rows with numbers are drawn."""
    begun = time.perf_counter()
    page.get_by_role("button", name="Results", exact=True).click()
    page.locator(".tabulator-row").nth(5).wait_for()
    page.evaluate(_DRAWN)
    return time.perf_counter() - begun


def seen_updates(page: Any, folder: Path, workers: int, first: int, repeat: int) -> list[float]:
    """Seconds from a new line in the records until the page has drawn it."""
    found = []
    for number in range(first, first + repeat):
        before = page.evaluate(_POINTS)
        append(folder, workers, [number])
        begun = time.perf_counter()
        page.wait_for_function(f"{_POINTS} > {before}", polling="raf")
        page.evaluate(_DRAWN)
        found.append(time.perf_counter() - begun)
    return found


def worked_updates(folder: Path, workers: int, first: int, repeat: int) -> list[float]:
    """Seconds of the server's work for a new line: reading, figures, and the data of all charts."""
    from merge_bench.view.dashboard.index import Index

    entries = Index(folder.parent).scan()
    view = LiveView(Session(), lambda: entries)
    view.show(view.refresh())
    found = []
    for number in range(first, first + repeat):
        append(folder, workers, [number])
        begun = time.perf_counter()
        view.show(view.refresh())
        found.append(time.perf_counter() - begun)
    return found


def drawn_updates(page: Any, repeat: int) -> list[float]:
    """Seconds in which the page draws the largest figure, the pairs, anew."""
    script = """async () => { const models = window.Bokeh.documents.flatMap(one => [...one._all_models.values()]);
        const source = models.find(one => one.type === "ColumnDataSource" && one.data.lanes !== undefined);
        const begun = performance.now(); source.data = {...source.data};
        await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
        return (performance.now() - begun) / 1000 }"""
    return [page.evaluate(script) for _ in range(repeat)]


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("campaigns", 1000), ("workers", 64), ("iterations", 100), ("repeat", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    from playwright.sync_api import sync_playwright

    rows: list[tuple[str, Sequence[float]]] = []
    with tempfile.TemporaryDirectory(prefix="merge-bench-view-") as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        many, large = Path(name, "many"), Path(name, "large")
        make_many(many, asked.campaigns)
        folder = make_large(large, asked.workers, asked.iterations)
        with served(many) as url:
            views = [first_view(browser, url, f"{_POINTS} > 0") for _ in range(asked.repeat)]
            rows.append((f"First view, {asked.campaigns:,} campaigns", [seconds for seconds, _ in views]))
            tabs = [results_view(page) for _, page in views]
            rows.append((f"Results tab, {asked.campaigns:,} campaigns", tabs))
            _close(views)
        what = f"{asked.iterations} iterations × {asked.workers} workers"
        with served(large) as url:
            views = [first_view(browser, url, f"{_POINTS} === {asked.iterations}") for _ in range(asked.repeat)]
            rows.append((f"First view, {what}", [seconds for seconds, _ in views]))
            _close(views)
        with served(large) as url:  # Anew, for a server goes on for some time with pages that were closed.
            page = first_view(browser, url, f"{_POINTS} === {asked.iterations}")[1]
            seen = seen_updates(page, folder, asked.workers, asked.iterations, asked.repeat)
            rows.append(("Update, from the line in the file to the picture", seen))
            rows.append((f"Update, drawing {asked.workers} × {asked.workers} pairs", drawn_updates(page, asked.repeat)))
        worked = worked_updates(folder, asked.workers, asked.iterations + asked.repeat, asked.repeat)
        rows.append(("Update, work of the server", worked))
        browser.close()
    _print(rows)
    print(f"\nLoad of the machine at the end: {os.getloadavg()[0]:.1f}")
    return 0


def _close(views: Sequence[tuple[float, Any]]) -> None:
    for _, page in views:
        page.context.close()


def _print(rows: Sequence[tuple[str, Sequence[float]]]) -> None:
    print("| What | Median (ms) | Least (ms) | Most (ms) |\n| --- | ---: | ---: | ---: |")
    reduce: tuple[Callable[[Sequence[float]], float], ...] = (median, min, max)
    for name, seconds in rows:
        print(f"| {name} | {' | '.join(f'{1e3 * each(seconds):,.0f}' for each in reduce)} |")


if __name__ == "__main__":
    sys.exit(main())
