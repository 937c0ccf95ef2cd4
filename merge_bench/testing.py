"""A cluster in threads of this process, with which a `run` takes milliseconds: for tests of what stands above it.

Workers make their tables, partition, exchange, join and verify with the package's own code; rows travel through queues.
No process, scheduler or UCX is started, so that times mean nothing. What needs Dask's scheduler or single messages
(``--exchange dask``, ``--pipeline on``) is refused.

    with fake_cluster():
        merge_bench.run(chunk=1000, iterations=2, results=folder)
"""

from __future__ import annotations

import contextlib
import functools
import gc
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, ClassVar, cast
from unittest import mock

import numpy as np
from msgspec.structs import replace

from merge_bench.campaign import cluster_session, run_campaign
from merge_bench.cluster.worker_calls import LaunchedWorker, ProcessWatch, WorkerStepRunner
from merge_bench.errors import LaunchFailed, MergeBenchError, RunFailed, UsageError
from merge_bench.host import machine
from merge_bench.host.description import ProcessFacts, UcxDescription
from merge_bench.merge import memory, merger, worker
from merge_bench.merge.exchange.base import AbortFlag, Exchange, FrameTransfer
from merge_bench.merge.frame import Bytes
from merge_bench.merge.partition import contiguous_buffers
from merge_bench.merge.plan import Plan
from merge_bench.records.schema import Cluster, UcxProtocolRange, Worker

_thread = threading.local()

Failures = Mapping[str, Exception]
"""Names of steps (functions of `merge.worker`), each with the error that it raises on rank 0."""


@contextlib.contextmanager
def fake_cluster(failures: Failures | None = None, exchange: type[QueueExchange] | None = None) -> Iterator[None]:
    """Run launches within the ``with`` block with threads of this process as workers.

    `failures`: steps that fail, each with its error; `exchange`: the data plane between the threads.
    """

    def import_exchange_class(name: str) -> type[Exchange]:
        return exchange or QueueExchange

    with (
        mock.patch.object(cluster_session, "Session", functools.partial(_ThreadSession, failures or {})),
        mock.patch.object(merger, "import_exchange_class", import_exchange_class),
        mock.patch.object(worker, "import_exchange_class", import_exchange_class),
        mock.patch.object(worker, "get_worker", _current_process),
        mock.patch.object(memory, "LEAST_BYTES", 1),
        mock.patch.object(run_campaign, "warn_if_host_busy"),
    ):
        gc.freeze()  # by the first launch otherwise, which would also look through all of it at its end
        try:
            yield
        finally:
            gc.unfreeze()


@functools.cache
def _describe_process(variables: tuple[str, ...]) -> ProcessFacts:
    return machine.describe_process(variables, ucx=UcxDescription())


def _current_process() -> Any:
    return _thread.process


class QueueExchange(Exchange):
    """A data plane between workers that are threads of one process: queues that copy buffers."""

    title = "queues"
    _ends_by_address: ClassVar[dict[bytes, QueueExchange]] = {}

    def __init__(self, rank: int, workers: int, *, abort: AbortFlag, timeout: float) -> None:
        super().__init__(rank, workers, abort=abort)
        self._timeout = timeout
        self._arrived: dict[int, queue.Queue[list[Bytes]]] = {peer: queue.Queue() for peer in self.peers}
        self._peer_ends: dict[int, QueueExchange] = {}
        self._ends_by_address[self.address] = self

    @classmethod
    def from_plan(cls, plan: Plan, rank: int, abort: AbortFlag) -> QueueExchange:
        """Make this worker's end of the data plane."""
        return cls(rank, plan.workers, abort=abort, timeout=plan.timeout)

    @property
    def address(self) -> bytes:
        """A name for this worker's end of the data plane that no other end in this process has."""
        return str(id(self)).encode()

    def connect(self, addresses: Sequence[bytes]) -> None:
        """Find the other workers' ends of the data plane by their addresses."""
        self._peer_ends = {peer: self._ends_by_address[addresses[peer]] for peer in self.peers}
        self.barrier()

    def transfer(
        self, sends: Mapping[int, Any], receives: Mapping[int, Any], *, note_batches: bool = False
    ) -> FrameTransfer:
        """Copy buffers to and from other workers through queues; returns bytes sent, and when each buffer arrived."""
        flight, began = FrameTransfer(), time.perf_counter()
        for peer, buffer in sends.items():
            self._peer_ends[peer]._arrived[self.rank].put(
                [_view_as_bytes(run).copy() for run in contiguous_buffers(buffer)]
            )
            flight.sent_bytes += buffer.nbytes
        for peer, buffer in receives.items():
            for target, source in zip(contiguous_buffers(buffer), self._receive(peer), strict=True):
                _view_as_bytes(target)[:] = source
            flight.arrived[peer] = (buffer.nbytes, time.perf_counter() - began)
        flight.seconds = time.perf_counter() - began
        if note_batches:
            for received, buffers in ((False, sends), (True, receives)):
                for peer, buffer in buffers.items():
                    flight.batches[peer, received] = (began, began + flight.seconds, buffer.nbytes)
        return flight

    def _receive(self, peer: int) -> list[Bytes]:
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline:
            self.abort.raise_if_aborted()
            with contextlib.suppress(queue.Empty):
                return self._arrived[peer].get(timeout=0.05)
        raise RunFailed(f"rank {self.rank} received nothing from rank {peer} for {self._timeout:.0f} s")

    def describe_endpoints(self) -> dict[int, tuple[list[str], list[UcxProtocolRange]]]:
        """For each other worker, the one lane to it and no protocols."""
        return {peer: (["self/memory"], []) for peer in self.peers}

    def close(self) -> None:
        """Withdraw this worker's end of the data plane, so that other workers no longer find it."""
        self._ends_by_address.pop(self.address, None)


def _view_as_bytes(array: Any) -> Bytes:
    return np.asarray(array).reshape(-1).view(np.uint8)


class _ThreadSession(cluster_session.Session):
    """A session of a launch whose workers are threads of this process."""

    def __init__(self, failures: Failures, *session_arguments: Any) -> None:
        super().__init__(*session_arguments)
        self._failures, self._event_lock = failures, threading.Lock()

    def start_cluster(self, *, load_merge_libraries: bool = True, exchange: str | None = None) -> None:
        """Make a thread for each worker, and describe each of them as this process."""
        if not self.plan.data_plane.workers_exchange_rows or self.plan.pipeline:
            raise UsageError("the cluster for tests has neither --exchange dask nor --pipeline on")
        self._workers = workers = _ThreadWorkers(self._failures, self.plan.workers, self._deliver_event)
        facts = _describe_process(tuple(self.settings.environment))
        commands = {command.role: command for command in self.launcher.process_commands(self.plan, self.settings)}
        for rank in range(self.plan.workers):
            name = f"worker-{rank}"
            member = LaunchedWorker(rank, f"inproc://{rank}", name, facts.host, facts.pid)
            description = Worker.from_process_facts(rank, name, facts)
            if name in commands:
                environment = {**description.environment, **commands[name].environment}
                description = replace(description, environment=environment)
            workers.members.append(member)
            self.descriptions.append(description)

    def _deliver_event(self, message: Mapping[str, Any]) -> None:
        with self._event_lock:
            self._handle_worker_event((time.time(), message))

    def _make_cluster_record(self) -> Cluster:
        return Cluster(launcher=self.launcher.name, protocol=self.plan.protocol, scheduler="inproc://")

    def find_process_failure(self, error: Exception) -> MergeBenchError | None:
        """Returns None: there are no processes whose end could be the cause of a problem."""

    def end_processes(self, *, succeeded: bool) -> None:
        """Abort all worker threads, so that whatever waits in them stops."""
        if self._workers is not None:
            self._workers.abort_workers("the run is ending")


class _ThreadWorkers(WorkerStepRunner):
    """Calls to workers that are threads; nothing watches them, as they have no processes."""

    def __init__(self, failures: Failures, workers: int, deliver: Callable[[Mapping[str, Any]], None]) -> None:
        self._failures, self.members, self._problem, self._wake = failures, [], None, threading.Event()
        self.watch = cast(ProcessWatch, SimpleNamespace(raise_for_loss=lambda: None))
        self._pools = [ThreadPoolExecutor(1) for _ in range(workers)]
        self._processes = [_make_fake_worker_process(deliver) for _ in range(workers)]

    def _submit_to_worker(
        self, target_worker: LaunchedWorker, step: Callable[..., Any], *arguments: Any, **named: Any
    ) -> Future[Any]:
        def run_step() -> Any:
            _thread.process = self._processes[target_worker.rank]
            try:
                if target_worker.rank == 0 and step.__name__ in self._failures:
                    raise self._failures[step.__name__]
                return step(*arguments, **named)
            except UsageError:
                self.abort_workers("stopped because a step was refused")
                raise
            except Exception as error:
                self.abort_workers(f"stopped because rank {target_worker.rank} failed")
                message = str(error) if isinstance(error, MergeBenchError) else f"{type(error).__name__}: {error}"
                text = f"{target_worker.worker_title} failed: {message}"
                raise LaunchFailed(text, host=target_worker.host, rank=target_worker.rank) from error

        return self._pools[target_worker.rank].submit(run_step)

    def wait_for_results(
        self, futures: Sequence[Future[Any]], workers: Sequence[LaunchedWorker] | None = None
    ) -> list[Any]:
        """Wait for futures and return their values; raises the error of the first that failed."""
        values = [future.exception() or future.result() for future in futures]
        self.wait_until(lambda: True)
        for value in values:
            if isinstance(value, Exception):
                raise value
        return values

    def abort_workers(self, reason: str) -> None:
        """Set the abort flag of every worker thread, so that whatever waits in them stops."""
        for process in self._processes:
            process.plugins[worker.PLUGIN].abort.abort_run(reason)


def _make_fake_worker_process(deliver_event: Callable[[Mapping[str, Any]], None]) -> Any:
    """Make a stand-in for a worker's process: it has the merge's plugin, and a loop that delivers events at once."""
    process = SimpleNamespace(
        loop=SimpleNamespace(add_callback=lambda function, *arguments: function(*arguments)),
        log_event=lambda topic, message: deliver_event(message),
    )
    plugin = worker.MergeWorker()
    plugin.worker, plugin.abort, plugin.state, plugin.children, plugin.uses_gpu = process, AbortFlag(), None, {}, False
    process.plugins = {worker.PLUGIN: plugin}
    return process
