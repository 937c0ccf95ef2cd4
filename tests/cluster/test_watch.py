"""Which process a run names when processes of its cluster have died."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from merge_bench.cluster.base import EndedProcess
from merge_bench.cluster.worker_calls import SETTLE_SECONDS, LaunchedWorker, ProcessWatch
from merge_bench.errors import LaunchFailed


class Dead:
    """A launcher some of whose processes have ended."""

    owns_processes = True

    def __init__(self, *ended: EndedProcess) -> None:
        self.ended = ended

    def ended_processes(self) -> list[EndedProcess]:
        return list(self.ended)

    def read_log_tail(self, role: str) -> str:
        return ""

    def hosts_by_process_role(self) -> dict[str, str]:
        return {}


class Quiet:
    """A client whose scheduler does not answer."""

    id = "me"

    def run_on_scheduler(self, *_: Any) -> None:
        raise OSError


def named(*statuses: int) -> str:
    ended = [EndedProcess(f"w{rank}", "here", 100 + rank, status, "") for rank, status in enumerate(statuses)]
    members = [
        LaunchedWorker(rank, f"tcp://here:{rank}", f"w{rank}", "here", 100 + rank) for rank in range(len(statuses))
    ]
    watch = ProcessWatch(Quiet(), Dead(*ended), 15.0)
    watch.start_watching(members)
    try:
        return first_complaint(watch)
    finally:
        watch.stop_watching()


def test_the_one_that_was_killed_is_named_and_not_the_one_that_ucx_then_aborted() -> None:
    assert "rank 1" in named(-signal.SIGABRT, -signal.SIGKILL)
    assert "rank 0" in named(-signal.SIGKILL, -signal.SIGABRT)


def test_an_abort_alone_is_named_and_of_equals_the_first() -> None:
    assert "killed by signal 6" in named(-signal.SIGABRT)
    assert "rank 0" in named(-signal.SIGSEGV, -signal.SIGKILL)


def test_a_signal_comes_before_an_exit_status() -> None:
    assert "rank 1" in named(3, -signal.SIGKILL)


def state(silence: float = 0.0, **more: Any) -> dict[str, Any]:
    """What a scheduler knows of a worker."""
    return {"silence": silence, "status": "running", "memory": 0, "limit": 0, "others": 0, "waiting": None, **more}


class Answering:
    """A client whose scheduler answers."""

    id = "me"

    def __init__(self, **states: dict[str, Any]) -> None:
        self.states = {f"tcp://{name}": state for name, state in states.items()}

    def run_on_scheduler(self, *_: Any) -> dict[str, dict[str, Any]]:
        return {address: dict(state) for address, state in self.states.items()}


def test_of_two_silent_workers_the_one_that_is_silent_for_longer_is_named() -> None:
    members = [LaunchedWorker(rank, f"tcp://w{rank}", f"w{rank}", "here", 100 + rank) for rank in range(2)]
    watch = ProcessWatch(Answering(w0=state(11.0), w1=state(12.0)), Dead(), 15.0)
    watch.start_watching(members)
    try:
        assert "rank 1 " in first_complaint(watch)
    finally:
        watch.stop_watching()


def test_a_driver_that_was_stopped_for_a_while_does_not_take_the_scheduler_for_silent() -> None:
    now = 1000.0

    def begin() -> ProcessWatch:
        return ProcessWatch(Quiet(), Dead(), 10.0, clock=lambda: now)

    watch = begin()
    for _ in range(100):  # looked at all the time, and never an answer: silent after 7 s
        now += 0.1
        if now > 1007.0:
            break
        watch.raise_for_loss()
    with pytest.raises(LaunchFailed, match="did not answer"):
        watch.raise_for_loss()
    watch = begin()
    now += 60.0  # stopped
    watch.raise_for_loss()
    for _ in range(60):  # and looked at again: the scheduler has all of its time to answer
        now += 0.1
        watch.raise_for_loss()
    now += 1.2
    with pytest.raises(LaunchFailed, match="did not answer"):
        watch.raise_for_loss()


def test_one_that_was_killed_may_still_be_ending_when_another_has_aborted() -> None:
    members = [LaunchedWorker(rank, f"tcp://here:{rank}", f"w{rank}", "here", 100 + rank) for rank in range(2)]
    dead = Dead(EndedProcess("w1", "here", 101, -signal.SIGABRT, ""))
    watch = ProcessWatch(Quiet(), dead, 15.0)
    watch.start_watching(members)
    try:
        watch.raise_for_loss()
        dead.ended += (EndedProcess("w0", "here", 100, -signal.SIGKILL, ""),)
        with pytest.raises(LaunchFailed, match=r"rank 0 .*signal 9"):
            watch.raise_for_loss()
    finally:
        watch.stop_watching()


@pytest.mark.slow
def test_of_two_that_left_the_one_whose_peer_was_gone_is_not_named() -> None:
    """Where a nanny stands between, nobody knows how a worker ended; its log tells."""
    members = [LaunchedWorker(rank, f"tcp://here:{rank}", f"w{rank}", "here", 0) for rank in range(3)]
    tails = {"w0": "process_vm_readv(pid=9) returned -1: No such process", "w1": "merging"}

    class Silent(Dead):
        def read_log_tail(self, name: str) -> str:
            return tails[name]

    watch = ProcessWatch(Answering(**{"here:2": state()}), Silent(), 15.0)
    watch.start_watching(members)
    try:
        assert "rank 1 " in first_complaint(watch)
    finally:
        watch.stop_watching()


def first_complaint(watch: ProcessWatch) -> str:
    return str(first_failure(watch))


def first_failure(watch: ProcessWatch) -> LaunchFailed:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            watch.raise_for_loss()
        except LaunchFailed as failed:
            return failed
        time.sleep(0.02)
    raise AssertionError("it found nothing wrong")


def test_workers_that_have_all_left_a_running_cluster_are_missed() -> None:
    watch = ProcessWatch(Answering(), Dead(), 15.0)
    watch.start_watching([LaunchedWorker(0, "tcp://w0", "w0", "here", 100)])
    try:
        assert "rank 0 (worker w0, process 100 on here) left the cluster" in first_complaint(watch)
    finally:
        watch.stop_watching()


def two(**states: dict[str, Any]) -> ProcessWatch:
    """A watch with a limit of 1.4 s, of two workers."""
    watch = ProcessWatch(Answering(**states), Dead(), 2.0)
    watch.start_watching([LaunchedWorker(rank, f"tcp://w{rank}", f"w{rank}", "here", 100 + rank) for rank in range(2)])
    return watch


@pytest.mark.slow
@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            {"status": "paused", "memory": 900 << 20, "limit": 1 << 30},
            ("900.00 MiB of its limit of 1.00 GiB", "--memory-limit"),
        ),
        ({"others": 2}, ("executes 2 of another client",)),
        ({"status": "closing_gracefully"}, ("its status is closing_gracefully",)),
    ],
)
def test_a_worker_that_executes_none_of_its_tasks_is_named_with_its_state(
    found: dict[str, Any], words: tuple[str, ...]
) -> None:
    watch, begun = two(w0=state(), w1=state(waiting=7, **found)), time.monotonic()
    try:
        failed = first_failure(watch)
    finally:
        watch.stop_watching()
    assert (failed.code, failed.rank) == ("worker-idle", 1)
    assert all(each in str(failed) for each in words)
    assert 1.4 <= time.monotonic() - begun < 10


def first_code(seconds: float, tasks: Callable[[float], int | None], silence: Callable[[float], float]) -> str | None:
    """The code of what a watch with a limit of 7 s finds wrong with one worker within so many seconds; None: nothing.

    `tasks`: how many of its tasks wait, and `silence`: how long it sent no heartbeat, after so many seconds.
    """
    elapsed, client = 0.0, Answering()
    watch = ProcessWatch(client, Dead(), 10.0, clock=lambda: 1000.0 + elapsed, poll_seconds=3600.0)
    watch.start_watching([LaunchedWorker(0, "tcp://w0", "w0", "here", 100)])
    try:
        while elapsed < seconds:
            client.states = {"tcp://w0": state(silence(elapsed), waiting=tasks(elapsed))}
            watch.ask_scheduler_for_states()
            watch.raise_for_loss()
            elapsed += 0.1
    except LaunchFailed as failed:
        return failed.code
    finally:
        watch.stop_watching()
    return None


def test_a_worker_whose_tasks_change_or_of_which_no_later_heartbeat_came_is_not_idle() -> None:
    assert first_code(7.5, lambda _: 1, lambda _: 0.2) == "worker-idle"  # for more than 7 s
    assert first_code(6.9, lambda _: 1, lambda _: 0.2) is None
    assert first_code(60, lambda after: int(after // 5), lambda _: 0.2) is None
    assert first_code(60, lambda after: None if int(after) % 6 == 0 else 1, lambda _: 0.2) is None
    assert first_code(60, lambda _: 1, lambda after: max(after - 0.3, 0.0)) == "worker-silent"


@pytest.mark.parametrize(("fault", "named"), [(signal.SIGBUS, True), (signal.SIGSEGV, True), (signal.SIGKILL, False)])
def test_a_lack_of_shared_memory_is_named_as_what_may_have_killed_a_worker_of_this_host(
    fault: signal.Signals, named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UCX_POSIX_DIR", str(tmp_path / "none"))
    host = socket.gethostname()
    watch = ProcessWatch(Quiet(), Dead(EndedProcess("w0", host, 100, -fault, "")), 15.0)
    watch.start_watching([LaunchedWorker(0, "tcp://w0", "w0", host, 100)])
    try:
        problem = f"UCX cannot create shared memory in {tmp_path / 'none'} (No such file or directory)"
        assert (problem in first_complaint(watch)) == named
    finally:
        watch.stop_watching()


class LateNews(Dead):
    """A launcher that hears of its dead scheduler after a while, as from a busy host over ssh."""

    def __init__(self, seconds: float) -> None:
        super().__init__(EndedProcess("scheduler", "node1", 99, -signal.SIGKILL, ""))
        self._from = time.monotonic() + seconds

    def ended_processes(self) -> list[EndedProcess]:
        return super().ended_processes() if time.monotonic() > self._from else []


def test_a_lost_scheduler_is_named_however_late_the_news_of_it_comes() -> None:
    watch = ProcessWatch(Quiet(), LateNews(SETTLE_SECONDS + 0.5), 15.0)
    watch.start_watching([LaunchedWorker(0, "tcp://w0", "w0", "node2", 100)])
    try:
        watch.wait_for_loss()  # another error is not waited for so long
        with pytest.raises(LaunchFailed, match=r"^scheduler \(process 99 on node1\) was killed by signal 9") as raised:
            watch.wait_for_loss(scheduler_connection_lost=True)
    finally:
        watch.stop_watching()
    assert raised.value.host == "node1"


def test_without_news_a_lost_scheduler_is_silent_within_the_limit() -> None:
    watch = ProcessWatch(Quiet(), Dead(), 2.0)
    watch.start_watching([])
    try:
        with pytest.raises(LaunchFailed, match="did not answer for 1 s"):
            watch.wait_for_loss(scheduler_connection_lost=True)
    finally:
        watch.stop_watching()
