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

from merge_bench.campaign import campaign, cluster_session
from merge_bench.cluster.watch import Member
from merge_bench.cluster.worker_calls import WorkerCalls
from merge_bench.errors import LaunchFailed, MergeBenchError, RunFailed, UsageError
from merge_bench.host import machine
from merge_bench.host.description import ProcessFacts, Ucx
from merge_bench.merge import copy_rate, merger, worker
from merge_bench.merge.exchange.base import Abort, Exchange, Flight
from merge_bench.merge.frame import Bytes
from merge_bench.merge.partition import contiguous_buffers
from merge_bench.merge.plan import Plan
from merge_bench.records.schema import Cluster, SizeRange, Worker

_thread = threading.local()

Failures = Mapping[str, Exception]
"""Names of steps (functions of `merge.worker`), each with the error that it raises on rank 0."""


@contextlib.contextmanager
def fake_cluster(failures: Failures | None = None) -> Iterator[None]:
    """Have launches in this block use threads of this process for workers."""

    def exchange_class(name: str) -> type[Exchange]:
        return QueueExchange

    with (
        mock.patch.object(cluster_session, "Session", functools.partial(_ThreadSession, failures or {})),
        mock.patch.object(merger, "exchange_class", exchange_class),
        mock.patch.object(worker, "exchange_class", exchange_class),
        mock.patch.object(worker, "get_worker", _current_process),
        mock.patch.object(copy_rate, "LEAST_BYTES", 1),
        mock.patch.object(campaign, "check_host"),
    ):
        gc.freeze()  # what is there already need not be looked through before every iteration
        try:
            yield
        finally:
            gc.unfreeze()


@functools.cache
def _describe(variables: tuple[str, ...]) -> ProcessFacts:
    return machine.describe(variables, ucx=Ucx())


def _current_process() -> Any:
    return _thread.process


class QueueExchange(Exchange):
    """A data plane between threads."""

    title = "queues"
    _ends: ClassVar[dict[bytes, QueueExchange]] = {}

    def __init__(self, rank: int, workers: int, *, abort: Abort, timeout: float) -> None:
        super().__init__(rank, workers, abort=abort)
        self._timeout = timeout
        self._arrived: dict[int, queue.Queue[list[Bytes]]] = {peer: queue.Queue() for peer in self.peers}
        self._others: dict[int, QueueExchange] = {}
        self._ends[self.address] = self

    @classmethod
    def of_plan(cls, plan: Plan, rank: int, abort: Abort) -> QueueExchange:
        """This worker's end of the data plane."""
        return cls(rank, plan.workers, abort=abort, timeout=plan.timeout)

    @property
    def address(self) -> bytes:
        """A name that no other end of this process has."""
        return str(id(self)).encode()

    def connect(self, addresses: Sequence[bytes]) -> None:
        """Find the ends of the other workers."""
        self._others = {peer: self._ends[addresses[peer]] for peer in self.peers}
        self.barrier()

    def transfer(self, sends: Mapping[int, Any], receives: Mapping[int, Any], *, noted: bool = False) -> Flight:
        """As `Exchange.transfer`."""
        flight, began = Flight(), time.perf_counter()
        for peer, buffer in sends.items():
            self._others[peer]._arrived[self.rank].put([_bytes(run).copy() for run in contiguous_buffers(buffer)])
            flight.sent_bytes += buffer.nbytes
        for peer, buffer in receives.items():
            for target, source in zip(contiguous_buffers(buffer), self._receive(peer), strict=True):
                _bytes(target)[:] = source
            flight.arrived[peer] = (buffer.nbytes, time.perf_counter() - began)
        flight.seconds = time.perf_counter() - began
        if noted:
            for received, buffers in ((False, sends), (True, receives)):
                for peer, buffer in buffers.items():
                    flight.batches[peer, received] = (began, began + flight.seconds, buffer.nbytes)
        return flight

    def _receive(self, peer: int) -> list[Bytes]:
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline:
            self.abort.check()
            with contextlib.suppress(queue.Empty):
                return self._arrived[peer].get(timeout=0.05)
        raise RunFailed(f"rank {self.rank} received nothing from rank {peer} for {self._timeout:.0f} s")

    def endpoints(self) -> dict[int, tuple[list[str], list[SizeRange]]]:
        """One lane for each peer."""
        return {peer: (["self/memory"], []) for peer in self.peers}

    def close(self) -> None:
        """Forget this end."""
        self._ends.pop(self.address, None)


def _bytes(run: Any) -> Bytes:
    return np.asarray(run).reshape(-1).view(np.uint8)


class _ThreadSession(cluster_session.Session):
    """A session whose workers are threads."""

    def __init__(self, failures: Failures, *about: Any) -> None:
        super().__init__(*about)
        self._failures, self._one_event = failures, threading.Lock()

    def start(self, *, merges: bool = True, exchange: str | None = None) -> None:
        """Describe this process once for each worker."""
        if not self.plan.data_plane.by_workers or self.plan.pipeline:
            raise UsageError("the cluster for tests has neither --exchange dask nor --pipeline on")
        workers = _ThreadWorkers(self._failures, self.plan.workers, self._deliver)
        self._workers = cast(WorkerCalls, workers)
        facts = _describe(tuple(self.settings.environment))
        commands = {command.role: command for command in self.launcher.commands(self.plan, self.settings)}
        for rank in range(self.plan.workers):
            name = f"worker-{rank}"
            member = Member(rank, f"inproc://{rank}", name, facts.host, facts.pid)
            description = Worker.of(rank, name, facts)
            if name in commands:
                environment = {**description.environment, **commands[name].environment}
                description = replace(description, environment=environment)
            workers.members.append(member)
            self.descriptions.append(description)

    def _deliver(self, message: Mapping[str, Any]) -> None:
        with self._one_event:
            self._handle((time.time(), message))

    def _cluster(self) -> Cluster:
        return Cluster(launcher=self.launcher.name, protocol=self.plan.protocol, scheduler="inproc://")

    def cause(self, problem: Exception) -> MergeBenchError | None:
        """None: there are no processes."""

    def end(self, *, well: bool) -> None:
        """End the threads."""
        if self._workers is not None:
            self._workers.abort("the run is ending")


class _ThreadWorkers:
    """What `cluster.worker_calls.WorkerCalls` offers, with a thread for each worker."""

    def __init__(self, failures: Failures, workers: int, deliver: Callable[[Mapping[str, Any]], None]) -> None:
        self._failures, self.members, self.client, self.watch = failures, list[Member](), None, None
        self._problem: MergeBenchError | None = None
        self._pools = [ThreadPoolExecutor(1) for _ in range(workers)]
        self._processes = [_process(deliver) for _ in range(workers)]

    def on_all(
        self, step: Callable[..., Any], *arguments: Any, ranked: bool = False, after: tuple[Any, ...] = (), **named: Any
    ) -> list[Any]:
        """Run a step on every worker at once."""
        given = [(*arguments, member.rank, *after) if ranked else arguments for member in self.members]
        return self.results(self.submit(step, given, **named))

    def on_one(self, rank: int, step: Callable[..., Any], *arguments: Any) -> Any:
        """Run a step on one worker."""
        return self.on_some({rank: (step, *arguments)})[0]

    def on_some(self, steps_by_rank: Mapping[int, tuple[Any, ...]]) -> list[Any]:
        """Run on each of some workers a step with its arguments, all at once."""
        return self.results([self._submit(rank, *call) for rank, call in steps_by_rank.items()])

    def submit(self, step: Callable[..., Any], given: Sequence[tuple[Any, ...]], **named: Any) -> list[Future[Any]]:
        """One call of `step` per worker, with its own arguments, in rank order."""
        return [self._submit(rank, step, *arguments, **named) for rank, arguments in enumerate(given)]

    def _submit(self, rank: int, step: Callable[..., Any], *arguments: Any, **named: Any) -> Future[Any]:
        def run() -> Any:
            _thread.process = self._processes[rank]
            try:
                if rank == 0 and step.__name__ in self._failures:
                    raise self._failures[step.__name__]
                return step(*arguments, **named)
            except UsageError:
                self.abort("stopped because a step was refused")
                raise
            except Exception as error:
                self.abort(f"stopped because rank {rank} failed")
                shown, host = self.members[rank].shown, self.members[rank].host
                message = str(error) if isinstance(error, MergeBenchError) else f"{type(error).__name__}: {error}"
                raise LaunchFailed(f"{shown} failed: {message}", host=host, rank=rank) from error

        return self._pools[rank].submit(run)

    def results(self, futures: Sequence[Future[Any]]) -> list[Any]:
        """Wait for futures; raises what failed first in the order of ranks."""
        values = [future.exception() or future.result() for future in futures]
        self.until(lambda: True)
        for value in values:
            if isinstance(value, Exception):
                raise value
        return values

    def until(self, done: Callable[[], bool]) -> None:
        """Wait until `done`; raises a problem that was noticed."""
        while self._problem is None and not done():
            time.sleep(0.001)
        if self._problem is not None:
            raise self._problem

    def notice(self, problem: MergeBenchError | None = None) -> None:
        """Called when an event of a worker arrived."""
        self._problem = self._problem or problem

    def abort(self, reason: str) -> None:
        """Stop everything that waits on the workers."""
        for process in self._processes:
            process.plugins[worker.PLUGIN].abort.set(reason)


def _process(deliver: Callable[[Mapping[str, Any]], None]) -> Any:
    """What stands for a process of a worker: its plugin, and a loop that delivers events at once."""
    process = SimpleNamespace(
        loop=SimpleNamespace(add_callback=lambda function, *given: function(*given)),
        log_event=lambda topic, message: deliver(message),
    )
    plugin = worker.MergeWorker()
    plugin.worker, plugin.abort, plugin.state, plugin.children, plugin.uses_gpu = process, Abort(), None, {}, False
    process.plugins = {worker.PLUGIN: plugin}
    return process
