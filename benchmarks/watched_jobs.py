"""Whether looking at the service's pages while a job runs changes what the job measures.

    python -m benchmarks.watched_jobs [--pairs 40] [--chunk 1e6] [--iterations 200] [--view elsewhere]

Pairs of equal jobs of one service, in random order: one while a browser has the Live tab open, one while no page is
open. The goal is EQUIVALENT at 2 %. A page in view on this machine takes time of its cores, as any program does. Needs
playwright and Chromium. Prints the ratio of throughputs.
"""

from __future__ import annotations

import math
import random
import subprocess
import sys
import tempfile
import time
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

_CLIENT = """
import asyncio, re, sys, urllib.request
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

async def main(url, token):
    headers = {"Cookie": f"merge-bench-{url.rpartition(':')[2]}={token}", "Origin": url}
    page = urllib.request.urlopen(urllib.request.Request(url + "/", headers=headers)).read().decode()
    (found,) = set(re.findall(r'"token":"([^"]+)"', page))
    request = HTTPRequest(url.replace("http", "ws") + "/ws", headers=headers)
    socket = await websocket_connect(request, subprotocols=["bokeh", found])
    print("connected", flush=True)
    while await socket.read_message() is not None:
        pass

asyncio.run(main(*sys.argv[1:]))
"""


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


@contextmanager
def elsewhere(service: RealService) -> Iterator[None]:
    """The Live tab in a browser of another machine: a process that takes what the service sends, and draws nothing."""
    with subprocess.Popen(
        [sys.executable, "-c", _CLIENT, service.url, service.token], stdout=subprocess.PIPE
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"connected\n"
        time.sleep(3)
        try:
            yield
            assert client.poll() is None
        finally:
            client.kill()


def measured(service: RealService, options: dict[str, object]) -> float:
    """The throughput of one job."""
    job = service.until(service.add({"command": "run", "options": options}), "done")
    (run,) = read_campaign(service.results / job["result"]).runs
    return median(side(run, METRICS[0]).values)


@click.command(context_settings=command.CONTEXT)
@command.option("--pairs", click.IntRange(6), 40, "Pairs of jobs.")
@command.option("--chunk", command.ROWS, 1_000_000, "Rows of a chunk.")
@command.option("--iterations", click.IntRange(1), 200, "Iterations of a job.")
@command.option("--view", click.Choice(["elsewhere", "hidden", "here"]), "elsewhere",
                "The page is in a browser of another machine, in a hidden tab of this one, or in view.")  # fmt: skip
@command.SEED
def watched_jobs(pairs: int, chunk: int, iterations: int, view: str, seed: int) -> None:
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
                        page = elsewhere(service) if view == "elsewhere" else None
                        with page or shown(browser, service, hidden=view == "hidden"):
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
