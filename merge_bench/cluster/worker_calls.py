"""Runs steps on the workers of one launch, collects their results, and watches processes: which one failed first?

One process that ends can end others: without error handling UCX aborts a worker whose peer is gone, and workers exit
when their scheduler is gone. The news of the others may arrive earlier. So evidence decides, not the order of news.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import re
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from merge_bench.cluster import dask_scheduler_functions, signals
from merge_bench.cluster.base import EndedProcess, Launcher, exit_status_text
from merge_bench.errors import LaunchFailed, MergeBenchError, UsageError
from merge_bench.host.machine import shared_memory_problem
from merge_bench.units import format_bytes

if TYPE_CHECKING:
    from distributed import Client, Future

POLL_SECONDS = 0.5
ERROR_SECONDS = 5.0  # to read the error of a failed future, which the client already has
# A loss may be the consequence of another one, which is given this long to be seen. A killed worker's memory is freed
# before its process has ended, and that alone can make UCX abort its peers.
PATIENCE_SECONDS = 2.0
SETTLE_SECONDS = 1.0  # after an error, for the loss of a process that caused it to be seen
# A silent worker must be found early enough that the run can still end within the timeout.
SILENT_FRACTION = 0.7
# What UCX prints before it aborts, when the kernel refuses a read from the memory of a process that is gone.
_LOST_PEER = re.compile(r"process_vm_\w+\(pid=(\d+).*No such process")
# What Dask's nanny logs about a worker process that it started.
_NANNY = re.compile(r"Worker process (\d+) (?:was killed by signal (\d+)|exited with status (\d+))")


@dataclass(frozen=True)
class LaunchedWorker:
    """A worker of a launch.

    `address`, `name`: those of Dask; `pid`: its process number, 0 until the worker has reported it.
    """

    rank: int
    address: str
    name: str
    host: str
    pid: int

    @property
    def worker_title(self) -> str:
        """The worker's rank, name, process and host in words, for messages."""
        process = f", process {self.pid}" if self.pid else ""
        return f"rank {self.rank} (worker {self.name}{process} on {self.host})"


@dataclass(frozen=True)
class ProcessLoss:
    """The loss of a worker or of the scheduler, whose process has ended or is silent.

    `status`: its exit status or the negative number of the signal that killed it, None if unknown. `outcome_text`: what
    happened to it, as a predicate. `member`: the lost worker, None for the scheduler.
    """

    title: str
    host: str
    outcome_text: str
    status: int | None
    log_tail: str
    member: LaunchedWorker | None = None

    @property
    def is_certain_cause(self) -> bool:
        """Whether no other loss can be the cause of this one: a signal other than SIGABRT killed the process."""
        return self.status is not None and self.status < 0 and self.status != -signal.SIGABRT


def find_losses(
    ended_processes: Iterable[EndedProcess],
    missing_workers: Iterable[LaunchedWorker],
    workers: Sequence[LaunchedWorker],
    read_log_tail: Callable[[str], str],
) -> list[ProcessLoss]:
    """Return the loss of every worker or scheduler that is gone, once each.

    `ended_processes`: processes of the launcher that have ended. `missing_workers`: workers that the scheduler no
    longer has. `workers`: all workers of the launch. `read_log_tail`: returns the last lines of a worker's log by the
    worker's name; empty if there are none.
    """
    by_name = {member.name: member for member in workers}
    lost: dict[str, ProcessLoss] = {}
    for ended in ended_processes:
        member = by_name.get(ended.role)
        shown = member.worker_title if member else f"{ended.role} (process {ended.pid} on {ended.host})"
        host = member.host if member else ended.host  # its peers on the host have this name of the host, too
        lost[ended.role] = ProcessLoss(
            shown, host, f"{ended.process_end_text} during the run", ended.status, ended.log_tail, member
        )
    for member in missing_workers:
        if member.name not in lost:
            log = read_log_tail(member.name)
            status = _status_in_nanny_log(member.pid, log)
            how = "left the cluster" if status is None else f"{exit_status_text(status)} during the run"
            lost[member.name] = ProcessLoss(member.worker_title, member.host, how, status, log, member)
    reported = _peers_reported_lost(lost.values())
    for member in workers:
        if member.name not in lost and (member.host, member.pid) in reported:
            how = "has ended: other workers can no longer read its memory"
            lost[member.name] = ProcessLoss(member.worker_title, member.host, how, None, "", member)
    return list(lost.values())


def find_first_loss(losses: Sequence[ProcessLoss]) -> tuple[ProcessLoss, bool]:
    """Return the loss that most likely came first, and whether that is certain.

    Processes killed by a signal other than SIGABRT come first, then those that another process could not read from,
    then those that ended in an unknown way or with a status, and aborted ones last. Only the first two kinds can be
    certain.
    """
    reported = _peers_reported_lost(losses)

    def order_of_loss(loss: ProcessLoss) -> int:
        if loss.is_certain_cause:
            return 0
        if loss.member is not None and (loss.host, loss.member.pid) in reported:
            return 1
        return 3 if loss.status == -signal.SIGABRT or _LOST_PEER.search(loss.log_tail) else 2

    first = min(losses, key=order_of_loss)
    return first, order_of_loss(first) == 0 or (order_of_loss(first) == 1 and first.status is not None)


def _peers_reported_lost(losses: Iterable[ProcessLoss]) -> set[tuple[str, int]]:
    """Return host and process id of each peer that the log of a lost process names as lost.

    UCX logs the process id of a peer whose memory it can no longer read.
    """
    return {(loss.host, int(pid)) for loss in losses for pid in _LOST_PEER.findall(loss.log_tail)}


def _status_in_nanny_log(worker_pid: int, log_text: str) -> int | None:
    for number, killed, ended in _NANNY.findall(log_text):
        if int(number) == worker_pid:
            return -int(killed) if killed else int(ended)
    return None


def broadcast_step(client: Client, step: Callable[..., Any], *arguments: Any) -> None:
    """Run a step on the event loop of every worker, without waiting: a worker may never answer."""

    async def send_step_to_workers() -> None:
        with contextlib.suppress(Exception):
            await client._run(step, *arguments, wait=False, on_error="ignore")

    client.loop.add_callback(send_step_to_workers)


class ProcessWatch:
    """Watches the processes of a cluster, and asks the scheduler twice a second what each worker does.

    `raise_for_loss` raises `LaunchFailed` for the first process that ended or is stuck. The workers also get a
    heartbeat of the driver. `clock`: gives the seconds by which it decides which process has been silent or idle for
    too long. `poll_seconds`: between two questions to the scheduler.
    """

    def __init__(
        self,
        client: Client,
        launcher: Launcher,
        timeout: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._client, self._launcher = client, launcher
        self._clock, self._poll_seconds = clock, poll_seconds
        self._limit = timeout * SILENT_FRACTION
        self._members: Mapping[str, LaunchedWorker] = {}
        self._states: dict[str, dict[str, Any]] | None = None  # of the workers; None: no answer yet
        self._waits: dict[str, tuple[int, float, float]] = {}  # an idle worker's tasks, since when, until when
        self._generation = 0
        self._answered = clock()
        self._stop = threading.Event()
        self._fatal: str | None = None
        self._noticed: float | None = None  # when the first loss was seen
        self._checked = clock()
        self._thread = threading.Thread(target=self._ask_scheduler_repeatedly, name="watch", daemon=True)

    def start_watching(self, workers: list[LaunchedWorker]) -> None:
        self._members = {member.address: member for member in workers}
        self._states = None  # an answer from before a worker came must not make it look lost
        self._waits = {}
        self._generation += 1
        self._answered = self._clock()
        if not self._thread.is_alive():
            self._thread.start()

    def stop_watching(self) -> None:
        self._stop.set()

    def record_worker_report(self, message: str) -> None:
        """Keep a worker's report of a fatal problem, for the error message if the worker's process ends."""
        self._fatal = message

    def raise_for_loss(self) -> None:
        """Raise `LaunchFailed` if a process has ended, the scheduler is silent, or a worker is silent or idle."""
        now, before = self._clock(), self._checked
        self._checked = now
        if now - before > self._limit / 2:  # this process was stopped, and meanwhile nothing was asked
            self._answered = now
        answer = self._states
        left = [member for address, member in self._members.items() if answer is not None and address not in answer]
        lost = find_losses(
            self._launcher.ended_processes(), left, list(self._members.values()), self._launcher.read_log_tail
        )
        if lost:
            first, certain = find_first_loss(lost)
            self._noticed = self._noticed or self._clock()
            if not certain and self._clock() - self._noticed < PATIENCE_SECONDS:
                return
            fatal = self._fatal or _shared_memory_failure_cause(first)
            code, reason = "worker-died" if first.member else "process-died", fatal and f" ({fatal})"
        else:
            self._noticed = None
            stuck = self._find_silent_process(answer or {}) or self._find_idle_worker(answer or {})
            if stuck is None:
                return
            (first, code), reason = stuck, None
        message, rank = f"{first.title} {first.outcome_text}{reason or ''}", first.member.rank if first.member else None
        raise LaunchFailed(message, host=first.host or None, rank=rank, log_tail=first.log_tail or None, code=code)

    def _find_silent_process(self, states: Mapping[str, Mapping[str, Any]]) -> tuple[ProcessLoss, str] | None:
        """Return the loss of the worker or scheduler that has been silent for too long, and an error code, or None."""
        silences = {address: states[address]["silence"] for address in self._members if address in states}
        address = max(silences, key=silences.__getitem__, default="")
        if silences.get(address, 0.0) > self._limit:
            return self._loss_of_stuck_worker(
                address, f"sent no heartbeat for {silences[address]:.0f} s"
            ), "worker-silent"
        if self._clock() - self._answered > self._limit:
            host = self._launcher.hosts_by_process_role().get("scheduler", "")
            how = f"did not answer for {self._limit:.0f} s"
            shown = f"the scheduler on {host}" if host else "the scheduler"
            return ProcessLoss(shown, host, how, None, self._launcher.read_log_tail("scheduler")), "scheduler-silent"
        return None

    def _find_idle_worker(self, states: Mapping[str, Mapping[str, Any]]) -> tuple[ProcessLoss, str] | None:
        """Return the loss of a worker that has executed none of its tasks for too long, and an error code, or None."""
        for address in self._members:
            if address not in states or address not in self._waits:
                continue
            _, since, until = self._waits[address]
            waited = until - since
            # Only a heartbeat that came since then shows that it executes nothing.
            if waited > self._limit and states[address]["silence"] < waited - POLL_SECONDS:
                return self._loss_of_stuck_worker(address, _idle_reason_text(states[address], waited)), "worker-idle"
        return None

    def _loss_of_stuck_worker(self, address: str, activity_text: str) -> ProcessLoss:
        member = self._members[address]
        return ProcessLoss(
            member.worker_title, member.host, activity_text, None, self._launcher.read_log_tail(member.name), member
        )

    def wait_for_loss(self, *, scheduler_connection_lost: bool = False) -> None:
        """Wait for the loss of a process that may have caused an earlier error, and raise `LaunchFailed` for it.

        `scheduler_connection_lost`: the connection to the scheduler closed. Then one of the run's processes ended or a
        network was cut, and the news may take longer, for example over ssh from a busy host. The wait ends at the
        latest when the scheduler counts as silent.
        """
        certain = scheduler_connection_lost and self._launcher.owns_processes
        deadline = self._clock() + (self._limit + POLL_SECONDS if certain else SETTLE_SECONDS)
        while self._clock() < deadline or self._noticed is not None:
            self.raise_for_loss()
            time.sleep(0.05)

    def _ask_scheduler_repeatedly(self) -> None:
        from merge_bench.merge import worker

        while not self._stop.wait(self._poll_seconds):
            with contextlib.suppress(
                Exception
            ):  # the connection is gone; `raise_for_loss` reports that, or sooner a lost process
                self.ask_scheduler_for_states()
                broadcast_step(self._client, worker.note_heartbeat)

    def ask_scheduler_for_states(self) -> None:
        """Ask the scheduler for the state of every worker, for `raise_for_loss`; raises if the connection is gone."""
        generation = self._generation
        states = self._client.run_on_scheduler(dask_scheduler_functions.worker_states, self._client.id)
        self._answered = self._clock()
        if generation == self._generation:
            self._record_idle_times(states)
            self._states = states

    def _record_idle_times(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """Record since when each idle worker has had its tasks; the time begins anew whenever the tasks change."""
        waiting = {address: state["waiting"] for address, state in states.items() if state["waiting"] is not None}
        before, now = self._waits, self._clock()
        self._waits = {
            address: (tasks, before[address][1] if before.get(address, (None,))[0] == tasks else now, now)
            for address, tasks in waiting.items()
        }


def _idle_reason_text(state: Mapping[str, Any], seconds: float) -> str:
    """Describe why a worker executes none of its tasks, and the remedy, as a predicate.

    `state`: the worker's state as of `worker_states`; `seconds`: for how long it has executed none.
    """
    opening = f"has executed no task of this run for {seconds:.0f} s"
    if state["status"] == "paused":
        of = f" of its limit of {format_bytes(state['limit'])}" if state["limit"] else ""
        return (
            f"{opening}: Dask paused it because it uses {format_bytes(state['memory'])}{of}; restart the workers with a"
            " higher --memory-limit (0: none), or use smaller chunks"
        )
    if state["others"]:
        return f"{opening}: it executes {state['others']} of another client; run again when the cluster is free"
    return f"{opening}: its status is {state['status']}; restart the workers"


def _shared_memory_failure_cause(loss: ProcessLoss) -> str:
    """Return why UCX cannot use this host's shared memory, if that may have killed a process; else an empty text."""
    here = loss.host == socket.gethostname()
    killed = loss.status in (-signal.SIGSEGV, -signal.SIGBUS)
    return shared_memory_problem(Path(os.environ.get("UCX_POSIX_DIR") or "/dev/shm"), 1) if here and killed else ""


class WorkerStepRunner:
    """Runs steps on the workers of a launch, by rank. Every wait watches the processes, and ends at a problem."""

    def __init__(self, client: Client, launcher: Launcher, timeout: float) -> None:
        self.client, self.launcher = client, launcher
        self.watch = ProcessWatch(client, launcher, timeout)
        self.members: list[LaunchedWorker] = []
        self._wake = threading.Event()
        self._problem: MergeBenchError | None = None  # that was noticed

    def run_on_all_workers(
        self,
        step: Callable[..., Any],
        *values: Any,
        pass_rank: bool = False,
        arguments_after_rank: tuple[Any, ...] = (),
        **kwargs: Any,
    ) -> list[Any]:
        """Run a step on all workers at once, and return the results by rank; raises the first failure.

        `pass_rank`: whether the step gets the worker's rank, between `values` and `arguments_after_rank`.
        """
        arguments_by_rank = [
            (*values, member.rank, *arguments_after_rank) if pass_rank else values for member in self.members
        ]
        return self.wait_for_results(self.submit_to_all_workers(step, arguments_by_rank, **kwargs))

    def wait_for_coroutine(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine of the Dask client, and return its result; the processes are watched meanwhile."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self.client.loop.asyncio_loop)
        future.add_done_callback(lambda _: self._wake.set())
        try:
            self.wait_until(future.done)
        finally:
            future.cancel()
        return future.result()

    def run_on_rank(self, rank: int, step: Callable[..., Any], *arguments: Any) -> Any:
        """Run a step on the worker of this rank, and return the step's result."""
        return self.run_on_ranks({rank: (step, *arguments)})[0]

    def run_on_ranks(self, steps_by_rank: Mapping[int, tuple[Any, ...]]) -> list[Any]:
        """Run a step on each worker of several ranks at once, and return the results in the same order.

        `steps_by_rank`: the step and its arguments, by the worker's rank.
        """
        members = [self.members[rank] for rank in steps_by_rank]
        calls = zip(members, steps_by_rank.values(), strict=True)
        return self.wait_for_results([self._submit_to_worker(member, *call) for member, call in calls], members)

    def submit_to_all_workers(
        self, step: Callable[..., Any], arguments_by_rank: Sequence[tuple[Any, ...]], **kwargs: Any
    ) -> list[Future]:
        """Start a step on every worker with arguments of its own, and return the futures in rank order."""
        return [
            self._submit_to_worker(member, step, *values, **kwargs)
            for member, values in zip(self.members, arguments_by_rank, strict=True)
        ]

    def _submit_to_worker(
        self, target_worker: LaunchedWorker, step: Callable[..., Any], *arguments: Any, **kwargs: Any
    ) -> Future:
        pickled, key = pickle.dumps((step, arguments, kwargs)), f"{step.__name__}-{uuid.uuid4()}"
        where = {"workers": [target_worker.address], "allow_other_workers": False}
        return self.client.submit(dask_scheduler_functions.run_pickled_step, pickled, key=key, priority=10, **where)

    def wait_for_results(self, futures: list[Future], workers: Sequence[LaunchedWorker] | None = None) -> list[Any]:
        """Wait for futures, return their results, and release them.

        `workers`: the workers of the futures, by default one future per rank.
        """
        try:
            self.wait_for_futures(futures, workers)
            # Not `result()` of each: that waits for scheduler and workers without a limit, and without watching.
            return list(self.wait_for_coroutine(self.client.gather(futures, asynchronous=True)))
        finally:
            for future in futures:
                with contextlib.suppress(Exception):
                    future.release()

    def wait_for_futures(self, futures: list[Future], workers: Sequence[LaunchedWorker] | None = None) -> None:
        """Wait until all futures are done, and watch the processes meanwhile; raises the first failure.

        `workers`: their workers, by default one future per rank; empty for tasks that Dask assigns to workers itself.
        """
        for future in futures:
            future.add_done_callback(lambda _: self._wake.set())
        self.wait_until(lambda: all(f.done() for f in futures) or self._first_failed_index(futures) is not None)
        failed = self._first_failed_index(futures)
        if failed is not None:
            whose = self.members if workers is None else workers
            self._raise_first_failure(futures[failed], whose[failed] if whose else None)

    def wake_waiting_call(self, problem: MergeBenchError | None = None) -> None:
        """Make the call that waits check its condition again, or end with the error `problem`."""
        if problem is not None:
            self._problem = problem
        self._wake.set()

    def report_stuck_worker(self, rank: int, activity_text: str) -> None:
        """End the call that waits, because the worker of this rank is in native code that does not return.

        `activity_text`: what the worker does, as a predicate.
        """
        member = self.members[rank]
        self.wake_waiting_call(
            LaunchFailed(
                f"{member.worker_title} {activity_text}", host=member.host or None, rank=rank, code="worker-silent"
            )
        )

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` returns True, and watch the processes meanwhile; raises a reported problem."""

        def wait_is_over() -> bool:
            return condition() or self._problem is not None

        while not wait_is_over():
            self._wake.wait(0.1)
            self._wake.clear()
            signals.raise_if_interrupted()
            if not wait_is_over():
                self.watch.raise_for_loss()
        if self._problem is not None:
            self.abort_workers("the run is ending")
            raise self._problem

    def _first_failed_index(self, futures: list[Future]) -> int | None:
        return next((rank for rank, future in enumerate(futures) if future.status in ("error", "cancelled")), None)

    def _raise_first_failure(self, future: Future, failed_worker: LaunchedWorker | None) -> None:
        """Stop the other workers, and raise the error of the failed future or of the process that caused it."""
        error = future.exception(timeout=ERROR_SECONDS) if future.status == "error" else None
        if not isinstance(error, UsageError):
            # A worker that ended makes others fail too, and a client without its scheduler cancels everything.
            self.watch.wait_for_loss(scheduler_connection_lost=error is None)
        shown = failed_worker.worker_title if failed_worker else "a task of Dask's merge"
        self.abort_workers(f"stopped because {shown} failed")
        if isinstance(error, UsageError):
            raise error
        if error is None:  # this run itself never cancels a task
            raise LaunchFailed("Dask's scheduler stopped, or it cancelled the tasks of this run", code="process-died")
        message = str(error) if isinstance(error, MergeBenchError) else f"{type(error).__name__}: {error}"
        host, rank = (failed_worker.host, failed_worker.rank) if failed_worker else (None, None)
        raise LaunchFailed(f"{shown} failed: {message}", host=host, rank=rank) from error

    def abort_workers(self, reason: str) -> None:
        """Make every worker stop its present step; `reason`: for the error message."""
        from merge_bench.merge import worker

        broadcast_step(self.client, worker.abort_waits, reason)
