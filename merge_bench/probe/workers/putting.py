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
    """One size: seconds of all `count` puts and their flushes."""

    test: str
    size: int
    count: int
    seconds: float


def _ucx() -> UcxExchange:
    """This worker's end of the data plane, as `worker.open_ucx` has opened it."""
    return cast("UcxExchange", current_plugin().exchange)


def hold(length: int, puts_from: int) -> Window:
    """Register memory for the puts of rank `puts_from`; `release` frees it."""
    plugin = current_plugin()
    context, _, _ = _ucx().handles(puts_from)
    memory = Memory(context, length)
    plugin.children[TARGET] = _Held(memory)
    memory.bytes[:] = 0
    return memory.window()


def drive(source: int, sizes: Sequence[tuple[int, int]]) -> list[int]:
    """The target's part of `put`: progress UCX meanwhile; gives the number of wrong bytes after each test."""
    plugin = current_plugin()
    held = plugin.children[TARGET]
    assert isinstance(held, _Held)
    loops = puts.loops()
    _, worker, _ = _ucx().handles(source)
    wrong = []
    with _stoppable() as stop:

        def progress() -> None:
            _check(loops.spin(worker, SPIN_ROUNDS, stop), f"rank {source} wrote to the memory of this rank")

        for number, (size, _) in enumerate(sizes):
            for test in (TOGETHER, APART):
                _ucx().await_token(source, progress)
                wrong.append(int(np.count_nonzero(held.memory.bytes[:size] != _pattern(number, test))))
                _ucx().transfer({source: np.ones(1, np.uint8)}, {})  # it may put again
    return wrong


def put(target: int, window: Window, sizes: Sequence[tuple[int, int]]) -> list[Measured]:
    """Put every size (bytes, count) overlapping and non-overlapping into the memory of rank `target`.

    A tenth of the puts are made before as a warm-up. The time is that from the first put to the end of the last flush.
    """
    plugin = current_plugin()
    context, worker, endpoint = _ucx().handles(target)
    loops, parameters = puts.loops(), puts.parameters()
    # If this is stopped, puts are in flight: their memory stays until the endpoints are closed (`release`).
    plugin.children[SOURCE] = held = _Held(Memory(context, window.length))
    memory, held.key = held.memory, puts.unpack_key(endpoint, window.key)
    measured = []
    with _stoppable() as stop:
        for number, (size, count) in enumerate(sizes):
            for test in (TOGETHER, APART):
                memory.bytes[:size] = _pattern(number, test)
                seconds = 0.0
                for times in (max(1, count // 10), count):
                    loop = loops.together if test == TOGETHER else loops.apart
                    start = time.perf_counter()
                    status = loop(
                        worker,
                        endpoint,
                        memory.address,
                        size,
                        window.address,
                        held.key,
                        times,
                        parameters.ctypes.data,
                        stop,
                    )
                    seconds = time.perf_counter() - start
                    _check(status, f"this rank wrote to the memory of rank {target}")
                _ucx().transfer({target: np.ones(1, np.uint8)}, {})
                _ucx().transfer({}, {target: np.empty(1, np.uint8)})
                measured.append(Measured(test, size, count, seconds))
    release(SOURCE)
    return measured


def release(end: str) -> None:
    """Free the memory of the `TARGET` or the `SOURCE`; no put may be in flight."""
    held = current_plugin().children.pop(end, None)
    if held is not None:
        held.end()


@dataclass
class _Held:
    """Registered memory; at the source also the key of the target's memory (0: none yet)."""

    memory: Memory
    key: int = 0

    def end(self) -> None:
        if self.key:
            puts.drop_key(self.key)
        self.memory.free()


def _pattern(number: int, test: str) -> int:
    """A byte that differs from that of the test before."""
    return (2 * number + (test == APART)) % 255 + 1


def _check(status: int, during: str) -> None:
    if status == STOPPED:
        current_plugin().abort.check()
        raise RunFailed(f"the process that controls the run did not answer while {during}")
    if status != 0:
        raise RunFailed(f"UCX failed with status {status} while {during}")


@contextlib.contextmanager
def _stoppable() -> Iterator[npt.NDArray[np.int64]]:
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
