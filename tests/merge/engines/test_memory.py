"""What a worker's memory is used for twice within an iteration."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from merge_bench.merge import memory
from merge_bench.merge.engines import import_engine_class
from merge_bench.merge.engines.base import JoinShape, Side
from merge_bench.merge.engines.native import NativeEngine
from merge_bench.merge.frame import Frame
from merge_bench.merge.memory import ALIGN, BufferPool

ROWS = 20_000


def engines(threads: int = 1) -> list[NativeEngine]:
    keys = np.random.default_rng(0).permutation(2 * ROWS)
    made = []
    for rank in range(2):
        mine = keys[rank * ROWS :][:ROWS]
        left, right = (
            Frame.from_arrow(pa.table({"k": mine[::step], name: mine})) for step, name in ((1, "a"), (-1, "b"))
        )
        shape = JoinShape(left.fields, right.fields, ("k",), 2, rank, 4 * ROWS, threads)
        engine = import_engine_class("native")(shape)
        assert isinstance(engine, NativeEngine)
        engine.load_chunks(left, right)
        made.append(engine)
    return made


def exchanged(pair: list[NativeEngine]) -> tuple[dict[Side, list[Any]], dict[Side, list[Any]]]:
    """One iteration up to the join: of each side what each worker sent, and where each received."""
    for engine in pair:
        engine.begin_iteration()
    outgoing = [engine.partition_chunks() for engine in pair]
    sent: dict[Side, list[Any]] = {side: [outgoing[rank][side][1 - rank] for rank in range(2)] for side in Side}
    received: dict[Side, list[Any]] = {}
    for side in Side:
        received[side] = [
            engine.make_receive_buffers(side, {1 - rank: sent[side][1 - rank].header})[1 - rank]
            for rank, engine in enumerate(pair)
        ]
        for rank in range(2):
            received[side][rank][:] = sent[side][1 - rank].data
        for engine in pair:
            engine.reuse_sent_parcel_memory(side)
    return {side: [each.data for each in sent[side]] for side in Side}, received


@pytest.mark.parametrize("threads", [1, 2])
def test_the_result_is_whole_where_memory_was_used_again(threads: int) -> None:
    pair = engines(threads)
    for _ in range(3):
        exchanged(pair)
        rows = sum(engine.join_received_rows() for engine in pair)
        result = pa.concat_tables([piece for engine in pair for piece in engine.result_tables()]).sort_by("k")
        assert rows == result.num_rows == 2 * ROWS
        assert result["k"].to_pylist() == result["a"].to_pylist() == list(range(2 * ROWS))
        assert sorted(result["b"].to_pylist()) == list(range(2 * ROWS))


def test_the_right_side_is_received_where_the_left_was_sent_from() -> None:
    sent, received = exchanged(engines())
    for rank in range(2):
        assert np.shares_memory(sent[Side.LEFT][rank], received[Side.RIGHT][rank])
        assert not np.shares_memory(sent[Side.LEFT][rank], received[Side.LEFT][rank])
        assert not np.shares_memory(sent[Side.RIGHT][rank], received[Side.RIGHT][rank])


def test_the_result_begins_where_the_right_was_sent_from() -> None:
    pair = engines()
    sent, _ = exchanged(pair)
    for rank, engine in enumerate(pair):
        engine.join_received_rows()
        first = next(engine.result_tables())["k"].chunk(0).to_numpy(zero_copy_only=True)
        assert np.shares_memory(first, sent[Side.RIGHT][rank])


def test_no_buffer_is_made_before_the_last_iteration_s_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = engines()
    sent, received = exchanged(pair)
    for engine in pair:
        engine.join_received_rows()
    old = [weakref.ref(data.base) for data in sent[Side.LEFT]]
    assert all(ref() is not None for ref in old)
    del sent, received
    made, allocate_aligned_bytes = [], memory.allocate_aligned_bytes

    def note(size: int) -> Any:
        made.append(size)
        assert all(ref() is None for ref in old)
        return allocate_aligned_bytes(size)

    monkeypatch.setattr(memory, "allocate_aligned_bytes", note)
    del old[1:]
    pair[0].begin_iteration()
    assert made


def test_a_buffer_pool_takes_what_was_lent_first_and_gives_it_back_at_reset() -> None:
    buffers, lent = BufferPool(), np.zeros(4 * ALIGN, np.uint8)
    buffers.add_lent_buffers([lent[:ALIGN], lent[ALIGN:]])
    large, small, more = buffers.take_bytes(2 * ALIGN), buffers.take_bytes(5), buffers.take_bytes(2 * ALIGN)
    assert np.shares_memory(large, lent[ALIGN : 3 * ALIGN])
    assert np.shares_memory(small, lent[:ALIGN])
    assert not np.shares_memory(more, lent)
    buffers.reset_pool()
    assert not np.shares_memory(buffers.take_bytes(ALIGN), lent)


def test_small_pieces_of_a_buffer_pool_lie_in_one_block_and_after_a_reset_in_one_buffer() -> None:
    buffers = BufferPool()
    pieces = [buffers.take_bytes(size) for size in (100, 1, 1000)]
    assert len({id(piece.base) for piece in pieces}) == 1
    buffers.reset_pool()
    again = [buffers.take_bytes(size) for size in (100, 1, 1000)]
    starts = [piece.ctypes.data for piece in again]
    assert [start - starts[0] for start in starts] == [0, 128, 192]
    assert starts[0] % ALIGN == 0
    assert np.shares_memory(buffers.reusable_buffer, again[2])
