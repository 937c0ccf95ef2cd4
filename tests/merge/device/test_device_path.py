"""The data plane with device memory, between real processes: real UCXX and UCX on a driver without a GPU."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from merge_bench.errors import UsageError
from merge_bench.merge.exchange.base import AbortFlag
from merge_bench.merge.partition import ByteRuns
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
    return wrong, {lane for lanes, _ in exchange.describe_endpoints().values() for lane in lanes}


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
    parcel, rooms = (ByteRuns(tuple(pool.take(size) for size in sizes)) for _ in range(2))
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
    """TransferTotals before and after the pool had to ask the driver for more; also gives the number of its blocks."""
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
    """TransferTotals from and to blocks that are freed in between; also gives how often an address was used again."""
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
        type(exchange).from_plan(planned(), exchange.rank, AbortFlag()).close()
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
        made.begin(2, setup=memory.bind, timeout=2)
        for rank in range(2):
            made.send(rank, swap_sizes, (8192,))
        ends = {str(made.last_word(rank)) for rank in range(2)}
    assert ends & {ABORTED, str(-signal.SIGSEGV)}, ends
