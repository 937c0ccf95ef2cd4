"""The formulas, on numbers that can be checked by hand."""

from __future__ import annotations

import msgspec
import pytest

from merge_bench.analysis import aggregate
from merge_bench.analysis.aggregate import FrameBandwidths
from merge_bench.analysis.bottleneck import limit_of_overlapping_phases
from merge_bench.host.description import Hardware
from merge_bench.records import schema as s
from merge_bench.records.campaign import Launch

NO_LAUNCH = Launch(0)
LINK = s.LinkLimitLine(launch=0, bytes=[], rounds=[], limit_bytes_per_second=250.0)


def worker(rank: int, sent: tuple[int, int], flight: tuple[float, float, float]) -> s.WorkerIteration:
    return s.WorkerIteration(
        rank=rank,
        seconds=1.0,
        sent_bytes=s.FrameCounts(left=sent[0], right=sent[1]),
        flight_seconds=s.TransferSeconds(left=flight[0], right=flight[1], union=flight[2]),
    )


def iteration(*workers: s.WorkerIteration) -> s.IterationLine:
    return s.IterationLine(launch=0, index=0, wall_seconds=1.0, workers=list(workers))


def test_bandwidth_of_a_worker_is_the_mean_of_its_frames() -> None:
    # 600 B / 2 s = 300 B/s, 500 B / 5 s = 100 B/s, (300 + 100) / 2 = 200 B/s.
    assert aggregate.worker_bandwidth(worker(0, (600, 500), (2.0, 5.0, 6.0))) == FrameBandwidths(300.0, 100.0, 200.0)


def test_a_frame_that_sent_nothing_has_no_bandwidth() -> None:
    assert aggregate.worker_bandwidth(worker(0, (600, 0), (2.0, 5.0, 6.0))) == FrameBandwidths(300.0, None, None)


def test_a_broadcast_has_the_bandwidth_of_the_frame_that_is_sent() -> None:
    # Nobody sent left rows: 600 B / 2 s and 100 B / 1 s, harmonic mean 2 / (1/300 + 1/100) = 150 B/s.
    both = iteration(worker(0, (0, 600), (0.0, 2.0, 2.0)), worker(1, (0, 100), (0.0, 1.0, 1.0)))
    assert aggregate.frames_sent(both.workers) == (False, True)
    assert aggregate.worker_bandwidth(both.workers[0], (False, True)) == FrameBandwidths(None, 300.0, 300.0)
    assert aggregate.iteration_bandwidth(both) == pytest.approx(150.0)
    # If one worker sent left rows, there is no mean of the other, as in a shuffle.
    some = iteration(worker(0, (0, 600), (0.0, 2.0, 2.0)), worker(1, (100, 100), (1.0, 1.0, 2.0)))
    assert aggregate.iteration_bandwidth(some) == pytest.approx(100.0)


def computed(*seconds: float | None) -> s.IterationLine:
    workers = [s.WorkerIteration(rank=rank, seconds=1.0, cpu_seconds=cpu) for rank, cpu in enumerate(seconds)]
    return s.IterationLine(launch=0, index=0, wall_seconds=2.0, workers=workers)


def machines(*affinities: tuple[str, str | None]) -> list[s.Worker]:
    return [
        s.Worker(rank=rank, host=host, pid=rank, name=host, hardware=Hardware(affinity=cores))
        for rank, (host, cores) in enumerate(affinities)
    ]


def cores_share(line: s.IterationLine, workers: list[s.Worker]) -> float | None:
    cluster = s.Cluster(launcher="local", protocol="tcp")
    launch = s.LaunchLine(launch=0, config="c", plan=0, cluster=cluster, workers=workers, data_bytes=1, rows=1)
    return aggregate.busy_cores_share(Launch(0, launch), line)


def test_cores_used_is_that_of_the_busiest_host_whose_workers_share_its_cores() -> None:
    # Host a: (3 + 4) s ÷ (4 cores · 2 s); host b: 1.5 s ÷ (1 core · 2 s).
    shared = machines(("a", "0-3"), ("a", "0-3"), ("b", "7"))
    assert cores_share(computed(3.0, 4.0, 1.5), shared) == pytest.approx(7 / 8)
    # Pinned to cores of their own, both workers have the same four together.
    assert cores_share(computed(3.0, 4.0, 1.5), machines(("a", "0-1"), ("a", "2,3"), ("b", "7"))) == 7 / 8
    assert cores_share(computed(1.0, 1.0, 1.8), shared) == pytest.approx(0.9)
    # A container sees four cores and may use the time of two and a half.
    limited = Hardware(affinity="0-3", cpu_quota=2.5)
    shared[:2] = [msgspec.structs.replace(one, hardware=limited) for one in shared[:2]]
    assert cores_share(computed(1.5, 2.5, 0.2), shared) == pytest.approx(0.8)


def test_cores_used_is_not_known_where_any_part_of_it_is_not() -> None:
    here = machines(("a", "0"), ("a", "0"))
    assert cores_share(computed(1.0, None), here) is None
    assert cores_share(computed(1.0, 1.0), machines(("a", "0"), ("b", None))) is None
    assert cores_share(computed(1.0, 1.0), here[:1]) is None
    assert cores_share(computed(), here) is None


@pytest.mark.parametrize(
    ("ratio", "computing", "used", "limit"),
    [
        (1.1, 0.95, 0.99, "link"),
        (1.2, 0.95, 0.2, "cores"),
        (2.5, 0.3, 0.95, "cores"),
        (2.5, 0.3, 0.9, None),
        (2.5, 0.3, None, None),
        (None, None, None, None),
    ],
)
def test_the_link_limits_before_the_cores_do(
    ratio: float | None, computing: float | None, used: float | None, limit: str | None
) -> None:
    assert limit_of_overlapping_phases(ratio, computing, used) == limit


def test_what_was_not_measured_has_no_bandwidth() -> None:
    assert aggregate.worker_bandwidth(s.WorkerIteration(rank=0, seconds=1.0)) == FrameBandwidths(None, None, None)


def test_over_workers_the_mean_is_harmonic() -> None:
    # Workers at 200 and 600 B/s: 2 / (1/200 + 1/600) = 300 B/s.
    both = iteration(worker(0, (400, 400), (2.0, 2.0, 4.0)), worker(1, (600, 600), (1.0, 1.0, 2.0)))
    assert aggregate.iteration_bandwidth(both) == pytest.approx(300.0)


def test_a_worker_without_bandwidth_does_not_pull_the_mean_down() -> None:
    both = iteration(worker(0, (400, 400), (2.0, 2.0, 4.0)), worker(1, (0, 0), (1.0, 1.0, 2.0)))
    assert aggregate.iteration_bandwidth(both) == pytest.approx(200.0)
    assert aggregate.iteration_bandwidth(iteration(worker(0, (0, 0), (0, 0, 0)))) is None


def test_throughput_is_data_over_wall() -> None:
    assert aggregate.data_rate(64_000_000, 0.5) == 128_000_000
    assert aggregate.data_rate(64_000_000, 0.0) is None


def test_flight_rate_is_total_bytes_over_total_flight() -> None:
    # (300 + 100 + 500 + 100) B / (3 + 2) s = 200 B/s.
    both = iteration(worker(0, (300, 100), (2.0, 2.0, 3.0)), worker(1, (500, 100), (1.0, 1.0, 2.0)))
    assert aggregate.in_flight_bandwidth(NO_LAUNCH, both) == pytest.approx(200.0)
    assert aggregate.link_fraction(Launch(0, link=LINK), both) == pytest.approx(0.8)
    assert aggregate.link_fraction(NO_LAUNCH, both) is None


def test_one_worker_has_no_link() -> None:
    alone = iteration(worker(0, (0, 0), (0.0, 0.0, 0.0)))
    assert aggregate.in_flight_bandwidth(NO_LAUNCH, alone) is None
    assert aggregate.link_limit_of_rounds([0], [[0.0]]) is None


def test_half_measured_workers_give_no_flight_rate() -> None:
    half = iteration(worker(0, (300, 100), (2.0, 2.0, 3.0)), s.WorkerIteration(rank=1, seconds=1.0))
    assert aggregate.in_flight_bandwidth(NO_LAUNCH, half) is None


def part(rank: int, partition: float, join: float, received: int) -> s.WorkerIteration:
    return s.WorkerIteration(
        rank=rank,
        seconds=1.0,
        phases_seconds=s.PhaseSeconds(partition=partition, exchange=0.1, join=join),
        received_rows=s.FrameCounts(left=received, right=received),
        result_rows=received,
    )


def memory(rank: int, input_bytes: int, seconds: list[float]) -> s.WorkerMemory:
    return s.WorkerMemory(rank=rank, input_bytes=input_bytes, copied_bytes=1000, copy_seconds=seconds)


def test_the_share_of_the_copy_rate_is_that_of_the_worker_that_has_most_to_move() -> None:
    one = iteration(part(0, 0.4, 0.5, 100), part(1, 0.5, 0.2, 50))
    # 1000 and 500 B/s. Partition: 200 B in 0.2 s and in 0.4 s, of 0.5 s. Join: 300 rows of 1 B and 150, 0.3 s of 0.5 s.
    found = [memory(0, 100, [2.0, 1.0]), memory(1, 100, [2.0, 3.0])]
    assert aggregate.copy_rate_fractions(one, found, 1.0) == pytest.approx((0.8, 0.6))
    assert aggregate.copy_rate_fractions(one, found[:1], 1.0) == (None, None)
    assert aggregate.copy_rate_fractions(iteration(), found, 1.0) == (None, None)
    assert aggregate.worker_copy_rate(memory(0, 100, [])) is None


def test_rows_that_nobody_receives_are_read_but_not_written() -> None:
    # Half of 300 B is received: the partition moves 100 + 50 and 200 + 100 B. At 1000 B/s that takes 0.15 and 0.3 s.
    one = iteration(part(0, 0.4, 0.5, 25), part(1, 0.5, 0.2, 50))
    found = aggregate.copy_rate_fractions(one, [memory(0, 100, [1.0]), memory(1, 200, [1.0])], 1.0)
    assert found == pytest.approx((0.6, 0.3))


def test_a_worker_without_rows_joins_at_the_others_rate() -> None:
    one = iteration(part(0, 0.4, 0.5, 100), part(1, 0.0, 0.2, 50))
    idle = s.WorkerMemory(rank=1, peak_bytes=1, input_bytes=0)
    # 1000 B/s. All 200 B are sent: 0.4 s of 0.4 s. Join: 300 rows of 1 B, 0.3 s of 0.5 s.
    assert aggregate.copy_rate_fractions(one, [memory(0, 200, [1.0]), idle], 1.0) == pytest.approx((1.0, 0.6))
    assert aggregate.copy_rate_fractions(one, [idle, idle], 1.0) == (None, None)
    unknown = s.WorkerMemory(rank=1, peak_bytes=1, input_bytes=5)
    assert aggregate.copy_rate_fractions(one, [memory(0, 200, [1.0]), unknown], 1.0) == (None, None)


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
    assert aggregate.link_limit_of_rounds([200, 400], rounds) == pytest.approx(300.0)
    # 600 B in 3 s, 6 s and 2 s of flight in all: 200, 100 and 300 B/s.
    assert aggregate.link_limit_of_rounds([200, 400], [[1.0, 2.0], [2.0, 4.0], [1.0, 1.0]]) == pytest.approx(200.0)
    assert aggregate.link_limit_of_rounds([200, 400], []) is None
