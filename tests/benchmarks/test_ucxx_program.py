"""What `benchmarks/peer/ucxx_program.py` mends in UCXX's program, with a replacement for that program."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.peer import ucxx_merge

ROOT = Path(__file__).resolve().parents[2]

# Forks a server and two workers and waits for results, as UCXX 0.52 does. A command-line argument ends one of them.
PROGRAM = textwrap.dedent(
    """
    import ctypes, multiprocessing, os, signal, sys, time, types

    cudf = types.SimpleNamespace(DataFrame=type("DataFrame", (), {"serialize": lambda self: ({}, [])}))
    WHO, HOW = sys.argv[1:]
    context = multiprocessing.get_context("fork")

    def process(name, queue):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # ends with its parent, so that a failed test leaves nothing
        if WHO == name:
            time.sleep(0.3)
            if HOW.startswith("SIG"):
                os.kill(os.getpid(), getattr(signal, HOW))
            sys.exit(int(HOW))
        while WHO != "nobody":
            time.sleep(1)
        queue.put(name)

    def start(name):
        queue = context.Queue()
        started = context.Process(target=process, args=(name, queue))
        started.start()
        print(started.pid, flush=True)
        return started, queue

    def _run_cluster_server():
        return start("server")

    def _run_cluster_workers():
        return [start(f"worker{rank}")[0] for rank in range(2)]

    def main():
        server, queue = _run_cluster_server()
        workers = _run_cluster_workers()
        queue.get()
        for worker in workers:
            worker.join()
        server.join()
    """
)


class Frame:
    def serialize(self) -> tuple[dict[str, Any], list[Any]]:
        return {"columns": 2}, []


class NamedFrame(Frame):
    def serialize(self) -> tuple[dict[str, Any], list[Any]]:
        return {"type-serialized": b"its own"}, []


def test_the_field_that_cudf_no_longer_writes_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    program = types.ModuleType("ucxx.benchmarks.cudf_merge")
    program.cudf = types.SimpleNamespace(DataFrame=Frame)  # type: ignore[attr-defined]
    benchmarks = types.ModuleType("ucxx.benchmarks")
    benchmarks.cudf_merge = program  # type: ignore[attr-defined]
    monkeypatch.setattr(Frame, "serialize", Frame.serialize)  # so that it is put back
    monkeypatch.setitem(sys.modules, "ucxx.benchmarks", benchmarks)
    monkeypatch.setitem(sys.modules, "ucxx.benchmarks.cudf_merge", program)
    from benchmarks.peer import ucxx_program

    ucxx_program.mend(NamedFrame)
    header, _ = Frame().serialize()
    assert set(header) == {"columns", ucxx_program.FIELD}
    assert pickle.loads(header[ucxx_program.FIELD]) is Frame
    assert NamedFrame().serialize()[0] == {ucxx_program.FIELD: b"its own"}


def run(folder: Path, who: str, how: str) -> subprocess.CompletedProcess[str]:
    package = folder / "ucxx" / "benchmarks"
    package.mkdir(parents=True)
    for each in (package.parent, package):
        (each / "__init__.py").touch()
    (package / "cudf_merge.py").write_text(PROGRAM)
    path = os.pathsep.join([str(folder), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", ucxx_merge.MODULE, who, how], capture_output=True, text=True, timeout=60, check=False,
        cwd=ROOT, env={**os.environ, **ucxx_merge.ENVIRONMENT, "PYTHONPATH": path},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("who", "how", "sentence"),
    [
        ("worker1", "SIGSEGV", "ucxx.benchmarks.cudf_merge: worker 1 was killed by signal 11 (Segmentation fault)"),
        ("worker0", "3", "ucxx.benchmarks.cudf_merge: worker 0 ended with status 3"),
        ("server", "SIGKILL", "ucxx.benchmarks.cudf_merge: the server was killed by signal 9 (Killed)"),
    ],
)
def test_the_program_ends_when_one_of_its_processes_has_failed(
    tmp_path: Path, who: str, how: str, sentence: str
) -> None:
    done = run(tmp_path, who, how)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == sentence
    assert ("Fatal Python error: Segmentation fault" in done.stderr) == (how == "SIGSEGV")
    started = [int(word) for word in done.stdout.split()]
    assert len(started) == 3
    assert not any(psutil.pid_exists(pid) for pid in started)


def test_a_program_whose_processes_end_well_ends_well(tmp_path: Path) -> None:
    done = run(tmp_path, "nobody", "")
    assert (done.returncode, done.stderr) == (0, "")
