"""Estimates of a worker's memory, and the refusal of a chunk that does not fit."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.campaign.cluster_session import check_data_fits_in_memory
from merge_bench.errors import UsageError
from merge_bench.host.description import Hardware
from merge_bench.merge.distribution import RowDistribution
from merge_bench.merge.engines import engine_descriptions
from merge_bench.merge.engines.base import JoinKind, Side
from merge_bench.merge.frame import SLACK
from merge_bench.merge.plan import PROCESS_BYTES, Plan, check_memory_fits, synthetic_worker_bytes
from merge_bench.merge.workload import SyntheticSpec
from merge_bench.merge.workload.synthetic import generate_chunks
from merge_bench.merge.workload.tables import TableSide, TableSpec
from merge_bench.records.schema import Worker
from merge_bench.units import parse_count
from tests.merge.in_process import engines_of

HOST_ENGINES = [engine.name for engine in engine_descriptions() if not engine.device_memory]
WORKERS, FRACTION, PAYLOADS = st.integers(1, 64), st.floats(0, 1), st.integers(1, 16)
AT_ONCE, POLARS, PANDAS = {"pipeline": True}, {"engine": "polars"}, {"engine": "pandas"}
DASK = {"engine": "pandas", "exchange": "dask"}
DUCKDB = {"engine": "duckdb"}
MEASURED = [  # rows of a chunk, workers, fraction, payload columns, engine and pipeline, `peak_memory_bytes`
    (8_000_000, 2, 0.3, 1, {}, 955_854_848),
    (25_000_000, 2, 0.3, 1, {}, 2_199_703_552),
    (8_000_000, 4, 0.3, 1, {}, 967_708_672),
    (8_000_000, 2, 1.0, 1, {}, 1_061_335_040),
    (8_000_000, 2, 0.3, 1, AT_ONCE, 1_055_657_984),
    (25_000_000, 2, 0.3, 1, AT_ONCE, 2_583_953_408),
    (8_000_000, 2, 0.3, 1, POLARS, 1_044_455_424),
    (25_000_000, 2, 0.3, 1, POLARS, 2_583_523_328),
    (8_000_000, 2, 1.0, 1, POLARS, 1_207_005_184),
    (25_000_000, 2, 0.3, 1, POLARS | AT_ONCE, 2_745_712_640),
    (8_000_000, 4, 0.3, 1, AT_ONCE, 1_138_085_888),
    (8_000_000, 2, 0.3, 4, {}, 1_819_062_272),
    (8_000_000, 2, 0.3, 4, POLARS, 2_310_205_440),
    (8_000_000, 2, 1.0, 1, PANDAS, 1_139_355_648),
    (8_000_000, 2, 0.3, 2, POLARS, 1_441_341_440),
    (8_000_000, 2, 0.3, 4, PANDAS, 1_991_565_312),
    (16_000_000, 2, 0.3, 1, DASK | {"shuffle": "tasks"}, 3_034_726_400),
    (16_000_000, 1, 0.3, 1, {}, 1_519_849_472),
    (16_000_000, 1, 0.3, 1, POLARS, 1_587_331_072),
    (25_000_000, 2, 0.3, 1, PANDAS, 2_379_395_072),
    (8_000_000, 2, 0.3, 1, PANDAS, 991_526_912),
    (8_000_000, 2, 0.3, 1, DASK | {"shuffle": "tasks"}, 1_718_734_848),
    (8_000_000, 2, 0.3, 1, DASK | {"shuffle": "p2p"}, 2_536_873_984),
    (8_000_000, 2, 0.3, 1, DUCKDB, 1_061_822_464),
    (8_000_000, 2, 1.0, 1, DUCKDB, 1_187_758_080),
    (8_000_000, 2, 0.3, 4, DUCKDB, 2_099_884_032),
    (8_000_000, 2, 0.3, 1, DUCKDB | AT_ONCE, 1_117_712_384),
]


def need(
    rows: int, workers: int = 2, fraction: float = 0.3, payload: int = 1, *, zipf: float = 0.0, **changes: Any
) -> int:
    spec = SyntheticSpec(rows * workers, fraction, 0, payload, zipf)
    return synthetic_worker_bytes(dataclasses.replace(PLAN, workload=spec, workers=workers, **changes))


@pytest.mark.parametrize(("rows", "workers", "fraction", "payload", "how", "peak"), MEASURED)
def test_the_estimate_is_what_was_measured_or_a_little_more(
    rows: int, workers: int, fraction: float, payload: int, how: dict[str, Any], peak: int
) -> None:
    """`peak`: bytes, the largest that a run on two cores recorded."""
    assert peak <= need(rows, workers, fraction, payload, **how) <= 1.15 * peak


@given(st.sampled_from(HOST_ENGINES), st.booleans(), WORKERS, FRACTION, PAYLOADS)
def test_a_row_more_of_a_chunk_always_takes_as_much_more(
    engine: str, pipeline: bool, workers: int, fraction: float, payload: int
) -> None:
    by_size = [
        need(rows, workers, fraction, payload, engine=engine, pipeline=pipeline) for rows in (0, 10**6, 3 * 10**6)
    ]
    assert by_size[0] == PROCESS_BYTES
    assert by_size[2] - by_size[0] == pytest.approx(3 * (by_size[1] - by_size[0]), abs=3)
    assert by_size[1] - by_size[0] >= 4 * 8 * (1 + payload) * 10**6  # chunks and their parcels


@given(WORKERS, FRACTION, PAYLOADS)
def test_native_takes_least_and_phases_at_once_never_take_less(workers: int, fraction: float, payload: int) -> None:
    apart = {engine: need(10**6, workers, fraction, payload, engine=engine) for engine in HOST_ENGINES}
    assert apart["native"] == min(apart.values())
    for engine, size in apart.items():
        assert size <= need(10**6, workers, fraction, payload, engine=engine, pipeline=True)


def test_a_result_that_lies_where_parcels_were_sent_from_takes_nothing() -> None:
    assert need(10**6, fraction=0.0) == need(10**6, fraction=0.3)
    assert need(10**6, fraction=0.0, pipeline=True) < need(10**6, fraction=0.3, pipeline=True)
    assert need(10**6, workers=1, fraction=0.0) < need(10**6, workers=1, fraction=0.3)


@given(st.sampled_from(HOST_ENGINES), st.booleans(), WORKERS, FRACTION, st.floats(0, 3))
def test_skew_never_takes_less(engine: str, pipeline: bool, workers: int, fraction: float, zipf: float) -> None:
    even = need(10**6, workers, fraction, engine=engine, pipeline=pipeline)
    assert need(10**6, workers, fraction, engine=engine, pipeline=pipeline, zipf=zipf) >= even - 1


@pytest.mark.parametrize("how", [JoinKind.SEMI, JoinKind.ANTI])
@pytest.mark.parametrize("sent", [None, Side.RIGHT])
def test_of_right_rows_semi_and_anti_joins_send_the_key_only(how: JoinKind, sent: Side | None) -> None:
    """The estimate against bytes that two ranks cut from their chunks and give to each other."""
    spec, workers = SyntheticSpec(200_000, 0.0, 3, payload_columns=4), 2
    rows = spec.rows // workers
    sides = [generate_chunks(spec, rank, workers, how)[:2] for rank in range(workers)]
    rights = [right.select_columns(("key",)) for _, right in sides]
    engines = engines_of("native", [left for left, _ in sides], rights, ("key",), how=how, sent=sent)
    for one in engines:
        one.begin_iteration()
    outgoing = [one.partition_chunks() for one in engines]
    received = sum(outgoing[1][side][0].data.nbytes for side in Side if sent in (None, side))
    chunks = 2 * 8 * 5 + 2
    parcels = (8 * 5 + 8) * (1 + 1 / SLACK)
    result = 8 * 5 if how is JoinKind.ANTI else 0
    found = need(rows, workers, 0.0, 4, how=how, distribution=RowDistribution(sent), pipeline=True)
    assert found - PROCESS_BYTES == pytest.approx(rows * (chunks + parcels + result) + received, rel=0.01)


@pytest.mark.parametrize("zipf", [0.5, 1.0, 1.5, 2.5])
def test_the_most_frequent_key_has_the_part_that_is_told(zipf: float) -> None:
    spec = SyntheticSpec(200_000, 0.5, 3, zipf=zipf)
    _, right, _ = generate_chunks(spec, 0, 1)
    _, counts = np.unique(right.column("key")[1].values, return_counts=True)
    assert counts.max() / spec.matching_rows == pytest.approx(spec.hottest_key_share, rel=0.05, abs=2e-4)


PLAN = Plan(
    workload=SyntheticSpec(2 * 10**9, 0.3, 0),
    workers=2,
    iterations=1,
    warmup=1,
    launches=1,
    engine="native",
    exchange="ucx",
    protocol="tcp",
    verify="ends",
    timeout=60,
    seed=0,
)


def sized(plan: Plan, rows: int) -> Plan:
    """The plan with so many rows per chunk."""
    assert isinstance(plan.workload, SyntheticSpec)
    return dataclasses.replace(plan, workload=dataclasses.replace(plan.workload, rows=rows * plan.workers))


SKEWED = SyntheticSpec(2 * 10**9, 0.3, 0, zipf=1.5)


@pytest.mark.parametrize(
    "changes", [{}, {"pipeline": True}, {"engine": "polars"}, {"exchange": "dask"}, {"workload": SKEWED}]
)
def test_a_chunk_that_cannot_fit_is_refused_with_the_largest_that_can(changes: dict[str, Any]) -> None:
    plan = dataclasses.replace(PLAN, **changes)
    with pytest.raises(
        UsageError, match=r"--chunk 1,000,000,000 needs about .* per worker, but the 2 workers on here have .* each"
    ) as caught:
        check_memory_fits(plan, 16 << 30, 2, "here")
    assert caught.value.exit_status == 2
    (found,) = re.findall(r"the largest --chunk that fits is ([\d_]+)", str(caught.value))
    largest = parse_count(found)
    check_memory_fits(sized(plan, largest), 16 << 30, 2, "here")
    with pytest.raises(UsageError):
        check_memory_fits(sized(plan, largest + 2000), 16 << 30, 2, "here")


def test_what_is_refused_follows_the_engine_and_whether_phases_overlap() -> None:
    plan = sized(PLAN, 25_000_000)
    memory = 2 * need(25_000_000)
    check_memory_fits(plan, memory, 2, "here")
    for changes in (
        {"pipeline": True},
        {"engine": "polars"},
        {"exchange": "dask", "engine": "pandas"},
        {"workload": SKEWED},
    ):
        with pytest.raises(UsageError):
            check_memory_fits(sized(dataclasses.replace(plan, **changes), 25_000_000), memory, 2, "here")


@pytest.mark.parametrize("changes", [{}, {"pipeline": True}, {"exchange": "dask"}, {"workload": SKEWED}])
def test_workers_whose_processes_do_not_fit_are_refused_with_how_many_do(changes: dict[str, Any]) -> None:
    def with_workers(workers: int) -> Plan:
        return sized(dataclasses.replace(PLAN, workers=workers, **changes), 100_000)

    memory = 50 * PROCESS_BYTES - 1
    with pytest.raises(UsageError, match=r"the 50 workers on here have .* each; use --workers \d+ or fewer") as caught:
        check_memory_fits(with_workers(50), memory, 50, "here")
    most = int(str(caught.value).split()[-3])
    check_memory_fits(with_workers(most), memory, most, "here")
    with pytest.raises(UsageError):
        check_memory_fits(with_workers(most + 1), memory, most + 1, "here")


def test_workers_of_tables_need_their_processes_too() -> None:
    side = TableSide("", (), (), ((),) * 3, (0,) * 3)
    plan = dataclasses.replace(PLAN, workload=TableSpec(side, side, ("id",)))
    check_memory_fits(plan, 3 * PROCESS_BYTES, 3, "here")
    with pytest.raises(UsageError, match=r"the merge needs about .* at most 2 workers would fit there"):
        check_memory_fits(plan, 3 * PROCESS_BYTES - 1, 3, "here")


def test_where_not_even_a_process_fits_no_number_is_named() -> None:
    with pytest.raises(UsageError, match="not even one worker fits"):
        check_memory_fits(PLAN, PROCESS_BYTES, 2, "here")


def test_started_workers_need_memory_for_their_data_only() -> None:
    def started(available: int) -> list[Worker]:
        each = Hardware(available_bytes=available)
        return [Worker(rank=rank, host="here", pid=1, name="", hardware=each) for rank in range(2)]

    plan, data = sized(PLAN, 25_000_000), need(25_000_000) - PROCESS_BYTES
    check_data_fits_in_memory(plan, started(2 * data))
    with pytest.raises(UsageError, match="the largest --chunk that fits"):
        check_data_fits_in_memory(plan, started(2 * data - 2_000_000))
