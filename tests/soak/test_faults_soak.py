"""Faults at random moments, many times: no hang, nothing left, and records that can be read every time.

The seed is printed; set `SOAK_SEED` to have the same run again, as far as moments can be the same.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from merge_bench.record.reader import read_campaign
from tests.helpers import leftovers
from tests.helpers.runs import ENDLESS, Finished, Running, start

pytestmark = [pytest.mark.soak, pytest.mark.cluster]

SEED = int(os.environ.get("SOAK_SEED", random.SystemRandom().randrange(10**6)))
WORKER_FAULTS, INTERRUPTS, DRIVER_KILLS = 20, 10, 5
IN_TIME = {"fault": 15.0, "signal": 5.0}
# Who freezes before it has come to the scheduler cannot be told from who is slow to start.
START_TIMEOUT = 40.0


def begin(folder: Path, rng: random.Random) -> Running:
    options = ["--workers", rng.choice("223"), "--engine", rng.choice(("native", "polars", "pandas"))]
    options += ["--seed", str(rng.randrange(10**6)), "--start-timeout", str(START_TIMEOUT)]
    if rng.random() < 0.3:
        options += ["--verify", "every"]
    if rng.random() < 0.2:
        options += ["--error-handling", "peer"]
    return start(folder, *ENDLESS, *options)


def wait_a_while(running: Running, rng: random.Random, *, workers: bool) -> str:
    """Let a part of a launch pass; says how much. Mostly until iterations run, else any moment since it began."""
    running.until(lambda: "scheduler" in running.workers(), "launching")
    if workers:
        wanted = 1 + int(workers_asked(running))
        running.until(lambda: len(running.workers()) >= wanted, "workers")
    merging = rng.random() < 0.6
    if merging:
        running.until_merging(1)
    moment = rng.random() * (2.0 if merging else 6.0)
    time.sleep(moment)
    return f"{moment:.2f} s on, after {running.iterations()} iterations"


def workers_asked(running: Running) -> str:
    argv = [str(part) for part in running.process.args]  # type: ignore[union-attr]
    return argv[argv.index("--workers") + 1]


def check(finished: Finished, took: float, limit: float, said: str) -> None:
    assert finished.status == 3, f"{said}: {finished.shown()}"
    assert took < limit, f"{said}: ended after {took:.1f} s"
    assert "Traceback" not in finished.errors, f"{said}: {finished.errors}"
    assert finished.document["error"]["message"], said
    campaign = read_campaign(finished.folder)
    assert campaign.end is not None, said
    assert len(finished.records) >= 2, said
    assert finished.before.left_after(finished.pids, 2.0) == [], said


@pytest.mark.parametrize("number", range(WORKER_FAULTS))
def test_a_random_worker_dies_or_freezes(tmp_path: Path, number: int) -> None:
    rng = random.Random(f"{SEED} worker {number}")
    running = begin(tmp_path, rng)
    try:
        said = f"SOAK_SEED={SEED}, " + wait_a_while(running, rng, workers=True)
        processes = running.workers()
        name = rng.choice(sorted(name for name in processes if name.startswith("worker")))
        fault = rng.choice((signal.SIGKILL, signal.SIGSTOP))
        said += f": {fault.name} to {name}"
        print(said)
        os.kill(processes[name], fault)
        since = time.monotonic()
        finished = running.finish(START_TIMEOUT + 60)
        took = time.monotonic() - since
        message = finished.document["error"]["message"]
        never_came = "workers came within" in message
        check(finished, took, IN_TIME["fault"] + never_came * START_TIMEOUT, said)
        assert name in message, f"{said}: {message}"
    finally:
        running.end()


@pytest.mark.parametrize("number", range(INTERRUPTS))
def test_control_c_at_a_random_moment(tmp_path: Path, number: int) -> None:
    rng = random.Random(f"{SEED} interrupt {number}")
    running = begin(tmp_path, rng)
    try:
        said = f"SOAK_SEED={SEED}, " + wait_a_while(running, rng, workers=False)
        number_of_signal = rng.choice((signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        said += f": {number_of_signal.name}"
        print(said)
        os.kill(running.process.pid, number_of_signal)
        since = time.monotonic()
        check(running.finish(60), time.monotonic() - since, IN_TIME["signal"], said)
    finally:
        running.end()


@pytest.mark.parametrize("number", range(DRIVER_KILLS))
def test_the_driver_is_killed(tmp_path: Path, number: int) -> None:
    rng = random.Random(f"{SEED} driver {number}")
    running = begin(tmp_path, rng)
    said = f"SOAK_SEED={SEED}, " + wait_a_while(running, rng, workers=False)
    print(said)
    running.end()
    deadline = time.monotonic() + 15
    while left := leftovers.processes(running.temp):
        assert time.monotonic() < deadline, f"{said}: {left}"
        time.sleep(0.1)
    for folder in running.results.iterdir():
        assert read_campaign(folder).end is None, said
