"""`benchmarks/roofline.py`: bytes of each phase counted by hand, the memory limits, the table, and wrong options."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.roof import limits
from benchmarks.roof.limits import Limit, array_bytes
from benchmarks.roof.moved import Counts, Shape, join_accesses, partition_row, phase_bytes, read_bytes
from benchmarks.roofline import cores_of, counts, join_least, judge, limits_table, own_limits, roofline, table
from merge_bench.errors import RunFailed, UsageError
from merge_bench.merge.engines.base import JoinShape
from merge_bench.merge.engines.native import NativeEngine
from merge_bench.merge.frame import Field, Frame
from merge_bench.merge.memory import BufferPool
from merge_bench.merge.partition import WRITERS, Partitioner, most_total_buckets
from merge_bench.records import schema as s
from tests.helpers.benchmark_commands import refusal

ROOT = Path(__file__).resolve().parents[2]
SMALL = Shape(chunk=4, workers=2)
DEALT = Counts(sent_bytes=80, left_rows=8, right_rows=8, result_rows=3)


@pytest.mark.parametrize(
    ("payloads", "by_hand"),
    [
        (0, (8 + 2) + (2 + 8 + 8)),  # key and number; number, key, key
        (1, (8 + 2) + (2 + 8 + 8 + 8 + 8)),
        (2, (8 + 2) + (2 + 8 + 8 + 8 + 8) + (2 + 8 + 8)),  # the third column alone
        (3, (8 + 2) + (2 + 8 + 8 + 8 + 8) + (2 + 8 + 8 + 8 + 8)),
    ],
)
def test_a_row_is_partitioned_in_a_histogram_and_a_scatter_of_two_columns_at_a_time(
    payloads: int, by_hand: int
) -> None:
    assert partition_row(Shape(4, 2, payloads)) == by_hand


def test_of_more_than_512_streams_each_column_is_written_by_itself() -> None:
    assert Shape(1_000_000, 600).buckets == 1
    assert partition_row(Shape(1_000_000, 600)) == (8 + 2) + 2 * (2 + 8 + 8)


def test_bytes_of_each_phase_of_a_small_merge_counted_by_hand() -> None:
    assert phase_bytes(SMALL, DEALT) == {
        "partition": 16 * 44,
        "exchange": 80 + 80,  # read and written
        "join": 16 * 16 + 3 * (8 + 8 + 8),  # both frames; key and both payloads
    }


def test_reading_loops_are_held_against_the_read_limit_and_all_others_against_the_copy_limit() -> None:
    assert read_bytes(SMALL, DEALT) == {"partition": 16 * 10, "join": 16 * 16}
    phases, dealt = judge(LAUNCH, SMALL, copy_rate=88.0)
    assert own_limits(SMALL, dealt, phases, copy_rate=8.0, read_rate=2.0) == {
        "partition": 16 * 34 / 8 + 16 * 10 / 2,
        "exchange": 160 / 8,
        "join": 3 * 24 / 8 + 16 * 16 / 2,
    }


def test_accesses_of_a_join_are_an_entry_a_left_row_a_head_a_right_row_and_an_entry_and_payloads_a_match() -> None:
    assert join_accesses(SMALL, DEALT) == 8 + 8 + 3 * 2
    assert join_accesses(Shape(4, 2, 0), DEALT) == 8 + 8 + 3
    assert join_least(SMALL, DEALT, 0.5, bucket_rate=22.0) == pytest.approx(1.5)


@pytest.mark.parametrize("l2", [None, 1 << 20, 2 << 20])
@pytest.mark.parametrize("way", WRITERS)
@pytest.mark.parametrize(("chunk", "workers"), [(4, 2), (1_000_000, 2), (25_000_000, 2), (25_000_000, 64)])
def test_buckets_and_the_width_of_their_numbers_are_those_of_the_engine(
    chunk: int, workers: int, way: str, l2: int | None
) -> None:
    rows = Frame.from_arrow(pa.table({"key": range(8), "a": range(8)}))
    (key, a), b = rows.fields, Field("b", pa.int64(), 8)
    shape = Shape(chunk, workers, stores=way, l2_bytes=l2)
    engine = NativeEngine(JoinShape((key, a), (key, b), ("key",), workers, 0, shape.rows))
    engine.use_parcel_writer(way, most_total_buckets([way]), l2)
    assert shape.buckets == engine.buckets
    numbers = BufferPool()
    Partitioner(rows.fields, ["key"], workers, engine.buckets, scratch=numbers).split_into_parcels(rows, BufferPool())
    assert numbers.reusable_buffer.nbytes == rows.rows * shape.number_bytes


def test_a_bucket_is_heads_links_keys_and_payloads_of_its_left_rows() -> None:
    assert SMALL.buckets == 1
    assert SMALL.bucket_bytes == 4 * 16 + 4 * (4 + 8 + 8)  # 16 heads at least


def worker(rank: int, partition: float, exchange: float, join: float) -> s.WorkerIteration:
    return s.WorkerIteration(
        rank=rank,
        seconds=partition + exchange + join,
        phases_seconds=s.Phases(partition=partition, exchange=exchange, join=join),
        overlap_seconds=0.0,
        join_overlap_seconds=0.0,
        sent_bytes=s.FrameCounts(left=30, right=10),
        received_rows=s.FrameCounts(left=4, right=4),
        result_rows=rank + 1,
    )


def launch(*iterations: list[s.WorkerIteration]) -> Any:
    lines = [s.IterationLine(launch=0, index=at, wall_seconds=1, workers=each) for at, each in enumerate(iterations)]
    return SimpleNamespace(timed=tuple(lines))


LAUNCH = launch(
    [worker(0, 1, 2, 4), worker(1, 3, 2, 4)],
    [worker(0, 9, 2, 4), worker(1, 3, 2, 4)],
    [worker(0, 1, 2, 4), worker(1, 5, 2, 4)],
)


def test_a_phase_lasts_as_long_as_the_slowest_worker_at_the_median_of_the_iterations() -> None:
    phases, dealt = judge(LAUNCH, SMALL, copy_rate=88.0)
    partition, exchange, join, whole = phases
    assert dealt == DEALT
    assert (partition.workers, partition.seconds) == ((1.0, 3.0), 5.0)
    assert partition.fraction == pytest.approx(704 / 88 / 5)
    assert exchange.rate == 160 / 2
    assert whole.moved == partition.moved + exchange.moved + join.moved
    assert whole.seconds == 11.0  # of 9, 15 and 11


def test_the_table_has_a_row_for_each_phase_with_each_worker() -> None:
    rows = table(judge(LAUNCH, SMALL, copy_rate=88.0)[0]).splitlines()
    assert len(rows) == 2 + 4
    assert rows[2] == "| partition | 44.0 | 0.00 | 1000, 3000 | 5000 | 8000 | 0.0 | 160% |"


def test_phases_that_overlapped_are_refused() -> None:
    overlapped = replace_worker(worker(0, 1, 1, 1), overlap_seconds=0.5)
    with pytest.raises(RunFailed, match="no separate phases"):
        judge(launch([overlapped]), SMALL, 1.0)
    with pytest.raises(RunFailed, match="no iteration was timed"):
        judge(launch(), SMALL, 1.0)


def test_a_worker_that_did_not_tell_its_rows_is_named() -> None:
    line = launch([worker(0, 1, 1, 1), replace_worker(worker(1, 1, 1, 1), received_rows=None)]).timed[0]
    with pytest.raises(RunFailed, match="rank 1 did not report"):
        counts(line)


def replace_worker(one: s.WorkerIteration, **changes: Any) -> s.WorkerIteration:
    return s.WorkerIteration(**{name: getattr(one, name) for name in one.__struct_fields__} | changes)


def test_a_limit_is_the_fastest_round() -> None:
    limit = Limit("copy", 100, 8, (2.0, 0.5, 1.0))
    assert limit.rate == 200
    assert limits_table([replace(limit, amount=3 * 10**9).to_json()]).endswith("| copy | 0.0 | 6.0 GB/s | 3.0 GB/s |")


def test_rounds_before_and_after_the_run_count_together() -> None:
    before, after = Limit("copy", 100, 8, (2.0,)), Limit("copy", 100, 8, (1.0, 4.0))
    assert limits.together([before], [after]) == [Limit("copy", 100, 8, (2.0, 1.0, 4.0))]


def test_arrays_of_all_cores_together_are_far_larger_than_the_last_cache() -> None:
    assert array_bytes(2, 32 << 20) == 256 << 20
    assert array_bytes(1, 100 << 20) == 800 << 20


def test_arrays_that_do_not_fit_into_memory_are_refused() -> None:
    with pytest.raises(UsageError, match="the memory limits of 4 cores needs 2"):
        array_bytes(4, None, available=1 << 30)


def test_every_limit_is_measured_on_all_cores_at_once() -> None:
    few = 1 << 16
    before, cores = os.sched_getaffinity(0), sorted(os.sched_getaffinity(0))
    measured = [*limits.measure(cores, few, gathered=few), limits.measure_bucket(cores, 1 << 12, gathered=few)]
    found = {limit.name: limit for limit in measured}
    assert list(found) == ["copy", "loop", "kernel copy", "read", "gather", "gather in a bucket"]
    assert found["copy"].amount == limits.COPIES * 2 * few * len(cores)
    assert found["gather"].amount == found["gather in a bucket"].amount == few * len(cores)
    assert all(len(limit.seconds) == limits.ROUNDS and min(limit.seconds) > 0 for limit in found.values())
    assert os.sched_getaffinity(0) == before


def test_cores_that_no_worker_would_use_are_not_measured() -> None:
    allowed = {0, 1, 2, 5, 7}
    assert cores_of(2, allowed) == [0, 1, 2, 5]
    with pytest.raises(UsageError, match="--workers 6 needs 6 cores, but this process may use only 5"):
        cores_of(6, allowed)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--chunk", "many"], "many"),
        (["--workers", "1"], "1 is not in the range x>=2"),
        (["--workers", "100000"], "--workers 100000 needs 100000 cores"),
        (["--output", "/no/such/folder/x.json"], "the folder /no/such/folder does not exist"),
    ],
)
def test_wrong_options_are_one_sentence_and_status_2(
    options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = refusal(roofline, *options, capsys=capsys)
    assert sentence in errors
    assert len(errors.strip().splitlines()) == 1


def test_the_stored_measurement_is_what_its_formulas_say() -> None:
    path = ROOT / "results" / "curated" / "roofline-cpu-2026-11" / "roofline.json"
    stored = json.loads(path.read_text())
    shape = Shape(stored["shape"]["chunk"], stored["shape"]["workers"], stored["shape"]["payload_columns"])
    phases = {phase["name"]: phase for phase in stored["phases"]}
    assert phases["partition"]["moved"] == shape.rows * partition_row(shape)
    assert phases["whole"]["moved"] == sum(phases[name]["moved"] for name in ("partition", "exchange", "join"))
    assert phases["whole"]["least"] == pytest.approx(phases["whole"]["moved"] / stored["limits"][0]["rate"])
