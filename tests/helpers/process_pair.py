"""A merge of two ranks, each a process of its own, with the cudf engine and the UCX exchange."""

from __future__ import annotations

import multiprocessing
import queue
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from merge_bench.merge.engines import import_engine_class
from merge_bench.merge.engines.base import Side
from tests.helpers import merge_cases

POOL = 2 * 2**30
SECONDS = 120.0


def big_tables(rows: int) -> tuple[pa.Table, pa.Table, tuple[str, ...]]:
    numbers = np.arange(rows)
    left = pa.table({"key": numbers, "a": numbers * 2})
    return left, pa.table({"key": (numbers * 7) % (2 * rows), "c": numbers}), ("key",)


def check_pair(
    left: pa.Table, right: pa.Table, keys: tuple[str, ...], results: list[tuple[pa.Table, list[str]]]
) -> None:
    merged = pa.concat_tables([table for table, _ in results])
    expected = left.join(right, list(keys), join_type="inner").select(merged.column_names)
    order = [(name, "ascending") for name in merged.column_names]
    assert merged.num_rows > 0
    assert merged.sort_by(order).equals(expected.cast(merged.schema).sort_by(order))


def run_pair(
    left: pa.Table, right: pa.Table, keys: tuple[str, ...], message_bytes: int, prepare: Any = None
) -> list[Any]:
    """Both ranks' results and lanes; each rank is a process. `prepare` runs first in both."""
    context = multiprocessing.get_context("spawn")
    answers, (ours, theirs) = context.Queue(), context.Pipe()
    lefts, rights = merge_cases.chunks(left, 2), merge_cases.chunks(right, 2)
    processes = [
        context.Process(
            target=_rank, args=(rank, pipe, lefts[rank], rights[rank], keys, message_bytes, prepare, answers)
        )
        for rank, pipe in enumerate((ours, theirs))
    ]
    return answers_of(processes, answers)


def answers_of(
    processes: Sequence[Any], answers: Any, limit: float = SECONDS, begin: Callable[[], object] = lambda: None
) -> list[Any]:
    """Start the processes, call `begin`, and wait for what each puts into the queue, by rank; then end them."""
    for process in processes:
        process.start()
    try:
        begin()
        found: dict[int, Any] = {}
        for _ in processes:
            try:
                rank, answer = answers.get(timeout=limit)
            except queue.Empty:
                pytest.fail(f"no answer within {limit:.0f} s; exit statuses {[p.exitcode for p in processes]}")
            assert not isinstance(answer, str), answer
            found[rank] = answer
        return [found[rank] for rank in range(len(processes))]
    finally:
        for process in processes:
            process.join(timeout=5)
            process.kill()


def _rank(
    rank: int, pipe: Any, left: Any, right: Any, keys: tuple[str, ...], message_bytes: int, prepare: Any, answers: Any
) -> None:
    try:
        answers.put((rank, _merge_rank(rank, pipe, left, right, keys, message_bytes, prepare)))
    except BaseException:
        answers.put((rank, traceback.format_exc()))


def _merge_rank(
    rank: int, pipe: Any, left: Any, right: Any, keys: tuple[str, ...], message_bytes: int, prepare: Any
) -> tuple[pa.Table, list[str]]:
    if prepare is not None:
        prepare()
    from merge_bench.merge.engines.gpu_memory import set_up_memory_pool
    from merge_bench.merge.exchange.base import AbortFlag

    set_up_memory_pool(POOL)
    engine = import_engine_class("cudf")(merge_cases.shapes(left, right, keys, 2)[rank])
    engine.load_chunks(left, right)

    from merge_bench.merge.exchange.ucx import UcxExchange  # after the engine: UCX looks for CUDA when it starts

    exchange = UcxExchange(rank, 2, abort=AbortFlag(), message_bytes=message_bytes)
    pipe.send(exchange.address)
    other = 1 - rank
    addresses = [b"", b""]
    addresses[rank], addresses[other] = exchange.address, pipe.recv()
    exchange.connect(addresses)
    rows = 0
    for _ in range(2):
        exchange.barrier()
        engine.begin_iteration()
        outgoing = engine.partition_chunks()
        for side in Side:
            header = np.empty(engine.parcel_header_bytes(side), np.uint8)
            exchange.transfer({other: outgoing[side][other].header}, {other: header})
            exchange.transfer({other: outgoing[side][other].data}, engine.make_receive_buffers(side, {other: header}))
            engine.reuse_sent_parcel_memory(side)
        rows = engine.join_received_rows()
    table = pa.concat_tables(list(engine.result_tables()))
    assert table.num_rows == rows
    lanes = exchange.describe_endpoints()[other][0]
    exchange.barrier()
    exchange.close()
    return table, lanes
