"""What is copied when the copy rate of memory is measured."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from merge_bench.merge.frame import Frame
from merge_bench.merge.memory import LEAST_BYTES, ROUNDS, measure_copy_speed

TABLE = pa.table(
    {
        "k": pa.array(range(1000), pa.int64()),
        "s": pa.array([None if row % 7 == 0 else "x" * (row % 20) for row in range(1000)], pa.large_string()),
        "b": pa.array([row % 3 == 0 for row in range(1000)], pa.bool_()),
    }
)


def flat(frame: Frame) -> bytes:
    arrays = [
        array
        for column in frame.columns
        for array in (column.values, column.offsets, column.valid)
        if array is not None
    ]
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)


class Meeting:
    """Counts the calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_all_of_the_frames_is_copied_by_all_threads(threads: int) -> None:
    frames = [Frame.from_arrow(TABLE), Frame.from_arrow(TABLE.slice(0, 100))]
    expected = b"".join(map(flat, frames))
    target, meeting = np.zeros(len(expected) + 100, np.uint8), Meeting()
    pool = ThreadPoolExecutor(threads) if threads > 1 else None
    found = measure_copy_speed(frames, target, pool, threads, meeting)
    assert found is not None
    assert target[: len(expected)].tobytes() == expected
    assert not target[len(expected) :].any()
    assert len(found.seconds) == ROUNDS
    assert min(found.seconds) > 0
    assert LEAST_BYTES <= found.bytes < LEAST_BYTES + 2 * len(expected)
    assert found.bytes % (2 * len(expected)) == 0
    assert meeting.calls == 1 + ROUNDS


def test_a_target_that_is_too_small_takes_what_fits() -> None:
    frame = Frame.from_arrow(TABLE)
    target = np.zeros(500, np.uint8)
    found = measure_copy_speed([frame], target, None, 1, lambda: None)
    assert found is not None
    assert found.bytes % 1000 == 0
    assert target.tobytes() == flat(frame)[:500]


@pytest.mark.parametrize(("rows", "room"), [(0, 100), (100, 0)])
def test_a_worker_with_nothing_to_copy_meets_the_others_as_often(rows: int, room: int) -> None:
    table: Any = TABLE.select(["k"]).slice(0, rows)
    meeting = Meeting()
    assert measure_copy_speed([Frame.from_arrow(table)], np.zeros(room, np.uint8), None, 1, meeting) is None
    assert meeting.calls == 1 + ROUNDS
