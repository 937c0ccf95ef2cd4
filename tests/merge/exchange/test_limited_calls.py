"""Calls without a limit of their own: an abort or silence ends the wait, and no call follows one that is stuck."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from merge_bench.errors import RunFailed
from merge_bench.merge.exchange.base import AbortFlag
from merge_bench.merge.exchange.rapidsmpf import AbortableCallThread


@pytest.fixture
def stop() -> Iterator[threading.Event]:
    """An event that a call without end waits for."""
    event = threading.Event()
    yield event
    event.set()


def calls_of(abort: AbortFlag, timeout: float = 30.0) -> AbortableCallThread:
    return AbortableCallThread(3, abort, timeout, lambda: None)


def test_results_and_errors_are_those_of_the_call() -> None:
    calls = calls_of(AbortFlag())
    assert calls.call_and_wait(lambda: threading.current_thread().name, "asking") == "limited-calls"
    with pytest.raises(KeyError):
        calls.call_and_wait(lambda: {}["no"], "asking")
    assert calls.call_and_wait(lambda: 7, "asking") == 7
    calls.end_thread(lambda: None, 5.0)


def test_what_prepares_the_thread_runs_there_first() -> None:
    threads = []
    calls = AbortableCallThread(0, AbortFlag(), 30.0, lambda: threads.append(threading.get_ident()))
    assert calls.call_and_wait(threading.get_ident, "asking") == threads[0]


def test_an_abort_ends_the_wait_and_no_further_call_is_made(stop: threading.Event) -> None:
    abort = AbortFlag()
    calls = calls_of(abort)
    threading.Timer(0.1, abort.abort_run, ("rank 1 died",)).start()
    with pytest.raises(RunFailed, match="rank 1 died"):
        calls.call_and_wait(stop.wait, "waiting for rows")
    abort.clear_abort()
    with pytest.raises(RunFailed, match="rank 3 is still waiting for rows, after a run that failed"):
        calls.call_and_wait(lambda: 1, "asking")
    began = time.monotonic()
    calls.end_thread(lambda: None, 0.1)
    assert time.monotonic() - began < 5


def test_a_wait_without_progress_and_heartbeats_ends(stop: threading.Event) -> None:
    with pytest.raises(RunFailed, match="rank 3 was waiting for rows for 0 s without progress"):
        calls_of(AbortFlag(), timeout=0.2).call_and_wait(stop.wait, "waiting for rows")


def test_progress_and_heartbeats_prolong_a_wait(stop: threading.Event) -> None:
    abort = AbortFlag()
    threading.Timer(0.6, stop.set).start()
    assert calls_of(abort, timeout=0.2).call_and_wait(stop.wait, "waiting for rows", time.monotonic)
    stop.clear()
    threading.Timer(0.5, stop.set).start()
    calls, beating = calls_of(abort, timeout=0.2), threading.Event()

    def beat() -> None:
        while not beating.wait(0.05):
            abort.note_heartbeat()

    threading.Thread(target=beat, daemon=True).start()
    assert calls.call_and_wait(stop.wait, "waiting for rows")
    beating.set()
