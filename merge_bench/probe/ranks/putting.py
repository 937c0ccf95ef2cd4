"""What the two workers of `probe rma` run: the source puts, the target has the memory and progresses UCX."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from merge_bench.errors import RunFailed
from merge_bench.merge.exchange import one_sided_puts as puts
from merge_bench.merge.exchange.base import ORPHANED_SECONDS
from merge_bench.merge.exchange.one_sided_puts import STOPPED, Memory, Window
from merge_bench.merge.worker import current_plugin

if TYPE_CHECKING:  # the driver imports this module, and needs no UCX
    from merge_bench.merge.exchange.ucx import UcxExchange

TOGETHER, APART = "put-overlapping", "put-non-overlapping"
TARGET, SOURCE = "put-target", "put-source"
SPIN_ROUNDS = 2000


@dataclass(frozen=True)
class Measured:
    """The result of one test at one size: seconds of all `count` puts and their flushes."""

    test: str
    size: int
    count: int
    seconds: float


def _ucx_exchange() -> UcxExchange:
    return cast("UcxExchange", current_plugin().exchange)


def hold_target_memory(length: int, puts_from: int) -> Window:
    """Register memory that rank `puts_from` writes to, and return where it is; `free_memory` frees it."""
    plugin = current_plugin()
    context, _, _ = _ucx_exchange().handles(puts_from)
    memory = Memory(context, length)
    plugin.children[TARGET] = HeldMemory(memory, _ucx_exchange())
    memory.bytes[:] = 0
    return memory.window()


def serve_puts(source: int, sizes: Sequence[tuple[int, int]]) -> list[int]:
    """Progress UCX while rank `source` runs `put_all_sizes`; returns the number of wrong bytes after each test."""
    plugin = current_plugin()
    held = plugin.children[TARGET]
    assert isinstance(held, HeldMemory)
    loops = puts.loops()
    _, worker, _ = _ucx_exchange().handles(source)
    wrong = []
    with _stop_flag() as stop:

        def progress() -> None:
            _check_status(loops.spin(worker, SPIN_ROUNDS, stop), f"rank {source} wrote to the memory of this rank")

        for number, (size, _) in enumerate(sizes):
            for test in (TOGETHER, APART):
                _ucx_exchange().await_token(source, progress)
                wrong.append(int(np.count_nonzero(held.memory.bytes[:size] != _test_byte(number, test))))
                _ucx_exchange().transfer({source: np.ones(1, np.uint8)}, {})  # it may put again
    return wrong


def put_all_sizes(target: int, window: Window, sizes: Sequence[tuple[int, int]]) -> list[Measured]:
    """Put every size (bytes, count) overlapping and non-overlapping into the memory of rank `target`.

    A tenth as many puts are made before as a warm-up. The time goes from the first put to the end of the last flush.
    """
    plugin = current_plugin()
    context, worker, endpoint = _ucx_exchange().handles(target)
    loops, parameters = puts.loops(), puts.parameters()
    # If this is stopped, puts are in flight: their memory stays until the endpoints are closed (`free_memory`).
    plugin.children[SOURCE] = held = HeldMemory(Memory(context, window.length), _ucx_exchange())
    memory, held.key = held.memory, puts.unpack_key(endpoint, window.key)
    measured = []
    with _stop_flag() as stop:
        for number, (size, count) in enumerate(sizes):
            for test in (TOGETHER, APART):
                memory.bytes[:size] = _test_byte(number, test)
                seconds = 0.0
                loop = loops.together if test == TOGETHER else loops.apart
                for times in (max(1, count // 10), count):
                    route = (worker, endpoint, memory.address, size, window.address, held.key)
                    start = time.perf_counter()
                    status = loop(*route, times, parameters.ctypes.data, stop)
                    seconds = time.perf_counter() - start
                    _check_status(status, f"this rank wrote to the memory of rank {target}")
                _ucx_exchange().transfer({target: np.ones(1, np.uint8)}, {})
                _ucx_exchange().transfer({}, {target: np.empty(1, np.uint8)})
                measured.append(Measured(test, size, count, seconds))
    free_memory(SOURCE)
    return measured


def free_memory(end: str) -> None:
    """Free the memory of the `TARGET` or the `SOURCE`; no put may be in flight."""
    held = current_plugin().children.pop(end, None)
    if held is not None:
        held.end()


@dataclass
class HeldMemory:
    """Registered memory of one end of the puts; at the source also the key of the target's memory (0: none yet)."""

    memory: Memory
    exchange: UcxExchange
    key: int = 0

    def end(self) -> None:
        """Free the memory, unless peers of an aborted run may still put into it or out of it."""
        if self.exchange.unanswered:
            return
        if self.key:
            puts.drop_key(self.key)
        self.memory.free()


def _test_byte(number: int, test: str) -> int:
    """The byte that a test writes, which differs from that of the test before."""
    return (2 * number + (test == APART)) % 255 + 1


def _check_status(status: int, during: str) -> None:
    """Raise RunFailed if a compiled loop was stopped, or UCX failed; `during`: what was being done."""
    if status == STOPPED:
        current_plugin().abort.check()
        raise RunFailed(f"the process that controls the run did not answer while {during}")
    if status != 0:
        raise RunFailed(f"UCX failed with status {status} while {during}")


@contextlib.contextmanager
def _stop_flag() -> Iterator[npt.NDArray[np.int64]]:
    """A flag that ends the compiled loops; it is set when the run is aborted or its driver does not answer."""
    stop, over = np.zeros(1, np.int64), threading.Event()
    abort = current_plugin().abort

    def watch() -> None:
        while not over.wait(0.02):
            if abort.is_abandoned(ORPHANED_SECONDS):
                stop[0] = 1
                return

    thread = threading.Thread(target=watch, name="put-watch", daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        over.set()
        thread.join()
