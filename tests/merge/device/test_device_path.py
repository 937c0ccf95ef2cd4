"""The data plane with device memory, between real processes: real UCXX and UCX on a driver without a GPU."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from merge_bench.errors import RunFailed, UsageError
from merge_bench.merge import worker
from merge_bench.merge.exchange.base import Abort
from merge_bench.merge.partition import Runs
from tests.helpers.plans import plan_of
from tests.merge.device import fake_driver, memory
from tests.merge.exchange.ranks import ABORTED, Ranks, ranks
from tests.merge.exchange.test_ucx import content

pytestmark = pytest.mark.cluster

KIB, MIB = 1 << 10, 1 << 20
SECONDS = 20.0  # that a rank waits for the other in a test


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return fake_driver.build(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def three(driver: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ranks, Path]]:
    """Ranks with a GPU, and the log of their drivers' calls."""
    log = tmp_path_factory.mktemp("log") / "calls.txt"
    with ranks(3, {**driver, "FAKE_GPU_LOG": str(log)}) as made:
        yield made, log


def swap(exchange: Any, pool: memory.Pool, size: int, turn: int) -> list[str]:
    """Every rank to every other, in device memory; gives what was wrong."""
    sends = {peer: pool.take(size) for peer in exchange.peers}
    rooms = {peer: pool.take(size) for peer in exchange.peers}
    for peer, buffer in sends.items():
        memory.write(buffer, content(exchange.rank, peer, size, turn))
    exchange.transfer(sends, rooms)
    return [
        f"{size} bytes from rank {peer} in turn {turn}"
        for peer, room in rooms.items()
        if not np.array_equal(memory.read(room), content(peer, exchange.rank, size, turn))
    ]


def swap_sizes(exchange: Any, sizes: tuple[int, ...]) -> tuple[list[str], set[str]]:
    """What was wrong, and the lanes to the peers."""
    pool = memory.Pool(64 * MIB)
    wrong = [text for size in sizes for turn in range(2) for text in swap(exchange, pool, size, turn)]
    exchange.barrier()
    return wrong, {lane for lanes, _ in exchange.endpoints().values() for lane in lanes}


@pytest.mark.parametrize("settings", [{}, {"error_handling": True}, {"message_bytes": 300_000}])
def test_device_memory_arrives_over_cuda_ipc(three: tuple[Ranks, Path], settings: dict[str, Any]) -> None:
    made, log = three
    sizes = (1, 100, 8191, 8192, MIB, 5 * MIB + 1)
    for wrong, lanes in made.everyone(swap_sizes, 3, sizes, setup=memory.bind, **settings):
        assert wrong == []
        assert "cuda_ipc/cuda" in lanes
    opened = [line.split()[0] for line in log.read_text().splitlines() if line.endswith("cuIpcOpenMemHandle")]
    assert {str(process.pid) for process in made.processes} <= set(opened)


def swap_runs(exchange: Any, sizes: tuple[int, ...]) -> list[str]:
    """A parcel of several runs of device memory, and host memory beside it: each arrives in its own place."""
    pool, other = memory.Pool(16 * MIB), 1 - exchange.rank
    parcel, rooms = (Runs(tuple(pool.take(size) for size in sizes)) for _ in range(2))
    for at, run in enumerate(parcel.runs):
        memory.write(run, content(exchange.rank, other, run.size, at))
    exchange.transfer({other: parcel}, {other: rooms})
    on_host = np.empty(MIB, np.uint8)
    exchange.transfer({other: content(exchange.rank, other, MIB, 99)}, {other: on_host})
    wrong = [] if np.array_equal(on_host, content(other, exchange.rank, MIB, 99)) else ["host memory"]
    return wrong + [
        f"run {at}"
        for at, run in enumerate(rooms.runs)
        if not np.array_equal(memory.read(run), content(other, exchange.rank, run.size, at))
    ]


def test_runs_of_device_memory_and_host_memory(three: tuple[Ranks, Path]) -> None:
    sizes = (3 * MIB, 0, 1, 70_001)
    assert three[0].everyone(swap_runs, 2, sizes, message_bytes=MIB, setup=memory.bind) == [[]] * 2


def grow_pool(exchange: Any) -> tuple[list[str], int]:
    """Transfers before and after the pool had to ask the driver for more; also gives the number of its blocks."""
    pool = memory.Pool(4 * MIB)
    wrong = swap(exchange, pool, 256 * KIB, 0)
    kept = [pool.take(MIB) for _ in range(4)]
    for turn in (1, 2):
        wrong += swap(exchange, pool, MIB, turn)
    kept.clear()
    return wrong + swap(exchange, pool, 3 * MIB, 3), len(pool.blocks)


def test_a_pool_grows_between_transfers(three: tuple[Ranks, Path]) -> None:
    for wrong, blocks in three[0].everyone(grow_pool, 2, setup=memory.bind):
        assert wrong == []
        assert blocks > 1


def free_blocks(exchange: Any) -> tuple[list[str], int]:
    """Transfers from and to blocks that are freed in between; also gives how often an address was used again."""
    wrong, seen = [], list[int]()
    for turn in range(4):
        pool = memory.Pool((2 + turn % 2) * MIB)
        seen.append(pool.blocks[0].address)
        wrong += swap(exchange, pool, MIB // 2, turn)
        exchange.barrier()
        pool.free()
    return wrong, len(seen) - len(set(seen))


def test_what_lay_in_a_freed_block_is_not_sent(three: tuple[Ranks, Path]) -> None:
    """UCX keeps opened blocks of its peers; the driver gives freed addresses out again, for other memory."""
    found = three[0].everyone(free_blocks, 2, setup=memory.bind)
    assert [wrong for wrong, _ in found] == [[]] * 2
    assert any(again for _, again in found)


# --- a UCX without CUDA ---------------------------------------------------------------------------------------------


def planned() -> Any:
    import dataclasses

    return dataclasses.replace(plan_of(workers=2, engine="native"), engine="cudf")


def open_for_plan(exchange: Any) -> str:
    """What a worker says that is to open the data plane of a merge on GPUs."""
    try:
        type(exchange).of_plan(planned(), exchange.rank, Abort()).close()
    except UsageError as refused:
        return str(refused)
    return "opened"


def test_a_ucx_with_cuda_is_taken(three: tuple[Ranks, Path]) -> None:
    assert three[0].everyone(open_for_plan, 1, setup=memory.bind) == ["opened"]


def test_a_ucx_without_cuda_is_refused(driver: dict[str, str], tmp_path: Path) -> None:
    with ranks(1, fake_driver.without_cuda(driver, tmp_path)) as made:
        (sentence,) = made.everyone(open_for_plan, 1, setup=memory.bind)
    assert "cannot send GPU memory" in sentence
    assert "--ucx wheel" in sentence


def test_transports_without_cuda_are_refused(driver: dict[str, str]) -> None:
    with ranks(1, {**driver, "UCX_TLS": "sm,tcp,self"}) as made:
        (sentence,) = made.everyone(open_for_plan, 1, setup=memory.bind)
    assert "cannot send GPU memory" in sentence
    assert "UCX_TLS" in sentence


def test_device_memory_is_no_host_memory(driver: dict[str, str], tmp_path: Path) -> None:
    """What that sentence spares: a UCX without CUDA reads at the device's address."""
    with ranks(2, fake_driver.without_cuda(driver, tmp_path)) as made:
        made.begin(2, setup=memory.bind)
        for rank in range(2):
            made.send(rank, swap_sizes, (8192,))
        assert {str(made.last_word(rank)) for rank in range(2)} <= {ABORTED, str(-signal.SIGSEGV)}


# --- an aborted run -------------------------------------------------------------------------------------------------


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
    plugin.abort, plugin.children, plugin.kept_bytes = exchange.abort, {}, 0
    plugin.state = worker.State(exchange.rank, planned(), "", worker.PeakMeter(), None, 0, exchange=exchange)
    return plugin


OLD, NEW = 0x11, 0x77


def be_aborted(exchange: Any, sends: dict[int, Any], receives: dict[int, Any]) -> None:
    """A transfer that the driver aborts."""
    timer = threading.Timer(0.3, exchange.abort.set, ("stopped by the user",))
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
        exchange.abandon([exchange.post(message, 0, exchange.reserve(1), 0, receive=False)])
        for _ in range(100):
            exchange.progress()
        (folder / "posted").touch()
        wait_for(folder / ("reused" if when == "late" else "aborted"))
    if when == "late":
        be_aborted(exchange, {}, {0: buffers.take(size)})
    worker.release(plugin)
    (folder / "gone").touch()
    return "gone"


def abort_while_receiving(exchange: Any, kind: str, size: int, when: str, folder: Path) -> Any:
    """Rank 0 is aborted while rank 1's message is on its way, releases the launch, and uses its memory again.

    `when` rank 1 goes on with that message: ``at once``, as both are aborted; ``late``, when rank 0 has given up
    waiting for it; ``in flight``: it had begun a copy that takes longer.

    Gives how many bytes were overwritten of the buffers that rank 0 then filled, whether they are where the aborted
    ones were, the bytes that are never freed, and the seconds that the release took.
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
    began = time.monotonic()
    worker.release(plugin)
    seconds = time.monotonic() - began
    again = [buffers.take(size) for _ in range(3)]
    for each in again:
        buffers.write(each, NEW)
    (folder / "reused").touch()
    wait_for(folder / "gone")
    time.sleep(1.0)  # a copy that is still going on
    overwritten = sum(int(np.count_nonzero(buffers.read(each) != NEW)) for each in again)
    return overwritten, address in map(buffers.address, again), plugin.kept_bytes, seconds


@pytest.mark.parametrize("when", ["at once", "late", "in flight"])
def test_no_peer_writes_into_device_memory_of_the_next_run(driver: dict[str, str], tmp_path: Path, when: str) -> None:
    slow = {"FAKE_GPU_COPY_MS": "1000"} if when == "in flight" else {}
    with ranks(2, {**driver, **slow}) as made:
        found, other = made.everyone(abort_while_receiving, 2, "device", 4 * MIB, when, tmp_path, setup=memory.bind)
    assert other == "gone"
    overwritten, again, kept, seconds = found
    assert overwritten == 0
    assert (again, kept) == ((False, 4 * MIB) if when == "late" else (True, 0))  # nothing is kept without need
    assert seconds < (8 if when == "late" else 3)


@pytest.mark.parametrize("when", ["at once", "late"])
def test_no_peer_writes_into_host_memory_of_the_next_run(driver: dict[str, str], tmp_path: Path, when: str) -> None:
    with ranks(2, {**driver, "UCX_RNDV_SCHEME": "put_zcopy"}) as made:
        found, other = made.everyone(abort_while_receiving, 2, "host", 40 * MIB, when, tmp_path, setup=memory.bind)
    assert other == "gone"
    overwritten, again, kept, _ = found
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
        exchange.abort.set("stopped by the user")
    began = time.monotonic()
    worker.release(plugin)
    return plugin.kept_bytes, exchange.kept_bytes, time.monotonic() - began


def test_messages_that_nobody_matched_are_given_up(three: tuple[Ranks, Path]) -> None:
    for kept, same, seconds in three[0].everyone(abort_before_a_match, 2, 4 * MIB, setup=memory.bind):
        assert kept == same == 0
        assert seconds < 3
