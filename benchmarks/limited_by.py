"""What a run says of its limit where the limit is known, because this program makes it: a table of cases.

    python -m benchmarks.limited_by [--only stopped,hogs] [--output results/curated/limited-by.toml]

Each case is a run of two workers on this machine. While they merge, their processes are bound to one core, programs
that only compute run on their cores, or they are stopped and continued with signals. Takes three minutes on two cores
that do nothing else. Exit status: 0 every case is named rightly; 1 one is not; 3 one could not be measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from benchmarks import command
from benchmarks.goal.bench import Bench, Ran, scratch
from benchmarks.processes import Document
from merge_bench.errors import RunFailed, UsageError

WRONG, UNMEASURED = 1, 3
WORKERS = 2
LOOK_SECONDS = 0.002
STOP_SECONDS = 0.02
"""How long a worker is stopped at a time: less than an iteration takes."""
HOG = "while True: pass"
LEAST_LIMIT = 0.8
"""Of the link limit of the undisturbed run: a limit below it was disturbed, and has to be marked."""
HEADINGS = ["case", "what is done", "wall (ms)", "limited by", "share, it says", "true share", "link", "right"]
TITLE, PLACE = "What a run says of its limit", 60
ABOUT = """\
Each case is a run whose limit is known. *Limited by*: what the run says. *Share, it says*: of the wall-clock, what \
the run says that its host or its fixed costs take at least; *true share*: what they take by comparison with the \
undisturbed run, or by the straight line through the walls of both small runs."""


@dataclass
class WatchedRun:
    """A run in progress, as its records show it so far; `folder`: of its results. `ended`: set when it is over."""

    folder: Path
    ended: threading.Event = field(default_factory=threading.Event)
    pids: list[int] = field(default_factory=list)
    timed_iterations: int = 0
    link_measured: bool = False
    _read_bytes: int = 0

    def follow(self) -> None:
        """Read the lines that were added to the records."""
        for path in self.folder.glob("*/records.jsonl"):
            with path.open("rb") as stream:
                stream.seek(self._read_bytes)
                text = stream.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read_bytes += len(whole)
            for line in map(json.loads, whole.splitlines()):
                if line["kind"] == "launch":
                    self.pids = [worker["pid"] for worker in line["workers"]]
                self.timed_iterations += line["kind"] == "iteration" and not line["warmup"]
                self.link_measured |= line["kind"] == "link"

    def wait(self, condition: Callable[[], bool]) -> bool:
        """Follow the records until `condition` holds; returns whether it did before the run ended."""
        while not self.ended.wait(LOOK_SECONDS):
            self.follow()
            if condition():
                return True
        return False


Disturb = Callable[[WatchedRun, Sequence[int], int], None]
"""Disturbs a run until that ends or has measured enough: its records, the cores to use, its number of iterations."""


def leave_alone(run: WatchedRun, cores: Sequence[int], iterations: int) -> None:
    """Does nothing."""


def _set_cores(pid: int, core: int) -> None:
    """Bind every thread of a process to one core."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):  # the thread may have ended
            os.sched_setaffinity(int(thread), {core})


def bind_to_one_core(run: WatchedRun, cores: Sequence[int], iterations: int) -> None:
    """Bind both workers to the first core, after their launch was recorded."""
    for pid in run.pids:
        _set_cores(pid, cores[0])


@contextlib.contextmanager
def _hogs(cores: Sequence[int]) -> Iterator[None]:
    """A program on each of these cores that only computes."""
    hogs = [subprocess.Popen([sys.executable, "-S", "-c", HOG]) for _ in cores]
    try:
        for hog, core in zip(hogs, cores, strict=True):
            os.sched_setaffinity(hog.pid, {core})
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def _until_iterations_end(run: WatchedRun, iterations: int) -> None:
    run.wait(lambda: run.timed_iterations >= iterations)


def hog_all_cores(run: WatchedRun, cores: Sequence[int], iterations: int) -> None:
    """Run a program that only computes on each worker's core."""
    for pid, core in zip(run.pids, cores, strict=False):
        _set_cores(pid, core)
    with _hogs(cores[:WORKERS]):
        run.ended.wait()


def nice_rank_beside_hog(run: WatchedRun, cores: Sequence[int], iterations: int) -> None:
    """Give rank 1 a lower priority (nice 5), and run a program on its core."""
    for pid, core in zip(run.pids, cores, strict=False):
        _set_cores(pid, core)
    for thread in os.listdir(f"/proc/{run.pids[1]}/task"):
        os.setpriority(os.PRIO_PROCESS, int(thread), 5)
    with _hogs([cores[1]]):
        run.ended.wait()


def _stop_in_turn(run: WatchedRun, pids: Sequence[int], running_seconds: float, over: Callable[[], bool]) -> None:
    """Stop each process for `STOP_SECONDS`, and let all run for `running_seconds`, until `over`."""
    while not (run.ended.is_set() or over()):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(STOP_SECONDS)
                os.kill(pid, signal.SIGCONT)
            if running_seconds:
                time.sleep(running_seconds)
        run.follow()


def stop_all_in_turn(run: WatchedRun, cores: Sequence[int], iterations: int) -> None:
    """Stop rank 0, then rank 1, and so on, while they merge."""
    _stop_in_turn(run, run.pids, 0.0, lambda: run.timed_iterations >= iterations)


def stop_rank(share: float) -> Disturb:
    """A function that stops rank 1 for this share of the time, while it merges."""

    def stop_one_rank(run: WatchedRun, cores: Sequence[int], iterations: int) -> None:
        running = STOP_SECONDS * (1 - share) / share
        _stop_in_turn(run, run.pids[1:2], running, lambda: run.timed_iterations >= iterations)

    return stop_one_rank


def stop_during_link_measurement(run: WatchedRun, cores: Sequence[int], iterations: int) -> None:
    """Stop the ranks in turn from the last merge until the link limit is measured."""
    if run.wait(lambda: run.timed_iterations >= iterations):
        _stop_in_turn(run, run.pids, 0.0, lambda: run.link_measured)


@dataclass(frozen=True)
class Case:
    """A case. `truth`: what is done; `limits`: what the run may say, as its `bottleneck` names it; `rank`: and of whom.

    `limit_disturbed`: whether the measurement of the link limit is disturbed: then the run has to mark it, or to
    measure until it is right.
    """

    truth: str
    limits: frozenset[str]
    disturb: Disturb = leave_alone
    rows: int = 1_000_000
    iterations: int = 60
    rank: int | None = None
    limit_disturbed: bool = False


HOST, FIXED = frozenset({"host"}), frozenset({"fixed-costs"})
SMALL = ("1e3", "1e4")
PHASES = frozenset({"partition", "exchange", "join", "link", "memory"})
REFERENCE = "undisturbed"
CASES: Mapping[str, Case] = {
    REFERENCE: Case("nothing", PHASES),
    "large": Case("nothing, 5e6 rows", PHASES, rows=5_000_000, iterations=10),
    "one-core": Case("both workers bound to one core after the launch", HOST, bind_to_one_core),
    "hogs": Case("a program that computes on each worker's core", HOST, hog_all_cores),
    "niced": Case("rank 1 at nice 5 beside such a program", HOST, nice_rank_beside_hog, rank=1, iterations=30),
    "in-turn": Case("ranks stopped in turn, one at any time", HOST, stop_all_in_turn),
    "stopped-25": Case("rank 1 stopped for 25 % of the time", HOST, stop_rank(0.25), rank=1),
    "stopped-35": Case("rank 1 stopped for 35 % of the time", HOST, stop_rank(0.35), rank=1),
    "stopped-50": Case("rank 1 stopped for 50 % of the time", HOST, stop_rank(0.5), rank=1),
    "link": Case(
        "ranks stopped in turn while the link limit is measured",
        PHASES,
        stop_during_link_measurement,
        limit_disturbed=True,
    ),
    "1e3": Case("nothing, 1e3 rows", FIXED, rows=1_000, iterations=300),
    "1e4": Case("nothing, 1e4 rows", FIXED, rows=10_000, iterations=300),
}


def measure(bench: Bench, case: Case, cores: Sequence[int]) -> Ran:
    """Make the run of a case.

    Raises
    ------
    RunFailed
        If it did not end well.
    """
    run = WatchedRun(bench.next_results_folder)

    def disturb_when_launched() -> None:
        if run.wait(lambda: bool(run.pids)):
            case.disturb(run, cores, case.iterations)

    disturbing = threading.Thread(target=disturb_when_launched)
    disturbing.start()
    try:
        return bench.merge(workers=WORKERS, chunk=case.rows, iterations=case.iterations, pipeline="off")
    finally:
        run.ended.set()
        disturbing.join()


@dataclass(frozen=True)
class Verdict:
    """What a run said of its limit, and whether that is right; `cells`: its row of the table."""

    right: bool
    cells: Sequence[str]


def judge(name: str, documents: Mapping[str, Document]) -> Verdict:
    """Judge the document of a case; `documents`: those of all cases that were measured, by name."""
    case, document = CASES[name], documents[name]
    limit, link = document["bottleneck"], document["link"]
    what = limit["besides"] if limit["what"] == "busy-host" else limit["what"]
    right = what in case.limits and case.rank in (None, limit["rank"])
    if case.limit_disturbed and REFERENCE in documents:
        usual = documents[REFERENCE]["link"]["limit_bytes_per_second"]
        right = right and (link["disturbed"] is not None or link["limit_bytes_per_second"] >= LEAST_LIMIT * usual)
    true = true_cost(name, documents)
    says = limit["share"] if case.limits in (HOST, FIXED) else None
    named = what if limit["rank"] is None else f"{what} (rank {limit['rank']})"
    cells = [
        name,
        case.truth,
        f"{1e3 * document['wall_seconds']['median']:.1f}",
        named + (", busy host" if limit["what"] == "busy-host" else ""),
        "-" if says is None else f"{says:.0%}",
        "-" if true is None else f"{true:.0%}",
        f"disturbed: {link['disturbed']}" if link["disturbed"] else f"{link['fraction']:.0%}",
        "yes" if right else "no",
    ]
    return Verdict(right, cells)


def true_cost(name: str, documents: Mapping[str, Document]) -> float | None:
    """The share of the wall-clock time that the disturbance, or the fixed costs, of a case really take; None: unknown.

    Of a disturbance: 1 − the wall of the undisturbed run ÷ that of this run. Of fixed costs: where the straight line
    through the walls of both small cases meets no rows, ÷ the wall.
    """
    walls: dict[str, float] = {each: document["wall_seconds"]["median"] for each, document in documents.items()}
    if CASES[name].limits == HOST and REFERENCE in walls:
        return max(0.0, 1 - walls[REFERENCE] / walls[name])
    few, more = SMALL
    if CASES[name].limits == FIXED and few in walls and more in walls:
        per_row = (walls[more] - walls[few]) / (CASES[more].rows - CASES[few].rows)
        return min(1.0, (walls[few] - per_row * CASES[few].rows) / walls[name])
    return None


@click.command(context_settings=command.CONTEXT)
@command.option("--only", command.NAMES, None, f"Only these cases: {', '.join(CASES)}. [all]")
@command.option("--output", command.FILE, None, "Write the table to this file.", metavar="FILE.toml")
def limited_by(only: list[str] | None, output: Path | None) -> None:
    """Print what runs say of their limits, beside what really limits them."""
    wanted, cores = command.chosen(only, CASES), sorted(os.sched_getaffinity(0))
    if len(cores) < WORKERS:
        raise UsageError(f"this program needs {WORKERS} cores, but may use {len(cores)}")
    documents: dict[str, Document] = {}
    failures: list[str] = []

    def measure_all() -> None:
        with scratch() as bench:
            for name in (each for each in CASES if each in wanted):
                try:
                    documents[name] = measure(bench, CASES[name], cores).document
                except RunFailed as error:
                    failures.append(f"{name}: {error}")
                    command.say(failures[-1])
                else:
                    command.say(f"{name}: {documents[name]['bottleneck']['because']}")

    status = command.until_interrupted(measure_all)
    verdicts = [judge(name, documents) for name in documents]
    click.echo(command.table(HEADINGS, [each.cells for each in verdicts], text=(0, 1, 3, 6, 7)))
    command.write(
        output, command.stored_table(TITLE, PLACE, ABOUT, HEADINGS, [each.cells for each in verdicts], failures)
    )
    sys.exit(UNMEASURED if status or failures else WRONG if not all(each.right for each in verdicts) else 0)


if __name__ == "__main__":
    command.run(limited_by, "limited_by")
