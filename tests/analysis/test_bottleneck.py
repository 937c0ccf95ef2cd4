"""What limits a merge, on campaigns whose figures are known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from merge_bench.analysis.documents import Bottleneck, RunDocument
from merge_bench.analysis.summary import summarize_campaign
from merge_bench.host.description import Hardware
from merge_bench.records import schema as s
from merge_bench.records.reader import read_campaign
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign

Change = Callable[[s.WorkerIteration], s.WorkerIteration]


def document(folder: Path) -> RunDocument:
    found = summarize_campaign(read_campaign(folder))
    assert isinstance(found, RunDocument)
    return found


def bottleneck(folder: Path) -> Bottleneck:
    found = document(folder).bottleneck
    assert found is not None
    return found


def phases(partition: float, exchange: float, join: float, rank: int | None = None) -> Change:
    """Of all workers, or of one."""

    def change(worker: s.WorkerIteration) -> s.WorkerIteration:
        if rank not in (None, worker.rank):
            return worker
        own = s.PhaseSeconds(partition=partition, exchange=exchange, join=join)
        return msgspec.structs.replace(worker, phases_seconds=own)

    return change


def on(cores: str, quota: float | None = None) -> Callable[[s.Worker], s.Worker]:
    hardware = Hardware(affinity=cores, cpu_quota=quota)
    return lambda worker: msgspec.structs.replace(worker, hardware=hardware)


@pytest.mark.parametrize(
    ("seconds", "what", "because"),
    [
        ((0.06, 0.03, 0.02), "partition", "the longest phase, 55% of the wall-clock time"),
        ((0.02, 0.03, 0.06), "join", "the longest phase, 55% of the wall-clock time"),
        # 400 of 480 MB/s: the exchange is as fast as the link allows.
        (
            (0.02, 0.06, 0.03),
            "link",
            "the exchange is the longest phase, 55% of the wall-clock time, at 83% of the link limit",
        ),
    ],
)
def test_the_longest_phase_limits_an_even_merge(
    tmp_path: Path, seconds: tuple[float, float, float], what: str, because: str
) -> None:
    found = bottleneck(write_campaign(tmp_path, Script(worker=phases(*seconds))))
    assert (found.what, found.because) == (what, because)
    assert found.share == pytest.approx(0.06 / 0.11)
    assert found.rank is None


@pytest.mark.parametrize(
    ("seconds", "fastest", "what", "because"),
    [
        # What a worker's partition moves is copied in 50 of its 60 ms.
        (
            (0.06, 0.03, 0.02),
            0.05,
            "memory",
            "the partition is the longest phase, 55% of the wall-clock time, at 83% of memory's copy rate",
        ),
        (
            (0.06, 0.03, 0.02),
            0.02,
            "partition",
            "the longest phase, 55% of the wall-clock time; a copy of its rows takes at least 33% of that",
        ),
        # A join moves 2,300,000 rows of 16 bytes, 0.575 of what the partition moves: in 57.5 and 11.5 of its 60 ms.
        (
            (0.02, 0.03, 0.06),
            0.1,
            "memory",
            "the join is the longest phase, 55% of the wall-clock time, at 96% of memory's copy rate",
        ),
        (
            (0.02, 0.03, 0.06),
            0.02,
            "join",
            "the longest phase, 55% of the wall-clock time; a copy of its rows takes at least 19% of that",
        ),
    ],
)
def test_memory_limits_a_phase_that_is_nearly_as_fast_as_a_copy(
    tmp_path: Path, seconds: tuple[float, float, float], fastest: float, what: str, because: str
) -> None:
    found = bottleneck(
        write_campaign(tmp_path, Script(worker=phases(*seconds), copy_seconds=(2 * fastest, fastest, 1.5 * fastest)))
    )
    assert (found.what, found.because) == (what, because)
    assert found.share == pytest.approx(0.06 / 0.11)


def test_memory_whose_copy_rate_is_exceeded_limits_nothing(tmp_path: Path) -> None:
    found = bottleneck(write_campaign(tmp_path, Script(worker=phases(0.06, 0.03, 0.02), copy_seconds=(0.07,))))
    assert (found.what, found.because) == ("partition", "the longest phase, 55% of the wall-clock time")


def test_with_a_runtime_filter_no_phase_has_a_share_of_the_copy_rate(tmp_path: Path) -> None:
    script = Script(plan=plan(runtime_filter=True), worker=phases(0.06, 0.03, 0.02), copy_seconds=(0.05,))
    found = document(write_campaign(tmp_path, script))
    assert found.bottleneck is not None
    assert found.bottleneck.what == "partition"
    assert found.memory_rate is not None
    assert found.memory_rate.partition_fraction is None
    assert found.memory_rate.copy_bytes_per_second == pytest.approx(64e6 / 0.05)


def test_an_exchange_far_below_the_link_limit_is_not_limited_by_the_link(tmp_path: Path) -> None:
    def slow(worker: s.WorkerIteration) -> s.WorkerIteration:
        flight = s.TransferSeconds(left=0.03, right=0.03, union=0.05)  # 12 MB: 240 MB/s, half of the limit
        return msgspec.structs.replace(phases(0.02, 0.06, 0.03)(worker), flight_seconds=flight)

    found = bottleneck(write_campaign(tmp_path, Script(worker=slow)))
    assert found.what == "exchange"
    assert found.because.endswith(
        "at 50% of the link limit: the link could carry more; transfers are in flight for 83% of the phase"
    )


def test_without_a_link_limit_nobody_says_that_the_link_limits(tmp_path: Path) -> None:
    script = Script(worker=phases(0.02, 0.06, 0.03), measure_link=False)
    found = bottleneck(write_campaign(tmp_path, script))
    assert found.what == "exchange"
    assert found.because.endswith("no link limit was measured")


def test_workers_that_share_cores_take_turns_and_none_of_them_is_a_straggler(tmp_path: Path) -> None:
    late = phases(0.02, 0.03, 0.09, rank=1)
    alone = document(write_campaign(tmp_path / "alone", Script(plan=plan(4), worker=late, machine=on("0-3"))))
    assert alone.bottleneck is not None
    assert (alone.bottleneck.what, alone.bottleneck.rank) == ("straggler", 1)
    assert [each.code for each in alone.warnings] == ["straggler"]
    crowded = document(write_campaign(tmp_path / "crowded", Script(plan=plan(4), worker=late, machine=on("0-1"))))
    assert crowded.bottleneck == Bottleneck(what="cores", share=None, because="4 workers share 2 cores of node0")
    (warning,) = crowded.warnings
    assert warning.code == "oversubscribed"
    assert warning.message.startswith("4 workers share 2 cores of node0: they take turns")
    assert warning.remedy == "use at most 2 workers on this host"


def test_a_container_s_quota_counts_as_cores(tmp_path: Path) -> None:
    found = bottleneck(write_campaign(tmp_path, Script(machine=on("0-7", quota=1.0))))
    assert found.because == "2 workers share 1 core of node0"


def test_a_straggler_costs_what_it_takes_longer(tmp_path: Path) -> None:
    found = bottleneck(write_campaign(tmp_path, Script(plan=plan(4), worker=phases(0.02, 0.03, 0.062, rank=2))))
    assert (found.what, found.rank) == ("straggler", 2)
    assert found.share == pytest.approx(0.022 / 0.11)
    needs = "rank 2 (node0) needs 62.00 ms for join, the other ranks 40.00 ms"
    assert found.because == f"{needs}; that costs at least 20% of the wall-clock time"


def test_a_straggler_costs_what_it_takes_longer_in_every_phase(tmp_path: Path) -> None:
    """Rank 2 takes 20 and 40 ms more for partition and join, and then also 10 ms for the exchange."""
    slow, usual = phases(0.04, 0.02, 0.08), phases(0.02, 0.03, 0.04)
    folder = write_campaign(
        tmp_path, Script(plan=plan(4), worker=lambda each: (slow if each.rank == 2 else usual)(each))
    )
    found = bottleneck(folder)
    assert (found.what, found.rank) == ("straggler", 2)
    assert found.share == pytest.approx(0.06 / 0.11)  # in the exchange it is last, but not longer than the others
    later = phases(0.04, 0.04, 0.08)
    found = bottleneck(
        write_campaign(
            tmp_path / "later", Script(plan=plan(4), worker=lambda each: (later if each.rank == 2 else usual)(each))
        )
    )
    assert found.share == pytest.approx(0.07 / 0.11)


def used(*cpu_seconds: float, rank: int | None = None, by_phase: bool = True) -> Change:
    """Processor seconds of partition, exchange and join, of all workers or of one; the others have their cores."""

    def change(worker: s.WorkerIteration) -> s.WorkerIteration:
        own = cpu_seconds if rank in (None, worker.rank) else (0.02, 0.05, 0.03)
        each = s.PhaseSeconds(partition=own[0], exchange=own[1], join=own[2]) if by_phase else None
        worker = phases(*((0.04, 0.01, 0.06) if rank in (None, worker.rank) else (0.02, 0.05, 0.03)))(worker)
        return msgspec.structs.replace(worker, cpu_seconds=sum(own), phases_cpu_seconds=each)

    return change


@pytest.mark.parametrize("by_phase", [True, False])
def test_a_worker_without_its_core_is_named_before_all_that_follows_from_it(tmp_path: Path, by_phase: bool) -> None:
    own = used(0.02, 0.0, 0.03, rank=1, by_phase=by_phase)
    found = document(write_campaign(tmp_path, Script(worker=own))).bottleneck
    assert found is not None
    assert (found.what, found.rank) == ("host", 1)
    assert found.because.startswith("rank 1 (node0) had 0.50 of its core; that costs at least ")
    assert found.share == pytest.approx(0.05 / 0.11)  # with its core it would take the 20 and 30 ms of rank 0


def test_all_workers_without_their_cores_cost_what_these_do_not_use(tmp_path: Path) -> None:
    found = document(write_campaign(tmp_path, Script(worker=used(0.02, 0.01, 0.03))))
    assert found.bottleneck is not None
    assert (found.bottleneck.what, found.bottleneck.rank) == ("host", None)
    assert found.bottleneck.share == pytest.approx(0.05 / 0.11)
    had = "rank 0 (node0) had 0.50, rank 1 (node0) had 0.50 of their cores"
    assert found.bottleneck.because == f"{had}; that costs at least 45% of the wall-clock time"
    assert found.link is not None
    assert (found.link.fraction, found.link.disturbed) == (None, "the workers did not have their cores")


def test_workers_that_are_stopped_in_turn_have_too_little_in_every_iteration(tmp_path: Path) -> None:
    """A rank is off its core in one of three iterations, and has more than 0.8 of it over all of them."""

    def in_turn(worker: s.WorkerIteration) -> s.WorkerIteration:
        return used(0.028, 0.0, 0.044, rank=round((worker.seconds - 0.1) * 100))(worker)

    found = bottleneck(write_campaign(tmp_path, Script(plan=plan(4), worker=in_turn)))
    assert (found.what, found.rank, found.share) == ("host", None, pytest.approx(0.028 / 0.11))
    assert found.because.startswith("in most iterations a rank had at most 0.72 of its core; that costs at least 25%")


@pytest.mark.parametrize(
    ("cpu", "changes"),
    [
        ((0.035, 0.0, 0.05), {}),  # 0.85 of the core
        ((0.04, 0.0, 0.06), {}),  # a worker that waits in the exchange sleeps, and is not off its core
        ((0.02, 0.0, 0.03), {"engine": "cudf"}),  # on a GPU the worker waits for that
    ],
)
def test_workers_on_their_cores_are_not_said_to_be_off_them(
    tmp_path: Path, cpu: tuple[float, float, float], changes: dict[str, Any]
) -> None:
    assert bottleneck(write_campaign(tmp_path, Script(plan=plan(**changes), worker=used(*cpu)))).what == "join"


def test_a_rank_off_its_core_is_not_blamed_for_another_that_takes_longest(tmp_path: Path) -> None:
    """Rank 1 has 0.5 of its core, but all wait for rank 0, which has 0.86 of its own."""

    def work(worker: s.WorkerIteration) -> s.WorkerIteration:
        wall, cpu = ((0.05, 0.01, 0.05), 0.86) if worker.rank == 0 else ((0.02, 0.07, 0.02), 0.5)
        own = s.PhaseSeconds(partition=wall[0] * cpu, exchange=0.0, join=wall[2] * cpu)
        return msgspec.structs.replace(phases(*wall)(worker), phases_cpu_seconds=own)

    assert bottleneck(write_campaign(tmp_path, Script(worker=work))).what != "host"


def test_a_runtime_filter_waits_for_others_in_the_partition(tmp_path: Path) -> None:
    script = Script(plan=plan(runtime_filter=True), worker=used(0.02, 0.0, 0.03))
    assert bottleneck(write_campaign(tmp_path, script)).what != "host"


def test_a_core_that_is_missing_for_a_short_time_of_a_long_merge_is_not_the_limit(tmp_path: Path) -> None:
    def exchanges(worker: s.WorkerIteration) -> s.WorkerIteration:
        cpu = s.PhaseSeconds(partition=0.002, exchange=0.01, join=0.002)
        return msgspec.structs.replace(phases(0.004, 0.1, 0.004)(worker), phases_cpu_seconds=cpu)

    assert bottleneck(write_campaign(tmp_path, Script(worker=exchanges))).what == "link"


@pytest.mark.parametrize(("fixed", "what"), [(0.1, "fixed-costs"), (0.056, "fixed-costs"), (0.05, "join")])
def test_fixed_costs_limit_a_merge_that_takes_little_longer_than_that_of_one_row(
    tmp_path: Path, fixed: float, what: str
) -> None:
    script = Script(worker=phases(0.02, 0.03, 0.06), one_row_merge_seconds=(fixed / 2, 2 * fixed, fixed))
    found = bottleneck(write_campaign(tmp_path, script))
    assert found.what == what
    if what == "fixed-costs":
        assert found.share == pytest.approx(fixed / 0.11)


def test_on_a_busy_host_the_host_is_named_before_a_slow_rank(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, Script(plan=plan(4), worker=phases(0.02, 0.03, 0.062, rank=2)))
    records = folder / "records.jsonl"
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    for line in lines:
        if line["kind"] == "launch":
            line["other_load"] = {"busy": 1.5, "cores": 2, "processes": ["pid 71 yes"]}
    records.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = bottleneck(folder)
    assert (found.what, found.rank, found.share) == ("busy-host", 2, pytest.approx(0.022 / 0.11))
    assert found.besides == "straggler"
    assert found.because.startswith("other processes keep up to 1.5 of 2 cores busy, so")
    assert "besides, straggler: rank 2 (node0) needs" in found.because


@pytest.mark.parametrize(
    ("changes", "nodes", "hosts", "checked"),
    [
        ({}, 1, 1, "core of this rank is shared or throttled"),
        ({}, 2, 1, "core of this rank is shared, throttled, or on another NUMA node"),
        ({}, 1, 2, "core or network port of this rank is shared or throttled"),
        ({"engine": "cudf"}, None, 1, "GPU of this rank is shared or throttled"),
    ],
)
def test_what_to_check_of_a_slow_rank_is_what_its_host_has(
    tmp_path: Path, changes: dict[str, Any], nodes: int | None, hosts: int, checked: str
) -> None:
    def machine(worker: s.Worker) -> s.Worker:
        hardware = msgspec.structs.replace(worker.hardware, numa_nodes=nodes)
        return msgspec.structs.replace(worker, hardware=hardware, host=f"node{worker.rank % hosts}")

    script = Script(plan=plan(4, **changes), worker=phases(0.02, 0.03, 0.062, rank=2), machine=machine)
    (slow,) = [each for each in document(write_campaign(tmp_path, script)).warnings if each.code == "straggler"]
    assert slow.remedy == f"check whether the {checked}"


def test_a_rank_that_costs_less_than_a_tenth_is_a_warning_and_not_the_limit(tmp_path: Path) -> None:
    found = document(write_campaign(tmp_path, Script(plan=plan(4), worker=phases(0.02, 0.03, 0.050, rank=2))))
    assert found.bottleneck is not None
    assert found.bottleneck.what == "join"
    assert "straggler" in {each.code for each in found.warnings}


def test_a_rank_that_partitions_more_of_the_tables_is_no_straggler(tmp_path: Path) -> None:
    """Whoever has all row groups of a file partitions longer; the warning about row groups says why."""
    even, slow = phases(0.01, 0.03, 0.05), phases(0.04, 0.03, 0.05)
    folder = write_campaign(tmp_path, Script(worker=lambda each: (even if each.rank else slow)(each)))
    assert bottleneck(folder).what == "straggler"
    path = folder / "records.jsonl"
    lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    for line in lines:
        for worker in line["workers"] if line["kind"] == "memory" else ():
            worker["input_bytes"] *= 1 if worker["rank"] else 3
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    found = document(folder)
    assert found.bottleneck is not None
    assert found.bottleneck.what == "join"
    assert "straggler" not in {each.code for each in found.warnings}


def tables(left: list[int], right: list[int], **changes: Any) -> dict[str, Any]:
    """A plan of tables whose row groups hold these rows, one for each worker that has any."""
    sides = {
        side: {"path": f"data/{side}.parquet", "chunks": [[["f", 0]] * bool(n) for n in rows], "chunk_rows": rows}
        for side, rows in (("left", left), ("right", right))
    }
    return plan(len(left), workload={"name": "tables", **sides}, **changes)


@pytest.mark.parametrize(
    ("left", "right", "begins"),
    [
        ([9, 0], [9, 9], "one worker read all rows of left.parquet (1 row group); the longest phase, 55%"),
        (
            [9, 0],
            [0, 9],
            "one worker read all rows of left.parquet and right.parquet (1 row group each); the longest",
        ),
        ([9, 9, 0, 0], [9, 9, 9, 9], "only 2 of 4 workers read all rows of left.parquet (2 row groups); the longest"),
        ([9, 9], [9, 9], "the longest phase, 55%"),
    ],
)
def test_few_row_groups_are_named_as_the_cause(tmp_path: Path, left: list[int], right: list[int], begins: str) -> None:
    folder = write_campaign(
        tmp_path, Script(plan=tables(left, right), worker=phases(0.02, 0.06, 0.03), measure_link=False)
    )
    found = bottleneck(folder)
    assert found.what == "exchange"
    assert found.because.startswith(begins)


@pytest.mark.parametrize(("distribution", "named"), [("shuffle", False), ("broadcast", True)])
def test_few_row_groups_make_a_join_longer_only_where_rows_stay(tmp_path: Path, distribution: str, named: bool) -> None:
    few = tables([9, 0], [9, 9], distribution=distribution)
    found = bottleneck(write_campaign(tmp_path, Script(plan=few, worker=phases(0.02, 0.03, 0.06))))
    assert found.what == "join"
    assert ("row group" in found.because) is named


def test_an_overloaded_rank(tmp_path: Path) -> None:
    def heavy(worker: s.WorkerIteration) -> s.WorkerIteration:
        more = s.FrameCounts(left=3_500_000, right=1_500_000)
        return msgspec.structs.replace(worker, received_rows=more) if worker.rank == 2 else worker

    found = bottleneck(write_campaign(tmp_path, Script(plan=plan(4), worker=heavy)))
    assert (found.what, found.rank) == ("overload", 2)
    receives = "rank 2 (node0) receives 2.50 × as many rows as the other ranks on average"
    assert found.because == f"{receives}; that costs about 38% of the wall-clock time"
    # Exchange and join take 70 of 110 ms, of which an even share would need 1 / 2.5.
    assert found.share == pytest.approx(0.07 / 0.11 * 0.6)


def test_who_has_more_rows_in_the_result_only_exchanges_no_longer(tmp_path: Path) -> None:
    def heavy(worker: s.WorkerIteration) -> s.WorkerIteration:
        even = phases(0.03, 0.07, 0.01)(worker)
        return msgspec.structs.replace(even, result_rows=900_000) if worker.rank == 2 else even

    found = document(write_campaign(tmp_path, Script(plan=plan(4), worker=heavy)))
    assert "overloaded-rank" in {each.code for each in found.warnings}
    assert found.bottleneck is not None
    assert found.bottleneck.what == "link"


def test_an_exchange_that_is_mostly_waiting_makes_no_straggler(tmp_path: Path) -> None:
    """Rank 2 is done with its partition early, and ends its exchange 10 ms after the others, not 45."""
    late = phases(0.005, 0.075, 0.02, rank=2)
    found = bottleneck(
        write_campaign(tmp_path, Script(plan=plan(4), worker=lambda each: late(phases(0.04, 0.03, 0.02)(each))))
    )
    assert found.what != "straggler" or found.share == pytest.approx(0.01 / 0.11)


@pytest.mark.parametrize("pipeline", [False, True])
def test_a_limit_that_is_exceeded_limits_nothing(tmp_path: Path, pipeline: bool) -> None:
    def fast(worker: s.WorkerIteration) -> s.WorkerIteration:
        flight = s.TransferSeconds(left=0.01, right=0.01, union=0.0125)  # 12 MB: 960 MB/s, twice the limit
        return msgspec.structs.replace(phases(0.02, 0.06, 0.03)(worker), flight_seconds=flight)

    found = bottleneck(write_campaign(tmp_path, Script(plan=plan(pipeline=pipeline), worker=fast)))
    assert found.what == "exchange"
    assert found.because.endswith("the link limit is not known: exchanges ran 2.0 × as fast")


def test_without_a_link_limit_no_word_of_the_link_beside_the_exchange_either(tmp_path: Path) -> None:
    found = bottleneck(write_campaign(tmp_path, Script(plan=plan(pipeline=True), measure_link=False)))
    assert found.because.endswith("no link limit was measured")


def test_nothing_is_said_where_no_phases_were_measured(tmp_path: Path) -> None:
    dask: dict[str, Any] = plan(exchange="dask")
    assert document(write_campaign(tmp_path, Script(plan=dask))).bottleneck is None


def test_a_limit_that_is_exceeded_is_no_limit(tmp_path: Path) -> None:
    def fast(worker: s.WorkerIteration) -> s.WorkerIteration:
        flight = s.TransferSeconds(left=0.01, right=0.01, union=0.0125)  # 12 MB: 960 MB/s, twice the limit
        return msgspec.structs.replace(worker, flight_seconds=flight)

    assert not document(write_campaign(tmp_path / "usual")).warnings
    (warning,) = document(write_campaign(tmp_path / "fast", Script(worker=fast))).warnings
    assert warning.code == "limit-exceeded"
    assert warning.message == "exchanges ran at 200% of the link limit, so the measurement of the limit was disturbed"


def test_bandwidth_is_the_median_of_what_the_iterations_show(tmp_path: Path) -> None:
    """Workers whose medians come from different iterations: their harmonic mean would be the value of none."""

    def uneven(worker: s.WorkerIteration) -> s.WorkerIteration:
        place = round((worker.seconds - 0.1) * 100)
        seconds = ((0.01, 0.02, 0.04), (0.04, 0.01, 0.02))[worker.rank][min(place, 2)]  # 40: the warm-up
        return msgspec.structs.replace(
            worker, flight_seconds=s.TransferSeconds(left=seconds, right=seconds, union=seconds)
        )

    found = document(write_campaign(tmp_path, Script(worker=uneven)))
    # Means of 6 MB a frame: 600, 300, 150 MB/s of rank 0 and 150, 600, 300 of rank 1.
    of_iterations = sorted(2 / (1 / one + 1 / other) for one, other in ((600, 150), (300, 600), (150, 300)))
    assert found.bandwidth_bytes_per_second.harmonic_mean == pytest.approx(of_iterations[1] * 1e6)
    assert [each.mean for each in found.bandwidth_bytes_per_second.per_worker] == pytest.approx([300e6, 300e6])
