"""RAPIDS' own shuffle as a data plane: rapidsmpf moves tables of cuDF that `cudf_streaming` has packed.

rapidsmpf does not move buffers from one rank to another, but the parts of a whole table: `partition_and_pack_table`,
`shuffle`, `concatenate_chunks`.

Barriers, and the few bytes that workers exchange about a merge, go over UCX endpoints of our own (`ucx.py`), because
rapidsmpf's barrier has no limit. Its communicator has a UCX context, endpoints and threads of its own, with the same
settings of UCX; which transports it selects cannot be asked.

Rank 0 makes the root of the communicator, whose address is part of its own. The others join one after the other, since
rapidsmpf numbers ranks as they come; meanwhile rank 0 is in rapidsmpf's barrier, without which it answers none of them.
No endpoint of it has error handling: it does not notice that a peer has died.
"""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import msgspec
import numpy as np

from merge_bench.errors import RunFailed, UsageError, first_message_line
from merge_bench.merge.engines.cudf import PARTITION_SEED
from merge_bench.merge.engines.gpu_memory import (
    bind_cuda_context,
    process_cuda_stream,
    rmm_memory_resource,
    translate_rapids_errors,
)
from merge_bench.merge.exchange import DataPlane
from merge_bench.merge.exchange.base import (
    AbortFlag,
    Exchange,
    FrameTransfer,
    PackedTable,
    ShuffledTable,
    TableExchange,
)
from merge_bench.merge.plan import Plan

PLANE = DataPlane(
    name="rapidsmpf",
    help="with RAPIDS' shuffle, on GPUs",
    place=3,
    attribute="RapidsmpfExchange",
    packages=("ucxx", "rapidsmpf", "cudf_streaming"),
    ucx=True,
    engines=("cudf",),
    tables=True,
    broadcast=False,
)

RECEIVED = "shuffle-payload-recv"
"""The name under which rapidsmpf counts bytes of chunks that arrived whole."""

CLOSE_SECONDS = 1.0
CHECK_SECONDS = 0.05

Result = TypeVar("Result")
_Entry: TypeAlias = tuple[Future[Any], Callable[[], Any]]
"""A call that was begun: its result to be, and the function."""


class AbortableCallThread:
    """A thread that makes one call after the other, so that the worker can stop waiting for a call that hangs.

    A call that never returns keeps its thread, and all memory it uses, for as long as the process runs, because it may
    still write into that memory.

    `timeout`: seconds without progress and without a heartbeat after which a wait ends. `begin`: called once in the
    thread before any call, to bind a CUDA context there.
    """

    def __init__(self, rank: int, abort: AbortFlag, timeout: float, begin: Callable[[], object]) -> None:
        self._rank, self._abort, self._timeout = rank, abort, timeout
        self._calls: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._stuck = ""
        threading.Thread(target=self._run_calls, name="limited-calls", daemon=True).start()
        self.call_and_wait(begin, "preparing a thread")

    def call_and_wait(
        self, function: Callable[[], Result], activity: str, progress: Callable[[], float] = lambda: 0.0
    ) -> Result:
        """Make a call in the thread, wait for it, and return its result; `activity` describes it in errors."""
        return self.wait_for_call(self.start_call(function), activity, progress)

    def start_call(self, function: Callable[[], Result]) -> Future[Result]:
        """Start a call in the thread; returns its future for `wait_for_call`.

        Raises `RunFailed` if an earlier call has not returned.
        """
        if self._stuck:
            raise RunFailed(f"rank {self._rank} is still {self._stuck}, after a run that failed; restart the workers")
        call = Future[Result]()
        self._calls.put((call, function))
        return call

    def wait_for_call(self, call: Future[Result], activity: str, progress: Callable[[], float] = lambda: 0.0) -> Result:
        """Wait for a call; returns its result, or raises its exception.

        Raises `RunFailed` if the run is aborted, or there is no progress for too long. `activity`: what the call does,
        as in ``waiting for rows``. `progress`: returns a number that changes while there is progress.
        """
        last, since = progress(), time.monotonic()
        try:
            while futures.wait([call], CHECK_SECONDS).not_done:
                self._abort.raise_if_aborted()
                now, moved = time.monotonic(), progress()
                if moved != last:
                    last, since = moved, now
                if self._abort.is_stalled(now - since, self._timeout):
                    raise RunFailed(f"rank {self._rank} was {activity} for {now - since:.0f} s without progress")
        except RunFailed:
            self._stuck = activity
            raise
        return call.result()

    def end_thread(self, last_function: Callable[[], object], seconds: float) -> None:
        """Make a last call in the thread, and end the thread; waits at most `seconds` for the call."""
        call = Future[object]()
        self._calls.put((call, last_function))
        self._calls.put(None)
        futures.wait([call], seconds)

    def _run_calls(self) -> None:
        while (entry := self._calls.get()) is not None:
            call, function = entry
            try:
                call.set_result(function())
            except BaseException as error:
                call.set_exception(error)


class RapidsmpfExchange(Exchange):
    """One worker's end of the data plane ``rapidsmpf``.

    `control`: this worker's end of another data plane, for barriers and small messages. `timeout`: seconds without
    progress and without a heartbeat after which a wait ends. `bind`: binds a CUDA context in the thread that calls it.
    """

    title = "rapidsmpf"

    def __init__(
        self,
        control: Exchange,
        *,
        abort: AbortFlag,
        timeout: float = 15.0,
        bind: Callable[[], object] = bind_cuda_context,
    ) -> None:
        super().__init__(control.rank, control.workers, abort=abort)
        self._control, self._operation = control, 0
        self._comm: Any = None
        self._numbered = (0, 1)  # rank and count, as rapidsmpf has them
        self._statistics: Any = None
        self._root = b""
        if self.workers > 1:
            self._calls = AbortableCallThread(self.rank, abort, timeout, bind)
            if self.rank == 0:
                self._root = self._join_communicator(None)

    @classmethod
    def from_plan(cls, plan: Plan, rank: int, abort: AbortFlag) -> RapidsmpfExchange:
        from merge_bench.merge.exchange.ucx import UcxExchange

        return cls(UcxExchange.from_plan(plan, rank, abort), abort=abort, timeout=plan.timeout)

    @property
    def address(self) -> bytes:
        return msgspec.msgpack.encode((self._control.address, self._root))

    def connect(self, addresses: Sequence[bytes]) -> None:
        """Connect the workers' own endpoints, then let one worker after the other join rapidsmpf's communicator.

        Raises `RunFailed` if a peer does not answer within the limit, or rapidsmpf gives a worker another rank.
        """
        pairs = [msgspec.msgpack.decode(address, type=tuple[bytes, bytes]) for address in addresses]
        self._control.connect([own for own, _ in pairs])
        if self.workers == 1:
            return
        with translate_rapids_errors(self.rank, "connecting", "rapidsmpf"):
            passed = self._calls.start_call(self._enter_rapidsmpf_barrier) if self.rank == 0 else None
            for rank in range(1, self.workers):
                if rank == self.rank:
                    self._join_communicator(pairs[0][1])
                self.barrier()
            self._check_assigned_rank()
            self._calls.wait_for_call(
                passed or self._calls.start_call(self._enter_rapidsmpf_barrier), "connecting over rapidsmpf"
            )

    def transfer(
        self, sends: Mapping[int, Any], receives: Mapping[int, Any], *, note_batches: bool = False
    ) -> FrameTransfer:
        return self._control.transfer(sends, receives, note_batches=note_batches)

    @property
    def effective_config(self) -> dict[str, str]:
        return self._control.effective_config

    def partition_and_pack_table(self, table: Any, keys: Sequence[int]) -> PackedTable:
        from cudf_streaming.partition_utils import partition_and_pack, unpack_and_concat_cost

        with translate_rapids_errors(self.rank, "packing rows", "rapidsmpf"):
            chunks = partition_and_pack(
                table, list(keys), self.workers, process_cuda_stream(), self._buffer_resource, seed=PARTITION_SEED
            )
            ranks = range(self.workers)
            sizes = tuple(int(unpack_and_concat_cost([chunks[rank]])) if rank in chunks else 0 for rank in ranks)
        return PackedTable(chunks, sizes)

    def shuffle(self, tables: Sequence[PackedTable]) -> list[ShuffledTable]:
        from rapidsmpf.shuffler import Shuffler

        began, seconds, shufflers = time.perf_counter(), list[float](), list[Any]()

        def received_bytes() -> float:
            return self.statistics().get(RECEIVED, 0.0)

        try:
            with translate_rapids_errors(self.rank, "exchanging rows", "rapidsmpf"):
                for table in tables:
                    self._operation += 1
                    number = self._operation % int(Shuffler.max_concurrent_shuffles)  # the same on all workers
                    shuffler = Shuffler(self._comm, number, self.workers, self._buffer_resource)
                    shufflers.append(shuffler)
                    shuffler.insert_chunks(table.chunks)
                    shuffler.insert_finished()
                for shuffler in shufflers:
                    self._calls.call_and_wait(shuffler.wait, "waiting for rows over rapidsmpf", received_bytes)
                    seconds.append(time.perf_counter() - began)
                chunks = [shuffler.extract(self.rank) for shuffler in shufflers]
                for shuffler in shufflers:  # all its messages are complete, so this does not wait for peers
                    shuffler.shutdown()
        except BaseException:
            _keep_objects_until_exit(shufflers)
            raise
        return list(map(ShuffledTable, chunks, seconds))

    def concatenate_chunks(self, shuffled: ShuffledTable) -> Any:
        from cudf_streaming.partition_utils import unpack_and_concat

        if not shuffled.chunks:
            return None
        with translate_rapids_errors(self.rank, "unpacking rows", "rapidsmpf"):
            return unpack_and_concat(shuffled.chunks, process_cuda_stream(), self._buffer_resource)

    def statistics(self) -> dict[str, float]:
        if self._statistics is None:
            return {}
        return {name: float(each["value"]) for name, each in sorted(self._statistics.to_dict().items())}

    def close(self) -> None:
        self._control.close()
        kept, self._comm = [self._comm], None
        if self.workers > 1:
            self._calls.end_thread(kept.clear, CLOSE_SECONDS)  # ends rapidsmpf's threads

    @cached_property
    def _buffer_resource(self) -> Any:
        """The rapidsmpf `BufferResource` over the engine's memory pool, without spilling to host memory."""
        from rapidsmpf.memory.buffer_resource import BufferResource

        return BufferResource(rmm_memory_resource(), periodic_spill_check=None, statistics=self._statistics)

    def _join_communicator(self, root_address: bytes | None) -> bytes:
        """Make this worker's rapidsmpf communicator.

        Returns its address on rank 0, which is the root, and b"" elsewhere. `root_address`: the address of rank 0's
        communicator; None on rank 0.
        """
        try:
            from rapidsmpf.communicator.ucxx import get_root_ucxx_address, new_communicator
            from rapidsmpf.config import Options, get_environment_variables
            from rapidsmpf.progress_thread import ProgressThread
            from rapidsmpf.statistics import Statistics
            from ucxx._lib.libucxx import UCXAddress
        except ImportError as error:
            raise UsageError(f"--exchange rapidsmpf cannot be loaded: {first_message_line(error)}") from error

        statistics = self._statistics = Statistics(enable=True)

        def make_communicator() -> tuple[Any, tuple[int, int], bytes]:
            address = (
                None if root_address is None else UCXAddress.create_from_buffer(np.frombuffer(root_address, np.uint8))
            )
            options = Options(get_environment_variables())
            comm = new_communicator(self.workers, None, address, options, ProgressThread(statistics))
            # On other ranks `get_root_ucxx_address` ends the process.
            own = bytes(get_root_ucxx_address(comm)) if root_address is None else b""
            return comm, (comm.rank, comm.nranks), own

        with translate_rapids_errors(self.rank, "opening its communicator", "rapidsmpf"):
            self._comm, self._numbered, own = self._calls.call_and_wait(
                make_communicator, "opening rapidsmpf's communicator"
            )
        return own

    def _check_assigned_rank(self) -> None:
        """Raise `RunFailed` if rapidsmpf gives this worker another rank."""
        if self._numbered != (self.rank, self.workers):
            rank, workers = self._numbered
            raise RunFailed(f"rapidsmpf numbers rank {self.rank} of {self.workers} as {rank} of {workers}")

    def _enter_rapidsmpf_barrier(self) -> None:
        from rapidsmpf.communicator.ucxx import barrier

        barrier(self._comm)


_COMPLETE: type[TableExchange] = RapidsmpfExchange  # for the type checker: it has every method


def _keep_objects_until_exit(objects: Sequence[object]) -> None:
    """Keep objects until the process ends.

    A rapidsmpf `Shuffler` must not be freed before its peers have sent all chunks that they announced, and it ends the
    process if it is freed before `insert_finished`.
    """
    for thing in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
