"""The cudf engine on a GPU: `pytest -m gpu` on a machine that has one, with the stack cu12 or cu13 installed."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest

from merge_bench.errors import UsageError
from merge_bench.merge.engines import import_engine_class
from merge_bench.merge.engines.base import Side
from tests.helpers import merge_cases
from tests.helpers.process_pair import POOL, SECONDS, big_tables, check_pair, run_pair

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", autouse=True)
def pool() -> None:
    pytest.importorskip("pylibcudf", reason="the stack in this environment has no pylibcudf: set up cu12 or cu13")
    from merge_bench.merge.engines.gpu_memory import set_up_memory_pool

    assert set_up_memory_pool(POOL) >= POOL - 256


def copy_on_device(source: Any, target: Any, piece: int = 1000) -> None:
    """Between two buffers of one process, cut into pieces as the exchange cuts messages."""
    from rmm.pylibrmm.device_buffer import copy_device_to_ptr
    from rmm.pylibrmm.stream import DEFAULT_STREAM

    for start in range(0, source.nbytes, piece):
        one, other = source[start : start + piece], target[start : start + piece]
        copy_device_to_ptr(one.ptr, other.ptr, one.nbytes, DEFAULT_STREAM)
    DEFAULT_STREAM.synchronize()


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("case", merge_cases.CASES)
def test_same_rows_as_polars(case: str, workers: int) -> None:
    ours = merge_cases.merge("cudf", case, workers, copy_on_device, iterations=2)
    theirs = merge_cases.merge("polars", case, workers, merge_cases.copy_host)
    assert ours.schema.names == theirs.schema.names
    assert merge_cases.rows_of(ours) == merge_cases.rows_of(theirs.cast(ours.schema))


@pytest.mark.parametrize("sent", Side)
@pytest.mark.parametrize("case", merge_cases.CASES)
def test_a_side_is_sent_whole(case: str, sent: Side) -> None:
    ours = merge_cases.merge("cudf", case, 3, copy_on_device, iterations=2, sent=sent)
    theirs = merge_cases.merge("polars", case, 3, merge_cases.copy_host)
    assert merge_cases.rows_of(ours) == merge_cases.rows_of(theirs.cast(ours.schema))


def test_peak_memory_is_counted() -> None:
    make, keys = merge_cases.CASES["integers"]
    left, right = (merge_cases.chunks(table, 1)[0] for table in make())
    engine = import_engine_class("cudf")(merge_cases.shapes(left, right, keys, 1)[0])
    engine.load_chunks(left, right)
    peak = engine.peak_device_bytes()
    assert peak is not None
    assert peak >= left.nbytes + right.nbytes


def test_a_pool_that_does_not_fit_is_one_sentence() -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=_ask_for_too_much, args=(answers,))
    process.start()
    try:
        assert answers.get(timeout=SECONDS).startswith("an RMM pool of ")
    finally:
        process.kill()
        process.join()


def _ask_for_too_much(answers: Any) -> None:
    from merge_bench.merge.engines.gpu_memory import set_up_memory_pool

    try:
        set_up_memory_pool(2**50)
        answers.put("it fits")
    except UsageError as error:
        answers.put(str(error))


@pytest.mark.parametrize("message_bytes", [0, 1 << 20])
def test_two_processes_exchange_over_cuda_ipc(message_bytes: int) -> None:
    left, right, keys = big_tables(1_000_000)
    results = run_pair(left, right, keys, message_bytes)
    check_pair(left, right, keys, results)
    for _, lanes in results:
        assert any(lane.startswith("cuda_ipc") for lane in lanes), lanes
