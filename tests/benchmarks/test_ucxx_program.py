"""What `benchmarks/peer/ucxx_program.py` mends in UCXX's program, with a replacement for that program."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.peer import ucxx_merge

ROOT = Path(__file__).resolve().parents[2]

# Starts a server and two workers and waits for results, as UCXX 0.52 does: by `fork`, and without keeping the workers'
# queues. What the program runs is `worker` of its own module. A command-line argument ends one of the processes.
UTILS = textwrap.dedent(
    """
    import multiprocessing as mp

    def server_process(queue, run):
        for _ in range(2):
            queue.put(run("server"))

    def worker_process(queue, rank, run):
        queue.put(run(f"worker{rank}"))

    def _start(target, *args):
        context = mp.get_context("fork")
        queue = context.Queue()
        started = context.Process(target=target, args=(queue, *args))
        started.start()
        print(started.pid, flush=True)
        return started, queue

    def _run_cluster_server(run):
        return _start(server_process, run)

    def _run_cluster_workers(run):
        return [_start(worker_process, rank, run)[0] for rank in range(2)]
    """
)
PROGRAM = textwrap.dedent(
    """
    import os, signal, sys, time, types
    from ucxx.benchmarks.utils import _run_cluster_server, _run_cluster_workers

    class DataFrame:
        def serialize(self):
            return {}, []

    cudf = types.SimpleNamespace(DataFrame=DataFrame)

    def run(name):
        who, how = sys.argv[1:]
        if who == name:
            time.sleep(0.3)
            if how.startswith("SIG"):
                os.kill(os.getpid(), getattr(signal, how))
            sys.exit(int(how))
        while who != "nobody":
            time.sleep(1)
        return sorted(cudf.DataFrame().serialize()[0])

    def main():
        server, queue = _run_cluster_server(run)
        workers = _run_cluster_workers(run)
        results = [queue.get() for _ in workers]
        for worker in workers:
            worker.join()
        server.join()
        print(*results)
    """
)
FAILURES = [
    ("worker1", "SIGSEGV", "ucxx.benchmarks.cudf_merge: worker 1 was killed by signal 11 (Segmentation fault)"),
    ("worker0", "3", "ucxx.benchmarks.cudf_merge: worker 0 ended with status 3"),
    ("server", "SIGKILL", "ucxx.benchmarks.cudf_merge: the server was killed by signal 9 (Killed)"),
]
SEMAPHORES = Path("/dev/shm")


class Frame:
    def serialize(self) -> tuple[dict[str, Any], list[Any]]:
        return {"columns": 2}, []


class NamedFrame(Frame):
    def serialize(self) -> tuple[dict[str, Any], list[Any]]:
        return {"type-serialized": b"its own"}, []


def test_the_field_that_cudf_no_longer_writes_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    program = types.ModuleType("ucxx.benchmarks.cudf_merge")
    program.cudf = types.SimpleNamespace(DataFrame=Frame)
    benchmarks = types.ModuleType("ucxx.benchmarks")
    benchmarks.cudf_merge = program
    benchmarks.utils = types.ModuleType("ucxx.benchmarks.utils")
    monkeypatch.setitem(sys.modules, "ucxx.benchmarks", benchmarks)
    monkeypatch.setitem(sys.modules, "ucxx.benchmarks.cudf_merge", program)
    from benchmarks.peer import ucxx_program

    ucxx_program.mend(NamedFrame)
    header, _ = Frame().serialize()
    assert set(header) == {"columns", ucxx_program.FIELD}
    assert pickle.loads(header[ucxx_program.FIELD]) is Frame
    assert NamedFrame().serialize()[0] == {ucxx_program.FIELD: b"its own"}


def install(folder: Path) -> dict[str, str]:
    package = folder / "ucxx" / "benchmarks"
    package.mkdir(parents=True)
    for each in (package.parent, package):
        (each / "__init__.py").touch()
    (package / "cudf_merge.py").write_text(PROGRAM)
    (package / "utils.py").write_text(UTILS)
    return {**os.environ, **ucxx_merge.ENVIRONMENT, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}


def run(folder: Path, who: str, how: str, method: str = "spawn") -> subprocess.CompletedProcess[str]:
    environment = {**install(folder), "UCXX_PROGRAM_START": method}
    return subprocess.run(
        [sys.executable, "-m", ucxx_merge.MODULE, who, how],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
        env=environment,
    )


def semaphores() -> set[str]:
    return {path.name for path in SEMAPHORES.glob("sem.mp-*")}


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.parametrize(("who", "how", "sentence"), FAILURES)
def test_the_program_ends_when_one_of_its_processes_has_failed(
    tmp_path: Path, who: str, how: str, sentence: str, method: str
) -> None:
    before = semaphores()
    done = run(tmp_path, who, how, method)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == sentence
    assert ("Fatal Python error: Segmentation fault" in done.stderr) == (how == "SIGSEGV")
    started = [int(word) for word in done.stdout.split()]
    assert len(started) == 3
    assert not any(psutil.pid_exists(pid) for pid in started)
    assert semaphores() <= before


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_program_whose_processes_end_well_ends_well_and_each_writes_the_field(tmp_path: Path, method: str) -> None:
    before = semaphores()
    done = run(tmp_path, "nobody", "", method)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "['type-serialized'] ['type-serialized']"
    assert semaphores() <= before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_program_that_is_ended_takes_its_processes_with_it(tmp_path: Path, number: signal.Signals) -> None:
    before = semaphores()
    with subprocess.Popen(
        [sys.executable, "-m", ucxx_merge.MODULE, "no process", ""],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=install(tmp_path),
    ) as program:
        assert program.stdout is not None
        started = [psutil.Process(int(program.stdout.readline())) for _ in range(3)]
        program.send_signal(number)
        assert program.wait(30) == (1 if number == signal.SIGTERM else -number)
        _, alive = psutil.wait_procs(started, 10)
        assert not alive
        deadline = time.monotonic() + 10
        while semaphores() - before and time.monotonic() < deadline:  # Python's resource tracker removes them
            time.sleep(0.05)
        assert semaphores() <= before


def test_another_start_method_is_refused_in_a_sentence(tmp_path: Path) -> None:
    done = run(tmp_path, "nobody", "", "thread")
    assert (done.returncode, done.stderr) == (1, "UCXX_PROGRAM_START=thread must be spawn or fork\n")
