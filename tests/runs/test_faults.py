"""Death and silence in the middle of a run: status 3 in time, the guilty one named, the records whole, nothing left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from merge_bench.records.reader import read_campaign
from merge_bench.records.schema import IterationLine, LaunchEndLine
from tests.helpers import leftovers
from tests.helpers.runs import ENDLESS, Finished, Running, start
from tests.helpers.strict_records import validate

pytestmark = pytest.mark.cluster

IN_TIME = 15.0  # seconds from a fault to the end of the run
SIGNAL_IN_TIME = 5.0
"""Seconds from a signal to the end of the run, on a machine that takes no time to import a module."""

Begin = Callable[..., Running]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Start a run that merges until it is stopped."""
    started: list[Running] = []

    def begin(*options: str | Path, workers: int = 2, environ: Mapping[str, str] | None = None) -> Running:
        running = start(tmp_path, *ENDLESS, "--workers", str(workers), *options, environ=environ)
        started.append(running)
        return running

    yield begin
    for running in started:
        running.end()


def check_failed(finished: Finished, since: float, limit: float, *parts: str) -> None:
    """Ended with status 3 within the limit; the message has these parts; what was measured is there."""
    took = time.monotonic() - since
    finished.check_ended(3)
    assert took < limit, f"{took:.1f} s"
    document = finished.document
    told = [line for line in finished.errors.splitlines() if line.startswith("merge_bench: ")]
    sentence = next(line for line in told if not line.startswith("merge_bench: warning: "))
    for part in parts:
        assert part in document["error"]["message"]
        assert part in sentence
    assert document["verified"] is False
    assert [end.status for end in finished.of(LaunchEndLine)] == [3]


@pytest.mark.parametrize(
    ("name", "pipeline"), [pytest.param("worker-0", "off", marks=pytest.mark.soak), ("worker-1", "on")]
)
def test_killed_worker(begin: Begin, name: str, pipeline: str) -> None:
    # One of the two over shared memory that has files in /dev/shm; the check for left-overs looks there too.
    running = begin("--pipeline", pipeline, environ={"UCX_TLS": "posix,tcp"} if name == "worker-1" else {})
    victim = running.until_merging()[name]
    os.kill(victim, signal.SIGKILL)
    since = time.monotonic()
    finished = running.finish()
    check_failed(finished, since, IN_TIME, f"worker {name}", f"process {victim}", "signal 9")
    failure = finished.failure
    assert (failure.code, failure.rank) == ("worker-died", int(name[-1]))
    timed = [line for line in finished.of(IterationLine) if not line.warmup]
    assert len(timed) >= 3
    assert [line.index for line in timed] == list(range(len(timed)))
    assert finished.document["wall_seconds"]["median"] > 0
    assert read_campaign(finished.folder).end is not None


@pytest.mark.parametrize(
    ("pipeline", "timeout"),
    [
        ("off", ("--timeout", "6")),
        pytest.param("off", (), marks=pytest.mark.soak),
        pytest.param("on", (), marks=pytest.mark.soak),
    ],
)
def test_frozen_worker(begin: Begin, pipeline: str, timeout: tuple[str, ...]) -> None:
    """Also within the limit that is the default."""
    running = begin("--pipeline", pipeline, *timeout)
    victim = running.until_merging()["worker-1"]
    os.kill(victim, signal.SIGSTOP)
    since = time.monotonic()
    finished = running.finish()
    check_failed(finished, since, IN_TIME, "worker worker-1", f"process {victim}", "sent no heartbeat")
    assert finished.failure.rank == 1
    assert len(finished.of(IterationLine)) >= 4


@pytest.mark.soak  # the same watch names a worker that is killed in a merge of ours, above
def test_worker_killed_while_dask_merges(begin: Begin) -> None:
    running = begin("--exchange", "dask", "--chunk", "2e4", "--warmup", "0")
    victim = running.until_merging(1)["worker-0"]
    os.kill(victim, signal.SIGKILL)
    since = time.monotonic()
    check_failed(running.finish(), since, IN_TIME, "worker worker-0", "signal 9")


def test_killed_scheduler(begin: Begin) -> None:
    running = begin(workers=1)
    victim = running.until_merging()["scheduler"]
    os.kill(victim, signal.SIGKILL)
    since = time.monotonic()
    check_failed(running.finish(), since, IN_TIME, "scheduler", f"process {victim}", "signal 9")


def launching(running: Running) -> None:
    running.until(lambda: "scheduler" in running.workers(), "launching")


def generating(running: Running) -> None:
    """The worker makes its tables: it is there, and is heard to get the plugin."""
    logs = running.results

    def heard() -> bool:
        texts = [log.read_text(errors="replace") for log in logs.glob("*/logs/*worker*.log")]
        return len(texts) == 1 and all("merge_bench" in text and "Starting Worker plugin" in text for text in texts)

    running.until(heard, "generating")


def merging(running: Running) -> None:
    running.until_merging()


@pytest.mark.parametrize(
    ("number", "moment"), [(signal.SIGINT, launching), (signal.SIGTERM, generating), (signal.SIGHUP, merging)]
)
def test_signals(begin: Begin, number: signal.Signals, moment: Callable[[Running], None]) -> None:
    running = begin("--chunk", "4e6" if moment is generating else "2e4", workers=1)
    moment(running)
    os.kill(running.process.pid, number)
    since = time.monotonic()
    to_import = since - running.started if moment is launching else 0.0  # the signal waits for one import, of Dask
    if moment is merging:  # a second signal must not stop the ending of processes
        time.sleep(0.05)
        os.kill(running.process.pid, signal.SIGINT)
    finished = running.finish()
    check_failed(finished, since, SIGNAL_IN_TIME + 3 * to_import, f"interrupted by {number.name}")
    assert finished.failure.code == "interrupted"
    if moment is merging:
        assert len(finished.of(IterationLine)) >= 4


def test_a_signal_while_libraries_are_loaded_before_the_first_launch(begin: Begin) -> None:
    running = begin(workers=1)
    running.until(lambda: any(each.stat().st_size for each in running.results.glob("*/records.jsonl")), "its records")
    os.kill(running.process.pid, signal.SIGINT)
    finished = running.finish()
    finished.check_ended(3)
    assert finished.failure.code == finished.document["error"]["code"] == "interrupted"
    assert finished.document["error"]["message"].startswith("interrupted by SIGINT before the first ")


def can_mount(unshare: list[str], place: Path) -> bool:
    """Whether this user may mount a file system in a name space of its own."""
    if shutil.which("unshare") is None:
        return False
    attempt = [*unshare, "mount", "-t", "tmpfs", "none", str(place)]
    return subprocess.run(attempt, capture_output=True, check=False).returncode == 0


@pytest.mark.soak  # across hosts it is among the normal tests
def test_full_disk(tmp_path: Path) -> None:
    """Results on a file system of 256 KiB, mounted where only this run sees it."""
    unshare = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--user", "--map-root-user"]), "--"]
    small, kept = tmp_path / "small", tmp_path / "run" / "results"
    small.mkdir()
    if not can_mount(unshare, small):
        pytest.skip("this user may not mount a file system, not even in a name space of its own")
    script = 'mount -t tmpfs -o size=256k none "$0" || exit 99; "$@"; status=$?; cp -r "$0/." "$KEPT"; exit $status'
    running = start(
        tmp_path / "run",
        *ENDLESS,
        "--workers",
        "2",
        "--results",
        small,
        command=[*unshare, "sh", "-c", script, str(small)],
        environ={"KEPT": str(kept)},
    )
    kept.mkdir()
    try:
        finished = running.finish()
    finally:
        running.end()
    assert finished.status == 3, finished.shown()
    sentence = finished.errors.splitlines()[0]
    assert "No space left on device" in sentence
    assert str(small) in sentence
    assert "Traceback" not in finished.errors
    assert finished.document["error"] is not None
    finished.check_clean()
    lines = (finished.folder / "records.jsonl").read_bytes().splitlines()
    assert sum(isinstance(validate(line), IterationLine) for line in lines) > 3


def test_mistakes_of_the_tests_would_be_seen(tmp_path: Path) -> None:
    """The search for left-overs finds a process, a folder and a file of a run."""
    temp = tmp_path / "tmp"
    temp.mkdir()
    before = leftovers.Before(temp)
    (temp / "merge-bench-abc").mkdir()
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], env={"TMPDIR": str(temp)}, stdin=subprocess.PIPE)
    file = Path("/dev/shm") / f"merge-bench-test-{os.getpid()}"
    try:
        file.touch()
        deadline = time.monotonic() + 60
        while sleeper.pid not in leftovers.processes(temp) and time.monotonic() < deadline:
            time.sleep(0.01)  # a process that has just been started may have no environment yet
        found = before.left(set())
        assert any(f"process {sleeper.pid}" in one for one in found)
        assert f"folder {temp / 'merge-bench-abc'}" in found
        assert str(file) in found
    finally:
        file.unlink()
        sleeper.kill()
        sleeper.wait()
