"""Whether looking at the service's pages while a job runs changes what the job measures.

    python -m benchmarks.watched_jobs [--pairs 40] [--chunk 1e6] [--iterations 200] [--hidden]

Pairs of equal jobs of one service, in random order: one while a browser on this machine shows the Live tab, one while
no page is open. The goal is EQUIVALENT at 2 %. Needs playwright and Chromium. Prints the ratio of throughputs.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from benchmarks import command
from merge_bench.analysis.compare.samples import METRICS, side
from merge_bench.analysis.statistics import effect, median
from merge_bench.analysis.statistics.verdict import judge
from merge_bench.records.reader import read_campaign
from tests.service.services import RealService


@contextmanager
def shown(browser: Any, service: RealService, *, hidden: bool) -> Iterator[None]:
    """The Live tab of the service in a page, which another one covers if it is to be `hidden`."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    if hidden:  # a headless browser has no tabs that cover each other
        page.add_init_script(
            "Object.defineProperty(document, 'hidden', {get: () => true});"
            "Object.defineProperty(document, 'visibilityState', {get: () => 'hidden'});"
        )
    page.goto(service.url)
    page.fill("input", service.token)
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Live")
    page.wait_for_timeout(3000)
    try:
        yield
    finally:
        context.close()


def measured(service: RealService, options: dict[str, object]) -> float:
    """The throughput of one job."""
    job = service.until(service.add({"command": "run", "options": options}), "done")
    (run,) = read_campaign(service.results / job["result"]).runs
    return median(side(run, METRICS[0]).values)


@click.command(context_settings=command.CONTEXT)
@command.option("--pairs", click.IntRange(6), 40, "Pairs of jobs.")
@command.option("--chunk", command.ROWS, 1_000_000, "Rows of a chunk.")
@command.option("--iterations", click.IntRange(1), 200, "Iterations of a job.")
@click.option("--hidden", is_flag=True, help="The page is open, and nobody sees it.")
@command.SEED
def watched_jobs(pairs: int, chunk: int, iterations: int, hidden: bool, seed: int) -> None:
    """Measure the pairs."""
    from playwright.sync_api import sync_playwright

    options: dict[str, object] = {"chunk": chunk, "iterations": iterations, "workers": 2, "link-rounds": 0}
    rng = random.Random(seed)
    ratios = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        service = RealService(Path(folder))
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        try:
            measured(service, options)  # first touch
            for number in range(pairs):
                found: dict[bool, float] = {}
                for watched in rng.sample([True, False], 2):
                    if watched:
                        with shown(browser, service, hidden=hidden):
                            found[watched] = measured(service, options)
                    else:
                        found[watched] = measured(service, options)
                ratios.append(math.log(found[True] / found[False]))
                click.echo(f"pair {number}: watched to not watched {math.exp(ratios[-1]):.4f}", err=True)
        finally:
            browser.close()
            service.stop()
            service.close()
    (judged,) = judge([effect.paired(ratios)], threshold=0.02)
    low, high = judged.interval or (math.nan, math.nan)
    click.echo(
        f"watched to not watched: {math.exp(judged.effect.estimate):.4f} ({math.exp(low):.4f} to {math.exp(high):.4f}),"
        f" {pairs} pairs: {judged.verdict.value} at 2 %"
    )


if __name__ == "__main__":
    command.run(watched_jobs, "watched_jobs")
