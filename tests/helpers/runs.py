"""Real runs: processes that are started, watched from outside, and ended by their ids; or commands in this process."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from merge_bench import cli
from merge_bench.config.ucx_choice import undo_ucx_choice
from merge_bench.records.schema import CampaignEndLine, FailureLine, IterationLine, Record
from tests.conftest import QUICK_HOOKS
from tests.helpers import leftovers
from tests.helpers.strict_records import validate

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 240.0  # seconds: far beyond what a run takes, for a machine that is busy
SMALL = ("--chunk", "2e4", "--iterations", "2")
OF_THE_MACHINE = re.compile(
    r"merge_bench: (warning: busy-host: |\d+ launch(es)? takes? about |about .* left, as |\d+:\d\d:\d\d )"
    r"|  → run again .*quiet"
)
"""Lines on standard error that depend on how busy or slow the machine is, as the phase after each half minute."""
ENDLESS = ("--chunk", "2e5", "--iterations", "1_000_000", "--verify", "off")


def environment(temp: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The surroundings of a run: this checkout's package, a temporary folder of its own, no settings from outside."""
    mine = {n: v for n, v in os.environ.items() if not n.startswith(("MERGE_BENCH_", "UCX", "DASK_", "PYTEST"))}
    path = os.pathsep.join([str(ROOT), *filter(None, [mine.get("PYTHONPATH")])])
    return {**mine, **dict([QUICK_HOOKS]), "PYTHONPATH": path, "TMPDIR": str(temp), **(extra or {})}


@dataclass
class Finished:
    """A run that has ended."""

    status: int
    output: str
    errors: str
    results: Path
    pids: set[int]
    before: leftovers.Before
    seconds: float

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on standard output."""
        document = json.loads(self.output)
        assert isinstance(document, dict)
        return document

    @property
    def folder(self) -> Path:
        """The campaign's folder."""
        (folder,) = self.results.iterdir()
        return folder

    @property
    def records(self) -> list[Record]:
        """Every line of the records, validated against the schema."""
        return [validate(line) for line in (self.folder / "records.jsonl").read_bytes().splitlines()]

    def of(self, *kinds: type[Any]) -> list[Any]:
        """The records of these kinds."""
        return [record for record in self.records if isinstance(record, kinds)]

    @property
    def failure(self) -> FailureLine:
        """The one failure that was recorded."""
        (failure,) = self.of(FailureLine)
        assert isinstance(failure, FailureLine)
        return failure

    def check_ended(self, status: int) -> Finished:
        """The exit status, a readable and complete campaign that says the same, and nothing left behind."""
        assert self.status == status, self.shown()
        assert "Traceback" not in self.errors, self.errors
        end = self.of(CampaignEndLine)
        assert [line.status for line in end] == [status], self.shown()
        self.check_clean()
        return self

    def check_clean(self, seconds: float = 2.0) -> None:
        """No process, no scratch folder, no shared memory of the run is left."""
        assert self.before.left_after(self.pids, seconds) == []

    def check_refused(self, *parts: str) -> str:
        """Wrong usage: status 2, one sentence that holds these parts, and nothing started or written."""
        assert self.status == 2, self.shown()
        lines = self.errors.strip().splitlines()
        assert len(lines) == 1, self.errors
        assert lines[0].startswith("merge_bench: ")
        for part in parts:
            assert part in lines[0]
        assert not self.pids, self.pids
        self.check_clean()
        return lines[0]

    def shown(self) -> str:
        """What the run said, for a failing assertion."""
        logs = "".join(
            f"\n--- {log.name}\n" + log.read_text(errors="replace")[-3000:] for log in self.results.glob("*/logs/*.log")
        )
        return f"status {self.status} after {self.seconds:.1f} s\n{self.output[-3000:]}\n{self.errors[-3000:]}{logs}"


@dataclass
class Running:
    """A run under way. `pids`: its processes beside the driver, as far as they were seen."""

    process: subprocess.Popen[str]
    results: Path
    temp: Path
    before: leftovers.Before
    started: float
    pids: set[int] = field(default_factory=set)

    def workers(self) -> dict[str, int]:
        """Scheduler and workers that live now: name → process id."""
        found = {}
        for pid, command in leftovers.processes(self.temp).items():
            words = command.split()
            if "--name" in words:
                found[words[words.index("--name") + 1]] = pid
            elif "dask_scheduler" in words:
                found["scheduler"] = pid
            else:
                continue
            self.pids.add(pid)
        return found

    def lines(self) -> list[Record]:
        """The records so far."""
        found: list[Record] = []
        for path in self.results.glob("*/records.jsonl"):
            for line in path.read_bytes().splitlines(keepends=True):
                if line.endswith(b"\n"):
                    found.append(validate(line))
        return found

    def iterations(self) -> int:
        """Timed iterations on the disk so far."""
        return sum(isinstance(line, IterationLine) and not line.warmup for line in self.lines())

    def until(self, reached: Callable[[], bool], what: str) -> None:
        """Wait for a moment of the run."""
        deadline = time.monotonic() + LIMIT
        while not reached():
            assert self.process.poll() is None, f"ended before {what}: {self.finish().shown()}"
            assert time.monotonic() < deadline, f"never came to {what}"
            time.sleep(0.05)

    def until_merging(self, iterations: int = 3) -> dict[str, int]:
        """Wait until timed iterations run; the processes by name."""
        self.until(lambda: self.iterations() >= iterations, "timed iterations")
        return self.workers()

    def finish(self, limit: float = LIMIT) -> Finished:
        """Wait for the end."""
        deadline = time.monotonic() + limit
        while True:
            self.workers()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=0.2)
                break
            if time.monotonic() > deadline:
                self.end()
                raise AssertionError(f"the run did not end within {limit:.0f} s")
        seconds = time.monotonic() - self.started
        output, errors = ((self.temp / name).read_text(errors="replace") for name in ("stdout", "stderr"))
        said = _of_the_run(errors)
        return Finished(self.process.returncode, output, said, self.results, self.pids, self.before, seconds)

    def end(self) -> None:
        """End the driver, for tests that failed; its children follow it."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def start(
    folder: Path,
    *options: str | Path,
    environ: Mapping[str, str] | None = None,
    command: Sequence[str] = (),
    json_output: bool = True,
    verb: Sequence[str] = ("run",),
) -> Running:
    """Start `merge_bench VERB` with these options; results go to `folder`/results. `command` stands before it."""
    temp, results = folder / "tmp", folder / "results"
    temp.mkdir(parents=True)
    argv = [
        *command,
        sys.executable,
        "-P",
        "-m",
        "merge_bench",
        *_words(options, verb, results, json_output=json_output),
    ]
    before = leftovers.Before(temp)
    with (temp / "stdout").open("w") as output, (temp / "stderr").open("w") as errors:
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env=environment(temp, environ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            text=True,
        )
    return Running(process, results, temp, before, time.monotonic())


def _of_the_run(errors: str) -> str:
    return "".join(line for line in errors.splitlines(keepends=True) if not OF_THE_MACHINE.match(line))


def _words(options: Sequence[str | Path], verb: Sequence[str], results: Path, *, json_output: bool) -> list[str]:
    where = () if "--results" in options or verb[0] in ("check", "transports") else ("--results", str(results))
    return [*verb, *(["--json"] if json_output else []), *where, *map(str, options)]


def run(folder: Path, *options: str | Path, **more: Any) -> Finished:
    """A whole run."""
    running = start(folder, *options, **more)
    try:
        return running.finish()
    finally:
        running.end()


def command(
    folder: Path,
    *options: str | Path,
    environ: Mapping[str, str] | None = None,
    json_output: bool = True,
    verb: Sequence[str] = ("run",),
) -> Finished:
    """The same in this process, which saves starting Python and importing: for refusals, running clusters, mpirun."""
    temp, results = folder / "tmp", folder / "results"
    temp.mkdir(parents=True, exist_ok=True)
    before, started = leftovers.Before(temp), time.monotonic()
    output, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    surroundings = environment(temp, environ)
    with pytest.MonkeyPatch.context() as patch, undo_ucx_choice():
        for name in os.environ.keys() - surroundings.keys():
            patch.delenv(name)
        for name, value in surroundings.items():
            patch.setenv(name, value)
        patch.chdir(folder)
        patch.setattr(tempfile, "tempdir", str(temp))
        patch.setattr(sys, "argv", ["merge-bench", *_words(options, verb, results, json_output=json_output)])
        with (
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
            pytest.raises(SystemExit) as leaving,
        ):
            cli.main()
    seconds = time.monotonic() - started
    printed, said = (stream.buffer.getvalue().decode() for stream in (output, errors))
    return Finished(int(leaving.value.code or 0), printed, _of_the_run(said), results, set(), before, seconds)
