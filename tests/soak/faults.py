"""Random faults against real runs: each run ends in time, names the process that was hit, and leaves nothing behind.

    python -m tests.soak.faults --runs 200 --seed 1

One fault a run, at a random moment from 0.3 s after the start on: SIGKILL, SIGSTOP or SIGSEGV to a worker or the
scheduler; SIGINT, SIGTERM, SIGHUP, SIGKILL, SIGSEGV or SIGSTOP (then SIGCONT) to the driver. In every second run all
cores are kept busy by something else. A fault that hits nothing (the process is not there yet, or the run ended well
all the same) is drawn again. Prints a line a fault and a table; the exit status is 1 if any run broke a promise.

What is promised, in seconds from the fault: a worker or the scheduler hit: status 3 within --timeout + 5, before the
cluster has come up within --start-timeout + 5, and the message names the process; the driver interrupted: within 5;
killed: nothing left after 15; stopped: the run ends properly after SIGCONT. In all of them no process is left, and what
was recorded can be read.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from merge_bench.errors import MergeBenchError
from merge_bench.merge.engines import engine_descriptions
from merge_bench.records.reader import read_campaign
from tests.helpers import leftovers
from tests.helpers.runs import Running, start

TIMEOUT, START_TIMEOUT = 6.0, 10.0
EARLIEST, LATEST, LATEST_BUSY = 0.3, 6.5, 11.0  # seconds after the start
IN_TIME, INTERRUPTED, GONE, SWEPT = 5.0, 5.0, 15.0, 2.0
HUNG = 90.0  # seconds after which a run counts as hung
IN_PARTS = [engine.name for engine in engine_descriptions() if engine.in_parts]
ENDED = signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV
DRIVER = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP


@dataclass(frozen=True)
class Draw:
    """One fault: against which run, which process, which signal, when."""

    number: int
    options: tuple[str, ...]
    busy: bool
    target: str
    fault: signal.Signals
    moment: float

    @property
    def shown(self) -> str:
        """As a line begins that is printed of it."""
        load = "busy" if self.busy else "idle"
        return f"{self.number:3} {load} {self.fault.name:7} {self.target:9} at {self.moment:5.2f} s  {self.shape}"

    @property
    def shape(self) -> str:
        """The options that differ from run to run."""
        return " ".join(self.options[: self.options.index("--iterations")])


@dataclass
class Outcome:
    """What came of it. `seconds`: from the fault to the end; `named`: None where no name is expected."""

    draw: Draw
    seconds: float
    limit: float
    status: int | None
    message: str
    named: bool | None
    broken: list[str] = field(default_factory=list)


def draw(rng: random.Random, number: int) -> Draw:
    """A random fault of a random run; only combinations of options that exist."""
    target = rng.choice(["worker"] * 4 + ["scheduler"] * 2 + ["driver"] * 3)
    fault = rng.choice(DRIVER if target == "driver" else ENDED)
    options = ["--workers", rng.choice("23"), "--chunk", str(int(10 ** rng.uniform(5.0, 6.477)))]
    if rng.random() < 0.6:
        options += ["--engine", rng.choice(IN_PARTS), "--pipeline", rng.choice(("on", "off"))]
        if rng.random() < 0.2:
            options += ["--error-handling", "peer"]
    else:
        options += ["--exchange", "dask", "--shuffle", rng.choice(("tasks", "p2p"))]
    # A driver that is stopped shall come to the end of its run afterwards.
    stopped = target == "driver" and fault == signal.SIGSTOP
    short = stopped or rng.random() < 0.25
    options += ["--iterations", *(("3", "--verify", "every") if short else ("1_000_000", "--verify", "off"))]
    options += ["--seed", str(rng.randrange(10**6))]
    options += ["--timeout", f"{TIMEOUT:g}", "--start-timeout", f"{START_TIMEOUT:g}"]
    if target == "worker":
        target = f"worker-{rng.randrange(int(options[1]))}"
    busy = number % 2 == 1
    moment = rng.uniform(EARLIEST, LATEST_BUSY if busy else LATEST)
    return Draw(number, tuple(options), busy, target, fault, moment)


@contextlib.contextmanager
def load(busy: bool) -> Iterator[None]:
    """Keep every core busy meanwhile."""
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], stdin=subprocess.DEVNULL)
        for _ in range(os.cpu_count() or 1)
        if busy
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def strike(drawn: Draw, folder: Path) -> Outcome | None:
    """Start the run, send the signal, and judge what follows; None if it hit nothing."""
    running = start(folder, *drawn.options)
    try:
        time.sleep(max(0.0, running.started + drawn.moment - time.monotonic()))
        pid = running.process.pid if drawn.target == "driver" else running.workers().get(drawn.target)
        if running.process.poll() is not None or pid is None:
            return None
        up = _is_up(running)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, drawn.fault)
        since = time.monotonic()
        if drawn.target == "driver":
            return _judge_driver(drawn, running, since)
        return _judge(drawn, running, since, (TIMEOUT if up else START_TIMEOUT) + IN_TIME)
    finally:
        running.end()
        _sweep(running.temp)


def _is_up(running: Running) -> bool:
    """Whether all workers and the driver have come to the scheduler."""
    logs = {log.name: log.read_text(errors="replace") for log in running.results.glob("*/logs/launch-*.log")}
    workers = [text for name, text in logs.items() if "worker" in name]
    scheduler = "".join(text for name, text in logs.items() if "scheduler" in name)
    return bool(workers) and all("Registered to" in text for text in workers) and "Receive client" in scheduler


def _wait(running: Running, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while running.process.poll() is None and time.monotonic() < deadline:
        running.workers()
        time.sleep(0.05)
    return running.process.poll() is not None


def _judge(drawn: Draw, running: Running, since: float, limit: float) -> Outcome | None:
    ended = _wait(running, HUNG)
    seconds = time.monotonic() - since
    if not ended:
        return Outcome(drawn, seconds, limit, None, "", False, ["hangs"])
    status = running.process.returncode
    message = _message(running)
    if status == 0:
        return None
    outcome = Outcome(drawn, seconds, limit, status, message, drawn.target in message)
    if status != 3:
        outcome.broken.append(f"status {status}")
    if seconds > limit:
        outcome.broken.append(f"took {seconds:.1f} of {limit:g} s")
    outcome.broken += _common(running, SWEPT)
    return outcome


def _judge_driver(drawn: Draw, running: Running, since: float) -> Outcome | None:
    fault, limit = drawn.fault, INTERRUPTED
    if fault == signal.SIGSTOP:
        time.sleep(random.Random(drawn.moment).uniform(1.0, 1.5 * TIMEOUT))
        os.kill(running.process.pid, signal.SIGCONT)
        limit = HUNG
    if fault in (signal.SIGKILL, signal.SIGSEGV):
        running.process.wait()
        broken = _common(running, GONE)
        return Outcome(drawn, time.monotonic() - since, GONE, running.process.returncode, "", None, broken)
    ended = _wait(running, HUNG)
    seconds = time.monotonic() - since
    status = running.process.returncode if ended else None
    outcome = Outcome(drawn, seconds, limit, status, _message(running), None)
    if not ended:
        outcome.broken.append("hangs")
    elif fault == signal.SIGSTOP and status != 0:
        outcome.broken.append(f"status {status} after SIGCONT")
    elif fault != signal.SIGSTOP and status == 0:
        return None
    if seconds > limit:
        outcome.broken.append(f"took {seconds:.1f} of {limit:g} s")
    if "Traceback" in (running.temp / "stderr").read_text(errors="replace"):
        outcome.broken.append("traceback")
    outcome.broken += _common(running, SWEPT)
    return outcome


def _common(running: Running, seconds: float) -> list[str]:
    """Processes that are left after so many seconds, and records that cannot be read."""
    deadline = time.monotonic() + seconds
    while (left := leftovers.processes(running.temp)) and time.monotonic() < deadline:
        time.sleep(0.1)
    broken = [f"left: {command[:80]}" for command in left.values()]
    for records in running.results.glob("*/records.jsonl"):
        if records.stat().st_size == 0:  # hit before the first line: nothing was recorded, and reading it says so
            continue
        try:
            read_campaign(records)
        except MergeBenchError as error:
            broken.append(f"unreadable: {error}")
    return broken


def _message(running: Running) -> str:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((running.temp / "stdout").read_text())["error"]["message"])
    with contextlib.suppress(OSError):
        return (running.temp / "stderr").read_text(errors="replace").strip()
    return ""


def _sweep(temp: Path) -> None:
    """End what a broken run left, by its process ids."""
    for pid in leftovers.processes(temp):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Random faults against real runs.")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first run, to go on or repeat one")
    parser.add_argument("--keep", type=Path, help="folder for the files of runs that broke a promise")
    chosen = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):  # what was started is ended then, too
        signal.signal(number, lambda *_: sys.exit(1))
    # A shell has it ignored in the background, and so would runs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    outcomes, drawn_again = [], 0
    for number in range(chosen.first, chosen.first + chosen.runs):
        for attempt in range(100):
            drawn = draw(random.Random(f"{chosen.seed}/{number}/{attempt}"), number)
            folder = Path(tempfile.mkdtemp(prefix="faults-"))
            with load(drawn.busy):
                outcome = strike(drawn, folder)
            if outcome is not None:
                break
            drawn_again += 1
            shutil.rmtree(folder, ignore_errors=True)
        else:
            raise AssertionError(f"no draw of run {number} hit anything")
        outcomes.append(outcome)
        verdict = "; ".join(outcome.broken) or "ok"
        if outcome.named is False:
            verdict += "; not named"
        print(f"{drawn.shown}  -> {outcome.status} in {outcome.seconds:.1f} s: {verdict}", flush=True)
        if verdict != "ok":
            print(f"      {outcome.message}", flush=True)
            if chosen.keep:
                shutil.copytree(folder, chosen.keep / str(number), dirs_exist_ok=True, symlinks=True)
        shutil.rmtree(folder, ignore_errors=True)
    return report(outcomes, drawn_again)


def report(outcomes: list[Outcome], drawn_again: int) -> int:
    """The table; gives the exit status."""
    print(f"\n{len(outcomes)} faults, {drawn_again} drawn again because they hit nothing")
    print(f"{'target':10}{'signal':9}{'runs':>5}{'kept':>6}{'median s':>10}{'longest s':>11}")
    kinds = Counter((each.draw.target.partition("-")[0], each.draw.fault.name) for each in outcomes)
    for (target, fault), runs in sorted(kinds.items()):
        mine = [o for o in outcomes if (o.draw.target.partition("-")[0], o.draw.fault.name) == (target, fault)]
        took = sorted(each.seconds for each in mine)
        kept = sum(not each.broken for each in mine)
        print(f"{target:10}{fault:9}{runs:5}{kept:6}{took[len(took) // 2]:10.1f}{took[-1]:11.1f}")
    expected = [each for each in outcomes if each.named is not None]
    named = sum(bool(each.named) for each in expected)
    broken = sum(bool(each.broken) for each in outcomes)
    print(f"named the process that was hit: {named} of {len(expected)}; broke a promise: {broken}")
    return 1 if broken or named < 0.99 * len(expected) else 0


if __name__ == "__main__":
    sys.exit(main())
