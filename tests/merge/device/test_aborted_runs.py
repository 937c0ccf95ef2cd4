"""What peers of an aborted run may still write to: the memory of its messages is not used again before they cannot.

Between real processes on a driver without a GPU (`fake_driver`), in device memory and in host memory.
"""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from merge_bench.errors import RunFailed
from merge_bench.merge import worker
from merge_bench.merge.exchange.ucx import GOODBYE_SECONDS
from merge_bench.probe.ranks.puts import TARGET, PutSideMemory, RegisteredMemory
from tests.helpers.plans import plan_of
from tests.merge.device import fake_driver, memory
from tests.merge.exchange.ranks import ranks

pytestmark = pytest.mark.cluster

MIB = 1 << 20
SECONDS = 20.0  # that a rank waits for the other in a test


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return fake_driver.build(tmp_path_factory.mktemp("driver"))


def wait_for(path: Path) -> None:
    """Wait for a file of the other rank."""
    deadline = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"the other rank did not write {path.name} within {SECONDS} s"
        time.sleep(0.01)


class Buffers:
    """Buffers for a launch, in device memory or in host memory."""

    def __init__(self, kind: str) -> None:
        self._pool = memory.Pool(32 * MIB) if kind == "device" else None

    def take(self, size: int) -> Any:
        return self._pool.take(size) if self._pool else np.empty(size, np.uint8)

    def write(self, target: Any, value: int) -> None:
        if self._pool:
            memory.write(target, np.full(target.size, value, np.uint8))
        else:
            target[:] = value

    def read(self, source: Any) -> np.ndarray:
        return memory.read(source) if self._pool else source

    def address(self, buffer: Any) -> int:
        return int(buffer.ptr if self._pool else buffer.ctypes.data)


def plugin_with(exchange: Any) -> worker.MergeWorker:
    """What a worker keeps of a launch that has this exchange."""
    plugin = worker.MergeWorker()
    plugin.abort, plugin.children = exchange.abort, {}
    plugin.state = worker.LaunchState(
        exchange.rank, plan_of(workers=2), "", worker.PeakMemoryMeter(), None, 0, exchange=exchange
    )
    return plugin


OLD, NEW = 0x11, 0x77


def be_aborted(exchange: Any, sends: dict[int, Any], receives: dict[int, Any]) -> None:
    """A transfer that the driver aborts."""
    timer = threading.Timer(0.3, exchange.abort.abort_run, ("stopped by the user",))
    timer.start()
    with contextlib.suppress(RunFailed):
        exchange.transfer(sends, receives)
    timer.join()


def send_and_abort(exchange: Any, buffers: Buffers, size: int, when: str, folder: Path) -> str:
    """What rank 1 does of `abort_while_receiving`."""
    plugin, message = plugin_with(exchange), buffers.take(size)
    buffers.write(message, OLD)
    if when == "in flight":
        (folder / "posted").touch()
        be_aborted(exchange, {0: message}, {})
    else:
        exchange.abandon_messages([exchange.post_message(message, 0, exchange.reserve_operations(1), 0, receive=False)])
        for _ in range(100):
            exchange.progress()
        (folder / "posted").touch()
        wait_for(folder / ("reused" if when == "late" else "aborted"))
    if when == "late":
        be_aborted(exchange, {}, {0: buffers.take(size)})
    worker.release_launch(plugin)
    (folder / "gone").touch()
    return "gone"


def abort_while_receiving(exchange: Any, kind: str, size: int, when: str, folder: Path) -> Any:
    """Rank 0 is aborted while rank 1's message is on its way, releases the launch, and uses its memory again.

    `when` rank 1 goes on with that message: ``at once``, as both are aborted; ``late``, when rank 0 has given up
    waiting for it; ``in flight``: it had begun a copy that takes longer.

    Gives how many bytes were overwritten of the buffers that rank 0 then filled, whether they are where the aborted
    ones were, and the bytes that are never freed.
    """
    buffers = Buffers(kind)
    exchange.transfer({1 - exchange.rank: buffers.take(size)}, {1 - exchange.rank: buffers.take(size)})
    exchange.barrier()
    if exchange.rank == 1:
        return send_and_abort(exchange, buffers, size, when, folder)
    plugin = plugin_with(exchange)
    wait_for(folder / "posted")
    room = buffers.take(size)
    address = buffers.address(room)
    be_aborted(exchange, {}, {1: room})
    del room
    (folder / "aborted").touch()
    worker.release_launch(plugin)
    again = [buffers.take(size) for _ in range(3)]
    for each in again:
        buffers.write(each, NEW)
    (folder / "reused").touch()
    wait_for(folder / "gone")
    time.sleep(1.0)  # a copy that is still going on
    overwritten = sum(int(np.count_nonzero(buffers.read(each) != NEW)) for each in again)
    return overwritten, address in map(buffers.address, again), plugin.kept_bytes


@pytest.mark.parametrize(
    "when", [*(pytest.param(when, marks=pytest.mark.soak) for when in ("at once", "late")), "in flight"]
)
def test_no_peer_writes_into_device_memory_of_the_next_run(driver: dict[str, str], tmp_path: Path, when: str) -> None:
    slow = {"FAKE_GPU_COPY_MS": "1000"} if when == "in flight" else {}
    with ranks(2, {**driver, **slow}) as made:
        found, other = made.everyone(abort_while_receiving, 2, "device", 4 * MIB, when, tmp_path, setup=memory.bind)
    assert other == "gone"
    overwritten, again, kept = found
    assert overwritten == 0
    assert (again, kept) == ((False, 4 * MIB) if when == "late" else (True, 0))  # nothing is kept without need


@pytest.mark.parametrize("when", [pytest.param("at once", marks=pytest.mark.soak), "late"])
def test_no_peer_writes_into_host_memory_of_the_next_run(driver: dict[str, str], tmp_path: Path, when: str) -> None:
    with ranks(2, {**driver, "UCX_RNDV_SCHEME": "put_zcopy"}) as made:
        found, other = made.everyone(abort_while_receiving, 2, "host", 40 * MIB, when, tmp_path, setup=memory.bind)
    assert other == "gone"
    overwritten, again, kept = found
    assert overwritten == 0
    assert (again, kept) == ((False, 40 * MIB) if when == "late" else (True, 0))


def abort_before_a_match(exchange: Any, size: int) -> tuple[int, int, float]:
    """Abort a send that nobody receives, and a receive for which nobody sends, at each other's peer.

    Gives the seconds that the release took, and what it kept.
    """
    plugin, buffers, other = plugin_with(exchange), Buffers("device"), 1 - exchange.rank
    if exchange.rank == 0:
        be_aborted(exchange, {other: buffers.take(size)}, {other: buffers.take(size)})
    else:  # comes late from its own work, and never posts anything
        time.sleep(0.5)
        exchange.abort.abort_run("stopped by the user")
    began = time.monotonic()
    worker.release_launch(plugin)
    return plugin.kept_bytes, exchange.kept_bytes, time.monotonic() - began


def test_messages_that_nobody_matched_are_given_up(driver: dict[str, str]) -> None:
    with ranks(2, driver) as made:
        for kept, same, seconds in made.everyone(abort_before_a_match, 2, 4 * MIB, setup=memory.bind):
            assert kept == same == 0
            assert seconds < GOODBYE_SECONDS


class Window(RegisteredMemory):
    """Memory for puts that notes when it is freed."""

    freed = False

    def free(self) -> None:
        self.freed = True
        super().free()


def abort_while_open_for_puts(exchange: Any, late: bool, folder: Path) -> bool:
    """Rank 0 has memory that rank 1 may put into when both are aborted; gives whether rank 0 freed it."""
    plugin = plugin_with(exchange)
    exchange.abort.abort_run("stopped by the user")
    if exchange.rank == 1:
        if late:
            wait_for(folder / "released")
        worker.release_launch(plugin)
        return False
    window = Window(exchange.ucx_handles(1)[0], MIB)
    plugin.children[TARGET] = PutSideMemory(window, exchange)
    worker.release_launch(plugin)
    (folder / "released").touch()
    return window.freed


@pytest.mark.parametrize("late", [False, True])
def test_memory_for_puts_is_freed_when_no_peer_can_put_any_more(tmp_path: Path, late: bool) -> None:
    with ranks(2) as made:
        freed, _ = made.everyone(abort_while_open_for_puts, 2, late, tmp_path, puts=True)
    assert freed is not late
