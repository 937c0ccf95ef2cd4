"""The model alone: what must hold whatever the parameters are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.forecast.model import (
    CORES,
    JOIN,
    NIC,
    PARTITION,
    MergeScenario,
    ModelResult,
    UnknownParameter,
    WorkerCores,
    forecast_merge,
    slowest_worker_factor,
    workers_at_once,
)

VALUES = {
    "partition_rate": 40e6,
    "partition_spread": 0.1,
    "join_rate": 20e6,
    "join_spread": 0.05,
    "local_rate": 8e9,
    "local_latency": 1e-6,
    "nic_rate": 1e9,
    "nic_latency": 1e-5,
    "nic_overhead": 1e-6,
    "meeting": 1e-3,
}

problems = st.builds(
    lambda hosts, more, rows: MergeScenario(hosts * more, hosts, rows, 16.0),
    st.integers(1, 32),
    st.integers(1, 16),
    st.floats(1e3, 1e9),
)
values = st.fixed_dictionaries(
    {
        "partition_rate": st.floats(1e6, 1e10),
        "join_rate": st.floats(1e6, 1e10),
        "local_rate": st.floats(1e8, 1e12),
        "nic_rate": st.floats(1e7, 1e12),
        "nic_latency": st.floats(0, 1e-3),
        "nic_overhead": st.floats(0, 1e-4),
        "local_latency": st.floats(0, 1e-3),
        "local_overhead": st.floats(0, 1e-4),
        "meeting": st.floats(0, 1e-2),
        "partition_spread": st.floats(0, 0.5),
        "join_spread": st.floats(0, 0.5),
        "overlap": st.floats(0, 1),
    }
)


@given(problems, values, st.floats(1, 100), st.sampled_from(["nic_rate", "local_rate", "join_rate", "partition_rate"]))
def test_more_of_any_rate_is_never_slower(
    problem: MergeScenario, known: dict[str, float], times: float, name: str
) -> None:
    faster = forecast_merge(problem, {**known, name: known[name] * times})
    assert faster.wall <= forecast_merge(problem, known).wall * (1 + 1e-12)


@given(problems, values)
def test_more_workers_never_process_or_exchange_fewer_bytes(problem: MergeScenario, known: dict[str, float]) -> None:
    more = MergeScenario(problem.workers * 2, problem.hosts, problem.rows_per_chunk, problem.row_bytes)
    one, other = forecast_merge(problem, known), forecast_merge(more, known)
    assert more.data_bytes == pytest.approx(2 * problem.data_bytes)
    assert other.crossing >= one.crossing
    assert other.between_hosts >= one.between_hosts * (1 - 1e-12)
    assert one.between_hosts <= one.crossing * (1 + 1e-12) <= problem.data_bytes * (1 + 1e-12)


@given(st.floats(1e3, 1e9), values)
def test_one_worker_exchanges_nothing_and_has_no_bandwidth(rows: float, known: dict[str, float]) -> None:
    alone = forecast_merge(MergeScenario(1, 1, rows, 16.0), known)
    assert alone.exchange == alone.crossing == alone.between_hosts == 0
    assert alone.bandwidth is None
    assert alone.wall == pytest.approx(2 * rows / known["partition_rate"] + 2 * rows / known["join_rate"])


@given(problems, values)
def test_overlap_hides_at_most_the_shorter_side_and_parts_add_up_without_it(
    problem: MergeScenario, known: dict[str, float]
) -> None:
    apart = forecast_merge(problem, {**known, "overlap": 0.0})
    hidden = forecast_merge(problem, {**known, "overlap": 1.0})
    computing = apart.wall - apart.exchange
    assert hidden.wall == pytest.approx(max(computing, apart.exchange), rel=1e-9)
    assert sum(apart.parts.values()) == pytest.approx(apart.wall, rel=1e-9)
    assert apart.parts[apart.limit] == max(apart.parts.values())


def test_workers_of_a_host_share_its_link() -> None:
    # 4 workers on each of 2 hosts: 4 · 4 messages of 2 MB cross each link, each way, for each frame.
    found = forecast_merge(
        MergeScenario(8, 2, 1e6, 16.0),
        {**VALUES, "local_latency": 0, "nic_latency": 0, "nic_overhead": 0, "meeting": 0},
    )
    assert found.exchange == pytest.approx(2 * 16 * 2e6 / 1e9)
    assert found.bandwidth == pytest.approx(7 * 2e6 / (16 * 2e6 / 1e9))
    assert found.parts[NIC] == pytest.approx(found.exchange)
    assert found.between_hosts == pytest.approx(2 * 2 * 16 * 2e6)


def test_the_fullest_host_decides_where_workers_are_uneven() -> None:
    found = forecast_merge(
        MergeScenario(5, 2, 1e6, 16.0),
        {**VALUES, "local_latency": 0, "nic_latency": 0, "nic_overhead": 0, "meeting": 0},
    )
    assert found.exchange == pytest.approx(2 * 3 * 2 * 3.2e6 / 1e9)


def test_a_link_that_is_not_known_is_named_and_one_that_is_not_needed_is_not_asked_for() -> None:
    without = {name: value for name, value in VALUES.items() if not name.startswith("nic")}
    assert forecast_merge(MergeScenario(4, 1, 1e6, 16.0), without).limit != PARTITION
    with pytest.raises(UnknownParameter, match="nic_rate"):
        forecast_merge(MergeScenario(4, 2, 1e6, 16.0), without)


@pytest.mark.parametrize(("spread", "workers"), [(0.1, 2), (0.6, 2), (0.3, 16), (0.2, 256)])
def test_the_slowest_worker_is_as_slow_as_the_slowest_of_drawn_ones(spread: float, workers: int) -> None:
    drawn = np.random.default_rng(3).lognormal(0, spread, (2000, workers)).max(axis=1)
    assert slowest_worker_factor(spread, workers) == pytest.approx(np.median(drawn), rel=0.03)


def test_the_slowest_of_equal_workers_and_the_only_one_take_what_a_worker_takes() -> None:
    assert slowest_worker_factor(0.0, 1024) == 1.0
    assert slowest_worker_factor(0.5, 1) == 1.0


@given(
    st.integers(1, 8),
    st.integers(1, 16),
    st.integers(0, 32),
    st.floats(1e3, 1e9),
    values,
)
def test_more_workers_than_cores_never_merge_more_rows_a_second_than_as_many_as_cores(
    hosts: int, cores: int, more: int, rows: float, known: dict[str, float]
) -> None:
    def throughput(per_host: int) -> float:
        return forecast_merge(
            MergeScenario(hosts * per_host, hosts, rows, 16.0), {**known, "host_cores": cores}
        ).throughput

    assert throughput(cores + more) <= throughput(cores) * (1 + 1e-9)


@given(problems, values, st.floats(0.1, 64), st.floats(1, 10))
def test_more_cores_are_never_slower(
    problem: MergeScenario, known: dict[str, float], cores: float, times: float
) -> None:
    fewer, more = (forecast_merge(problem, {**known, "host_cores": count}).wall for count in (cores, cores * times))
    assert more <= fewer * (1 + 1e-9)


@pytest.mark.parametrize(
    ("cores", "workers", "threads", "turns"),
    [(2, 1, 2, 1), (2, 2, 1, 1), (2, 4, 1, 2), (2, 3, 1, 1.5), (16, 3, 5, 1), (0.5, 1, 1, 2), (float("inf"), 8, 1, 1)],
)
def test_workers_divide_the_cores_of_their_host(cores: float, workers: int, threads: int, turns: float) -> None:
    assert WorkerCores.share(cores, workers) == (threads, turns)


def test_phases_take_turns_on_the_cores_and_the_cores_are_named_as_the_limit() -> None:
    def found(workers: int) -> ModelResult:
        steady = {**VALUES, "partition_spread": 0.0, "join_spread": 0.0, "host_cores": 2.0}
        return forecast_merge(MergeScenario(workers, 1, 1e6, 16.0), steady)

    alone, pair, eight = found(1), found(2), found(8)
    assert alone.join == pytest.approx(2e6 / 20e6 / 2)  # with both cores
    assert pair.join == pytest.approx(2e6 / 20e6)
    assert eight.join == pytest.approx(4 * pair.join)
    assert eight.partition == pytest.approx(4 * pair.partition)
    # each of eight workers receives 7 of 8 parts, each of two 1 of 2, and four workers share a core
    assert eight.exchange - 4e-3 == pytest.approx(4 * 7 / 4 * (pair.exchange - 1e-3), rel=0.01)
    assert (pair.limit, eight.limit) == (JOIN, CORES)


def test_bytes_between_hosts_do_not_take_turns_on_cores() -> None:
    slow = {**VALUES, "nic_rate": 1e7, "nic_overhead": 0.0, "nic_latency": 0.0, "local_latency": 0.0, "meeting": 0.0}
    apart, shared = (
        forecast_merge(MergeScenario(8, 2, 1e6, 16.0), {**slow, "host_cores": cores}) for cores in (4.0, 1.0)
    )
    assert shared.exchange == apart.exchange
    assert shared.limit == NIC


@pytest.mark.parametrize(
    ("workers", "hosts", "cores", "at_once"),
    [(8, 1, 2.0, 2), (8, 4, 2.0, 8), (8, 4, 1.0, 4), (4, 4, 0.5, 4), (2, 1, 16.0, 2), (8, 1, float("inf"), 8)],
)
def test_at_most_one_worker_runs_on_each_core_at_once(workers: int, hosts: int, cores: float, at_once: int) -> None:
    assert workers_at_once(workers, hosts, cores) == at_once
