"""A signal that somebody else's code swallows ends the run all the same."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from merge_bench.cluster import scheduler_client, signals
from merge_bench.cluster.worker_calls import WorkerStepRunner

ROOT = Path(__file__).resolve().parents[2]
SWALLOWS = """
import importlib.abc, os, signal, sys, time

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1)
            except BaseException:
                pass

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.cluster
@pytest.mark.parametrize("module", ["click", "merge_bench.campaign", "numpy"])
def test_a_library_that_swallows_control_c_while_it_is_imported(tmp_path: Path, module: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(SWALLOWS.format(module=module))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "merge_bench", "--chunk", "1000", "--results", str(tmp_path / "results")],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGINT, done.stderr
    assert not (tmp_path / "results").exists()


def swallowed(number: signal.Signals) -> None:
    with contextlib.suppress(BaseException):
        os.kill(os.getpid(), number)
        threading.Event().wait(1)


class NothingWrong:
    """A watch that notices nothing."""

    def check(self) -> None:
        pass


def never(watched: Any) -> None:
    calls = WorkerStepRunner(None, None, 15.0)
    calls.watch = watched
    calls.wait_until(lambda: False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_next_wait_raises_it(number: signal.Signals) -> None:
    with signals.raise_on_signals():
        swallowed(number)
        with pytest.raises(signals.Interrupted, match=f"interrupted by {number.name}"):
            never(NothingWrong())


def test_a_wait_for_dask_raises_it() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        signals.raise_on_signals(),
    ):  # accepts a connection, and never answers
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        swallowed(signal.SIGINT)
        with pytest.raises(signals.Interrupted):
            scheduler_client.open_client(address, None, seconds=30.0)


def test_a_lost_terminal_that_is_ignored_stays_ignored() -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.raise_on_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            signals.raise_if_interrupted()
            assert signals.pending_interruption() is None
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_not_while_processes_are_ended() -> None:
    with signals.raise_on_signals():
        swallowed(signal.SIGINT)
        with signals.ignore_signals():
            signals.raise_if_interrupted()
    signals.raise_if_interrupted()
