"""The formulas, on numbers that can be checked by hand."""

from __future__ import annotations

from statistics import median

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.analysis import metrics
from merge_bench.analysis.metrics import Bandwidth, WorkerTimes
from merge_bench.host.description import Hardware
from merge_bench.records import schema as s


def worker(rank: int, sent: tuple[int, int], flight: tuple[float, float, float]) -> s.WorkerIteration:
    return s.WorkerIteration(
        rank=rank,
        seconds=1.0,
        sent_bytes=s.FrameCounts(left=sent[0], right=sent[1]),
        flight_seconds=s.Flight(left=flight[0], right=flight[1], union=flight[2]),
    )


def iteration(*workers: s.WorkerIteration) -> s.IterationLine:
    return s.IterationLine(launch=0, index=0, wall_seconds=1.0, workers=list(workers))


def test_bandwidth_of_a_worker_is_the_mean_of_its_frames() -> None:
    # 600 B / 2 s = 300 B/s, 500 B / 5 s = 100 B/s, (300 + 100) / 2 = 200 B/s.
    assert metrics.worker_bandwidth(worker(0, (600, 500), (2.0, 5.0, 6.0))) == Bandwidth(300.0, 100.0, 200.0)


def test_a_frame_that_sent_nothing_has_no_bandwidth() -> None:
    assert metrics.worker_bandwidth(worker(0, (600, 0), (2.0, 5.0, 6.0))) == Bandwidth(300.0, None, None)


def test_a_broadcast_has_the_bandwidth_of_the_frame_that_is_sent() -> None:
    # Nobody sent left rows: 600 B / 2 s and 100 B / 1 s, harmonic mean 2 / (1/300 + 1/100) = 150 B/s.
    both = iteration(worker(0, (0, 600), (0.0, 2.0, 2.0)), worker(1, (0, 100), (0.0, 1.0, 1.0)))
    assert metrics.frames_sent(both.workers) == (False, True)
    assert metrics.worker_bandwidth(both.workers[0], (False, True)) == Bandwidth(None, 300.0, 300.0)
    assert metrics.iteration_bandwidth(both) == pytest.approx(150.0)
    # If one worker sent left rows, there is no mean of the other, as in a shuffle.
    some = iteration(worker(0, (0, 600), (0.0, 2.0, 2.0)), worker(1, (100, 100), (1.0, 1.0, 2.0)))
    assert metrics.iteration_bandwidth(some) == pytest.approx(100.0)


def computed(*seconds: float | None) -> s.IterationLine:
    workers = [s.WorkerIteration(rank=rank, seconds=1.0, cpu_seconds=cpu) for rank, cpu in enumerate(seconds)]
    return s.IterationLine(launch=0, index=0, wall_seconds=2.0, workers=workers)


def machines(*affinities: tuple[str, str | None]) -> list[s.Worker]:
    return [
        s.Worker(rank=rank, host=host, pid=rank, name=host, hardware=Hardware(affinity=cores))
        for rank, (host, cores) in enumerate(affinities)
    ]


def test_cores_used_is_that_of_the_busiest_host_whose_workers_share_its_cores() -> None:
    # Host a: (3 + 4) s ÷ (4 cores · 2 s); host b: 1.5 s ÷ (1 core · 2 s).
    shared = machines(("a", "0-3"), ("a", "0-3"), ("b", "7"))
    assert metrics.cores_share(computed(3.0, 4.0, 1.5), shared) == pytest.approx(7 / 8)
    # Pinned to cores of their own, both workers have the same four together.
    assert metrics.cores_share(computed(3.0, 4.0, 1.5), machines(("a", "0-1"), ("a", "2,3"), ("b", "7"))) == 7 / 8
    assert metrics.cores_share(computed(1.0, 1.0, 1.8), shared) == pytest.approx(0.9)
    # A container sees four cores and may use the time of two and a half.
    limited = Hardware(affinity="0-3", cpu_quota=2.5)
    shared[:2] = [msgspec.structs.replace(one, hardware=limited) for one in shared[:2]]
    assert metrics.cores_share(computed(1.5, 2.5, 0.2), shared) == pytest.approx(0.8)


def test_cores_used_is_not_known_where_any_part_of_it_is_not() -> None:
    here = machines(("a", "0"), ("a", "0"))
    assert metrics.cores_share(computed(1.0, None), here) is None
    assert metrics.cores_share(computed(1.0, 1.0), machines(("a", "0"), ("b", None))) is None
    assert metrics.cores_share(computed(1.0, 1.0), here[:1]) is None
    assert metrics.cores_share(computed(), here) is None


@pytest.mark.parametrize(
    ("ratio", "computing", "used", "limit"),
    [
        (1.1, 0.95, 0.99, "link"), (1.2, 0.95, 0.2, "cores"), (2.5, 0.3, 0.95, "cores"), (2.5, 0.3, 0.9, None),
        (2.5, 0.3, None, None), (None, None, None, None),
    ],
)  # fmt: skip
def test_the_link_limits_before_the_cores_do(
    ratio: float | None, computing: float | None, used: float | None, limit: str | None
) -> None:
    assert metrics.bottleneck(ratio, computing, used) == limit


def test_what_was_not_measured_has_no_bandwidth() -> None:
    assert metrics.worker_bandwidth(s.WorkerIteration(rank=0, seconds=1.0)) == Bandwidth(None, None, None)


def test_over_workers_the_mean_is_harmonic() -> None:
    # Workers at 200 and 600 B/s: 2 / (1/200 + 1/600) = 300 B/s.
    both = iteration(worker(0, (400, 400), (2.0, 2.0, 4.0)), worker(1, (600, 600), (1.0, 1.0, 2.0)))
    assert metrics.iteration_bandwidth(both) == pytest.approx(300.0)


def test_a_worker_without_bandwidth_does_not_pull_the_mean_down() -> None:
    both = iteration(worker(0, (400, 400), (2.0, 2.0, 4.0)), worker(1, (0, 0), (1.0, 1.0, 2.0)))
    assert metrics.iteration_bandwidth(both) == pytest.approx(200.0)
    assert metrics.iteration_bandwidth(iteration(worker(0, (0, 0), (0, 0, 0)))) is None


def test_throughput_is_data_over_wall() -> None:
    assert metrics.throughput(64_000_000, 0.5) == 128_000_000
    assert metrics.throughput(64_000_000, 0.0) is None


def test_flight_rate_is_total_bytes_over_total_flight() -> None:
    # (300 + 100 + 500 + 100) B / (3 + 2) s = 200 B/s.
    both = iteration(worker(0, (300, 100), (2.0, 2.0, 3.0)), worker(1, (500, 100), (1.0, 1.0, 2.0)))
    assert metrics.flight_rate(both) == pytest.approx(200.0)
    assert metrics.link_fraction(both, 250.0) == pytest.approx(0.8)
    assert metrics.link_fraction(both, None) is None


def test_one_worker_has_no_link() -> None:
    alone = iteration(worker(0, (0, 0), (0.0, 0.0, 0.0)))
    assert metrics.flight_rate(alone) is None
    assert metrics.link_limit([0], [[0.0]]) is None


def test_half_measured_workers_give_no_flight_rate() -> None:
    half = iteration(worker(0, (300, 100), (2.0, 2.0, 3.0)), s.WorkerIteration(rank=1, seconds=1.0))
    assert metrics.flight_rate(half) is None


def part(rank: int, partition: float, join: float, received: int) -> s.WorkerIteration:
    return s.WorkerIteration(
        rank=rank, seconds=1.0, phases_seconds=s.Phases(partition=partition, exchange=0.1, join=join),
        received_rows=s.FrameCounts(left=received, right=received), result_rows=received,
    )  # fmt: skip


def memory(rank: int, input_bytes: int, seconds: list[float]) -> s.WorkerMemory:
    return s.WorkerMemory(rank=rank, input_bytes=input_bytes, copied_bytes=1000, copy_seconds=seconds)


def test_the_share_of_the_copy_rate_is_that_of_the_worker_that_has_most_to_move() -> None:
    one = iteration(part(0, 0.4, 0.5, 100), part(1, 0.5, 0.2, 50))
    # 1000 and 500 B/s. Partition: 200 B in 0.2 s and in 0.4 s, of 0.5 s. Join: 300 rows of 1 B and 150, 0.3 s of 0.5 s.
    found = [memory(0, 100, [2.0, 1.0]), memory(1, 100, [2.0, 3.0])]
    assert metrics.memory_fractions(one, found, 1.0) == pytest.approx((0.8, 0.6))
    assert metrics.memory_fractions(one, found[:1], 1.0) == (None, None)
    assert metrics.memory_fractions(iteration(), found, 1.0) == (None, None)
    assert metrics.copy_rate(memory(0, 100, [])) is None


def test_rows_that_nobody_receives_are_read_but_not_written() -> None:
    # Half of 300 B is received: the partition moves 100 + 50 and 200 + 100 B. At 1000 B/s that takes 0.15 and 0.3 s.
    one = iteration(part(0, 0.4, 0.5, 25), part(1, 0.5, 0.2, 50))
    found = metrics.memory_fractions(one, [memory(0, 100, [1.0]), memory(1, 200, [1.0])], 1.0)
    assert found == pytest.approx((0.6, 0.3))


def test_a_worker_without_rows_joins_at_the_others_rate() -> None:
    one = iteration(part(0, 0.4, 0.5, 100), part(1, 0.0, 0.2, 50))
    idle = s.WorkerMemory(rank=1, peak_bytes=1, input_bytes=0)
    # 1000 B/s. All 200 B are sent: 0.4 s of 0.4 s. Join: 300 rows of 1 B, 0.3 s of 0.5 s.
    assert metrics.memory_fractions(one, [memory(0, 200, [1.0]), idle], 1.0) == pytest.approx((1.0, 0.6))
    assert metrics.memory_fractions(one, [idle, idle], 1.0) == (None, None)
    unknown = s.WorkerMemory(rank=1, peak_bytes=1, input_bytes=5)
    assert metrics.memory_fractions(one, [memory(0, 200, [1.0]), unknown], 1.0) == (None, None)


def test_link_limit_is_the_median_of_the_five_fastest_rounds() -> None:
    # Disturbed rounds, however many, change nothing: of the five fastest the third has 600 B in 2 s.
    rounds = [
        [4.0, 5.0],
        [9.0, 9.0],
        [0.5, 0.5],
        [1.0, 1.0],
        [7.0, 8.0],
        [0.5, 1.0],
        [1.0, 1.5],
        [1.0, 2.0],
        [8.0, 8.0],
    ]
    assert metrics.link_limit([200, 400], rounds) == pytest.approx(300.0)
    # 600 B in 3 s, 6 s and 2 s of flight in all: 200, 100 and 300 B/s.
    assert metrics.link_limit([200, 400], [[1.0, 2.0], [2.0, 4.0], [1.0, 1.0]]) == pytest.approx(200.0)
    assert metrics.link_limit([200, 400], []) is None


def test_overloaded_ranks_are_named_with_their_factor() -> None:
    # Means of the others: (100 + 100 + 160 + 100) k / 4 = 115 k for rank 2; (100 + 100 + 400 + 100) k / 4 for rank 3.
    found = metrics.find_overloads({0: 100_000, 1: 100_000, 2: 400_000, 3: 160_000, 4: 100_000}, {})
    assert [(o.rank, o.what, o.rows) for o in found] == [(2, "received", 400_000)]
    assert found[0].factor == pytest.approx(400 / 115)


def test_a_rank_is_named_by_what_it_has_most_too_much_of() -> None:
    found = metrics.find_overloads({0: 100_000, 1: 120_000}, {0: 20_000, 1: 30_000})
    assert [(o.rank, o.what, o.factor) for o in found] == [(1, "result", 1.5)]


def test_a_twentieth_more_is_no_overload_and_a_little_above_it_is() -> None:
    assert metrics.find_overloads({0: 100_000, 1: 100_000, 2: 105_000}, {}) == ()
    assert [o.rank for o in metrics.find_overloads({0: 100_000, 1: 100_000, 2: 106_000}, {})] == [2]


def test_chance_is_no_overload() -> None:
    # 20 % more, but √100 = 10 rows are what an even hash scatters by: two of them are nothing.
    assert metrics.find_overloads({0: 100, 1: 120}, {}) == ()


@pytest.mark.parametrize("rows", [{}, {0: 100}, {0: 0, 1: 0, 2: 0}])
def test_no_overload_without_a_load_to_compare_with(rows: dict[int, float]) -> None:
    assert metrics.find_overloads(rows, rows) == ()


EVEN = WorkerTimes(partition=1.0, exchange=1.0, join=1.0)


def test_even_workers_have_no_straggler() -> None:
    assert metrics.find_straggler(dict.fromkeys(range(4), EVEN)) is None
    assert metrics.find_straggler({0: EVEN}) is None
    assert metrics.find_straggler({}) is None


def test_a_slow_join_is_found() -> None:
    found = metrics.find_straggler({0: EVEN, 1: EVEN, 2: WorkerTimes(1.0, 1.0, 2.5)})
    assert found is not None
    assert (found.rank, found.phase, found.seconds, found.others, found.factor) == (2, "join", 2.5, 1.0, 2.5)


def test_who_waits_is_not_the_straggler() -> None:
    """Rank 0 partitions for 2 s instead of 1 s; rank 1 waits that second in its exchange."""
    found = metrics.find_straggler({0: WorkerTimes(2.0, 1.0, 1.0), 1: WorkerTimes(1.0, 2.0, 1.0)})
    assert found is not None
    assert (found.rank, found.phase) == (0, "partition")


def test_a_slow_network_port_is_found() -> None:
    found = metrics.find_straggler({0: EVEN, 1: WorkerTimes(1.0, 2.0, 1.0), 2: EVEN})
    assert found is not None
    assert (found.rank, found.phase, found.factor) == (1, "exchange", 2.0)


@given(st.dictionaries(st.integers(0, 99), st.integers(0, 50).map(float), min_size=2, max_size=30))
def test_the_others_are_all_but_one(values: dict[int, float]) -> None:
    expected = {rank: median([v for other, v in values.items() if other != rank]) for rank in values}
    assert metrics._medians_of_others(values) == expected


def test_overlap_counts_once() -> None:
    """Rank 1 spends longer in its exchange, but beside its partition: it is done when the others are."""
    hidden = WorkerTimes(partition=1.0, exchange=1.8, join=1.0, overlap=0.8)
    assert metrics.find_straggler({0: EVEN, 1: hidden, 2: EVEN}) is None


def test_a_join_beside_the_exchange_counts_once() -> None:
    """Rank 1 exchanges until its end and joins meanwhile; the others do the same one after the other."""
    beside = WorkerTimes(partition=1.0, exchange=1.15, join=1.0, join_overlap=0.15)
    assert metrics.find_straggler({0: EVEN, 1: beside, 2: EVEN}) is None


def test_a_little_slower_is_no_straggler() -> None:
    assert metrics.find_straggler({0: EVEN, 1: WorkerTimes(1.0, 1.0, 1.19), 2: EVEN}) is None
    # Three times as long in the partition, which costs 2 % of a worker's 1.01 s only.
    quick = WorkerTimes(0.01, 0.5, 0.5)
    assert metrics.find_straggler({0: quick, 1: WorkerTimes(0.03, 0.5, 0.5), 2: quick}) is None


def test_a_slow_link_shows_in_pairs_only() -> None:
    rates = {(a, b): 5.0 if 2 in (a, b) else 100.0 for a in range(4) for b in range(4) if a != b}
    found = metrics.find_slow_link(rates, dict.fromkeys(range(4), "node0"))
    assert found == metrics.SlowLink(2, 5.0, 100.0)
    assert found.factor == 20.0


def test_even_links_and_two_ranks_name_nobody() -> None:
    even = {(a, b): 100.0 + a for a in range(4) for b in range(4) if a != b}
    assert metrics.find_slow_link(even, {}) is None
    assert metrics.find_slow_link({(0, 1): 1.0, (1, 0): 100.0}, {}) is None
    assert metrics.find_slow_link({}, {}) is None


@pytest.mark.parametrize("hosts", ["aaab", "aaaabb", "aab"])
def test_a_rank_on_another_host_has_no_slow_link_because_the_network_is_slower_than_memory(hosts: str) -> None:
    where = dict(enumerate(hosts))
    pairs = [(a, b) for a in where for b in where if a != b]
    rates = {(a, b): 100.0 if where[a] == where[b] else 10.0 for a, b in pairs}
    assert metrics.find_slow_link(rates, where) is None


def test_a_slow_link_to_other_hosts_is_found_beside_fast_pairs_within_hosts() -> None:
    where = dict(enumerate("aabb"))
    pairs = [(a, b) for a in where for b in where if a != b]
    rates = {(a, b): 100.0 if where[a] == where[b] else 2.0 if 3 in (a, b) else 10.0 for a, b in pairs}
    assert metrics.find_slow_link(rates, where) == metrics.SlowLink(3, 2.0, 10.0)


def test_a_rank_holds_the_others_up_by_what_it_ends_later() -> None:
    """Rank 2 spends 75 ms in its exchange, 35 of them waiting: it began earlier, and ends 10 ms after the others."""
    late = WorkerTimes(40, 30, 20)
    found = metrics.find_straggler({0: late, 1: late, 2: WorkerTimes(5, 75, 20), 3: late})
    assert found is not None
    assert (found.rank, found.phase, found.seconds, found.excess) == (2, "exchange", 75, 10)
