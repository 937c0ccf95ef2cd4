"""Of several processes that ended, the one that failed first is named, in whatever order the traces arrive."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Sequence
from dataclasses import replace

import pytest
from distributed.nanny import WorkerProcess

from merge_bench.cluster.base import EndedProcess
from merge_bench.cluster.worker_calls import LaunchedWorker, ProcessLoss, find_first_loss, find_losses

MEMBERS = [LaunchedWorker(rank, f"tcp://here:{rank}", f"worker-{rank}", "here", 26485 + rank) for rank in range(3)]
# Printed by UCX 1.21 in rank 0 (process 26485) when rank 1 (process 26486) was killed with SIGKILL.
LOST = (
    "[1795326721.285635] [vm:26485:0:26502]      cma_ep.c:85   UCX  ERROR process_vm_readv(pid=26486 "
    "{0x7f008de59340,524288}-->{0x7ff84e1e4880,524288}) returned -1: No such process"
)


def ended(rank: int, status: int | None, tail: str = "") -> EndedProcess:
    return EndedProcess(f"worker-{rank}", "here", MEMBERS[rank].pid, status, tail)


def nanny(rank: int, status: int) -> str:
    """The line that Dask's nanny logs for a worker process that ended."""
    return str(WorkerProcess._death_message(None, MEMBERS[rank].pid, status))


def found(
    exited: list[EndedProcess], left: Sequence[int] = (), logs: dict[str, str] | None = None
) -> list[ProcessLoss]:
    return find_losses(exited, [MEMBERS[rank] for rank in left], MEMBERS, lambda name: (logs or {}).get(name, ""))


def named(lost: list[ProcessLoss]) -> tuple[int | None, bool]:
    first, certain = find_first_loss(lost)
    return first.member.rank if first.member else None, certain


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_the_killed_one_is_named_in_any_order_of_arrival(fault: int) -> None:
    exits = [ended(0, -signal.SIGABRT, LOST), ended(1, -fault), ended(2, 1)]
    for order in itertools.permutations(exits):
        assert named(found(list(order))) == (1, True)


def test_a_killed_scheduler_is_named_before_the_workers_that_ended_over_it() -> None:
    scheduler = EndedProcess("scheduler", "here", 7, -signal.SIGKILL, "")
    first, certain = find_first_loss(found([ended(0, 1), scheduler, ended(1, 1)]))
    assert certain
    assert first.title == "scheduler (process 7 on here)"


def test_an_aborted_one_alone_is_not_certain() -> None:
    assert named(found([ended(0, -signal.SIGABRT)])) == (0, False)


def test_the_one_that_others_report_as_gone_is_named_before_it_is_seen_to_end() -> None:
    lost = found([ended(0, -signal.SIGABRT, LOST)])
    assert named(lost) == (1, False)
    assert "can no longer read its memory" in find_first_loss(lost)[0].outcome_text
    assert named(found([ended(0, -signal.SIGABRT, LOST), ended(1, 1)])) == (1, True)


def test_process_ids_of_other_hosts_are_other_processes() -> None:
    members = [replace(MEMBERS[0], host="there"), *MEMBERS[1:]]
    lost = find_losses([EndedProcess("worker-0", "there", 5, -signal.SIGABRT, LOST)], [], members, lambda name: "")
    assert named(lost) == (0, False)


def test_a_host_is_known_by_its_own_name_and_not_by_how_it_was_reached() -> None:
    reached = EndedProcess("worker-0", "here.cluster", MEMBERS[0].pid, -signal.SIGABRT, LOST)
    assert named(found([reached, ended(2, 1)])) == (1, False)


@pytest.mark.parametrize("left", [[0, 1], [1, 0]])
def test_behind_nannies_their_logs_show_which_worker_was_killed(left: list[int]) -> None:
    logs = {"worker-0": nanny(0, -signal.SIGABRT), "worker-1": nanny(1, -signal.SIGKILL)}
    lost = found([], left, logs)
    assert named(lost) == (1, True)
    assert find_first_loss(lost)[0].outcome_text == "was killed by signal 9 during the run"


def test_what_a_nanny_logged_of_an_earlier_process_does_not_count() -> None:
    logs = {"worker-1": f"Worker process {MEMBERS[1].pid + 1} was killed by signal 9"}
    first, certain = find_first_loss(found([], [1], logs))
    assert (first.outcome_text, certain) == ("left the cluster", False)


def test_behind_nannies_the_log_of_an_aborted_peer_is_enough() -> None:
    assert named(found([], [0, 1], {"worker-0": LOST})) == (1, False)
    assert named(found([], [0], {"worker-0": f"{LOST}\n{nanny(0, -signal.SIGABRT)}"})) == (1, False)
