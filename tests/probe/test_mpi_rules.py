"""How often, how large, and what follows from a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from merge_bench.probe.ranks import osu_rules
from merge_bench.probe.ranks.osu_rules import LoopTiming
from merge_bench.probe.shared import stored_rows
from merge_bench.probe.shared.exchange_matrix import count_wrong_sums, fill_contributed_vector
from merge_bench.records.schema import ProbeLine


def test_osu_repeats_short_messages_more_often_than_long_ones() -> None:
    # osu_util.h: LARGE_MESSAGE_SIZE 8192, LAT_LOOP 10000/1000, LAT_SKIP 100/10, BW_LOOP 100/20, BW_SKIP 10/2.
    assert [osu_rules.osu_iterations_for_size(size, osu_rules.LATENCY) for size in (1, 8192, 8193)] == [
        10_000,
        10_000,
        1000,
    ]
    assert [osu_rules.osu_iterations_for_size(size, osu_rules.LATENCY_SKIPPED) for size in (8192, 8193)] == [100, 10]
    assert [osu_rules.osu_iterations_for_size(size, osu_rules.WINDOWS) for size in (8192, 8193)] == [100, 20]
    assert [osu_rules.osu_iterations_for_size(size, osu_rules.WINDOWS_SKIPPED) for size in (8192, 8193)] == [10, 2]
    assert osu_rules.WINDOW == 64


def test_a_ping_pong_is_bounded_by_time() -> None:
    assert osu_rules.ping_pong_iterations(1e-6) == 3000
    assert osu_rules.ping_pong_iterations(0.0) == 3000
    assert osu_rules.ping_pong_iterations(1e-3) == 100
    assert osu_rules.ping_pong_iterations(1.0) == 20


def test_times_and_rates_of_a_loop() -> None:
    timed = LoopTiming(size=1000, iterations=500, elapsed=0.01)
    assert timed.seconds_per_message(osu_rules.THERE_AND_BACK) == pytest.approx(1e-5)  # 10 ms ÷ (2 × 500)
    assert timed.bytes_per_second(osu_rules.THERE_AND_BACK) == pytest.approx(1e8)  # 1000 B × 2 × 500 ÷ 10 ms
    assert timed.seconds_per_message(osu_rules.WINDOW) == pytest.approx(0.01 / (500 * 64))
    assert timed.bytes_per_second(osu_rules.WINDOW) == pytest.approx(1000 * 64 * 500 / 0.01)


def line_of(test: str, size: int, iterations: int, elapsed: float, launch: int = 0) -> ProbeLine:
    """The record of a ping-pong that took `elapsed` seconds."""
    timed = LoopTiming(size, iterations, elapsed)
    return ProbeLine(
        launch=launch,
        probe="mpi",
        test=test,
        method="",
        placement="",
        ranks=[0, 1],
        size=size,
        iterations=iterations,
        seconds=timed.seconds_per_message(osu_rules.THERE_AND_BACK),
        bandwidth_bytes_per_second=None if test.endswith("delay") else timed.bytes_per_second(osu_rules.THERE_AND_BACK),
    )


def test_csv_has_the_columns_and_units_of_the_program_it_comes_from(tmp_path: Path) -> None:
    # Its own formula: msg_size * 8.0 * ITERATION_COUNT * 2.0 / elapsed_time, the time in µs.
    throughput = 1024 * 8.0 * 3000 * 2.0 / 6000.0
    for launch in (0, 0, 1):
        stored_rows.append_ping_pong_csv_row(tmp_path, "one-host", line_of("std", 1024, 3000, 0.006, launch))
    stored_rows.append_ping_pong_csv_row(tmp_path, "two-hosts-0-2", line_of("buff-delay", 1, 3000, 0.006, 3))
    row = f"std,1024,6000.000000,{throughput:.6f}"
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert texts == {
        "throughput-std-one-host-launch-000.csv": f"type,msgsize,time,throughput\n{row}\n{row}\n",
        "throughput-std-one-host-launch-001.csv": f"type,msgsize,time,throughput\n{row}\n",
        "delay-buff-two-hosts-0-2-launch-003.csv": "type,time\nbuff,1.000000\n",
    }


def test_blocks_are_rounded_up_and_what_does_not_fit_is_left_out() -> None:
    assert [osu_rules.reduced_block_elements(count, 3) for count in (3, 4, 6)] == [1, 2, 2]
    # Four vectors of 4-byte elements: 16 B an element.
    assert osu_rules.split_counts_by_memory([10, 100, 1000], 2, memory_bytes=1600) == ([10, 100], [1000])
    assert osu_rules.split_counts_by_memory([3], 2, memory_bytes=63) == ([], [3])  # rounded up to 4 elements


def test_bus_bandwidth_is_the_whole_vector_without_a_rank_s_own_part() -> None:
    assert osu_rules.reduce_scatter_bus_bandwidth(1000, 0.5, 4) == pytest.approx(1500)
    assert osu_rules.reduce_scatter_bus_bandwidth(1000, 0.5, 1) is None


@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_every_wrong_element_of_a_sum_is_counted(ranks: int) -> None:
    count = 7 * 60
    block = count // ranks
    vectors = np.empty((ranks, count), np.float32)
    for rank in range(ranks):
        fill_contributed_vector(vectors[rank], rank)
    assert len({vector.tobytes() for vector in vectors}) == ranks
    for order in (slice(None), slice(None, None, -1)):
        total = vectors[order].sum(axis=0, dtype=np.float32)
        for rank in range(ranks):
            mine = total[rank * block : (rank + 1) * block].copy()
            assert count_wrong_sums(mine, rank * block, ranks) == 0
            mine[3] += 1
            mine[block - 1] = np.nan
            assert count_wrong_sums(mine, rank * block, ranks) == 2
            assert count_wrong_sums(mine[:3], (rank + 1) * block % count, ranks) > 0  # another rank's block
