"""Whether looking at the service's pages while a job runs changes what the job measures.

    python -m benchmarks.watched_jobs [--pairs 36] [--within true] [--view elsewhere]

Pairs of equal jobs of one service, or of stretches of one job, in random order: one while a browser has the Live tab
open, one while no page is open. The goal is EQUIVALENT at 2 %. A page in view on this machine takes time of its cores,
as any program does. Needs playwright and Chromium. Prints the ratio of throughputs.
"""

from __future__ import annotations

import contextlib
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
from merge_bench.analysis.compare import METRICS, side_of_run
from merge_bench.analysis.statistics import median, paired_effect
from merge_bench.analysis.statistics.verdict import judge_effects
from merge_bench.records.reader import read_campaign
from tests.service.services import RealService

OPTIONS = {"chunk": 1_000_000, "workers": 2, "link-rounds": 0}
SECONDS = 8.0
_CLIENT = """
import asyncio, http.cookiejar, re, sys, urllib.request
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

async def main(url, token):
    jar = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    answer = browser.open(url + "/login", f"token={token}".encode())
    (found,) = set(re.findall(r'"token":"([^"]+)"', answer.read().decode()))
    headers = {"Cookie": "; ".join(f"{each.name}={each.value}" for each in jar), "Origin": url}
    request = HTTPRequest(answer.url.replace("http", "ws") + "ws", headers=headers)
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


def opened(browser: Any, service: RealService, view: str) -> contextlib.AbstractContextManager[None]:
    """The page, wherever it is to be."""
    return elsewhere(service) if view == "elsewhere" else shown(browser, service, hidden=view == "hidden")


def of_jobs(browser: Any, service: RealService, view: str, pairs: int, rng: random.Random) -> Iterator[float]:
    """The log-ratio of each pair of jobs."""

    def measured() -> float:
        job = service.until(service.add({"command": "run", "options": {**OPTIONS, "iterations": 150}}), "done")
        (run,) = read_campaign(service.results / job["result"]).runs
        return math.log(median(side_of_run(run, METRICS[0]).values))

    measured()  # first touch
    for _ in range(pairs):
        found: dict[bool, float] = {}
        for watched in rng.sample([True, False], 2):
            with opened(browser, service, view) if watched else contextlib.nullcontext():
                found[watched] = measured()
        yield found[True] - found[False]


def within_a_job(browser: Any, service: RealService, view: str, pairs: int, rng: random.Random) -> Iterator[float]:
    """The log-ratio of each pair of stretches of one job, of `SECONDS` each: launches differ more than these."""
    number = service.add({"command": "run", "options": {**OPTIONS, "iterations": 10**6, "verify": "off"}})
    service.until(number, "running")
    time.sleep(10)
    stretches = []
    for _ in range(pairs):
        for watched in rng.sample([True, False], 2):
            with opened(browser, service, view) if watched else contextlib.nullcontext():
                begun = time.time()
                time.sleep(SECONDS)
                stretches.append((watched, begun, time.time()))
    service.ask("DELETE", f"/api/jobs/{number}")
    job = service.until(number, "cancelled")
    (launch,) = read_campaign(service.results / job["result"]).launches
    for pair in zip(stretches[::2], stretches[1::2], strict=True):
        found = {
            watched: math.log(
                median([line.wall_seconds for line in launch.timed_iterations if begun <= line.time < ended])
            )
            for watched, begun, ended in pair
        }
        yield found[False] - found[True]


@click.command(context_settings=command.CONTEXT)
@command.option("--pairs", click.IntRange(6), 36, "Pairs of jobs, or of stretches.")
@command.option("--within", click.BOOL, True, "Compare stretches of one job instead of jobs.")
@command.option(
    "--view",
    click.Choice(["elsewhere", "hidden", "here"]),
    "elsewhere",
    "The page is in a browser of another machine, in a hidden tab of this one, or in view.",
)
@command.SEED
def watched_jobs(pairs: int, within: bool, view: str, seed: int) -> None:
    """Measure the pairs."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        service = RealService(Path(folder))
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        try:
            measure = within_a_job if within else of_jobs
            ratios = list(measure(browser, service, view, pairs, random.Random(seed)))
        finally:
            browser.close()
            service.stop()
            service.close()
    for number, ratio in enumerate(ratios):
        click.echo(f"pair {number}: watched to not watched {math.exp(ratio):.4f}", err=True)
    (judged,) = judge_effects([paired_effect(ratios)], threshold=0.02)
    low, high = judged.interval or (math.nan, math.nan)
    click.echo(
        f"watched ({view}) to not watched: {math.exp(judged.effect.estimate):.4f} ({math.exp(low):.4f} to"
        f" {math.exp(high):.4f}), {pairs} pairs: {judged.verdict.value} at 2 %"
    )


if __name__ == "__main__":
    command.run(watched_jobs, "watched_jobs")
