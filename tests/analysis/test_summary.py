"""The document, against numbers worked out from what `synthetic_campaigns` writes."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merge_bench.host.description import Hardware
from merge_bench.records import schema as s
from tests.analysis.summaries import document
from tests.helpers.synthetic_campaigns import Script, launches, plan, write_campaign


def test_the_document_of_one_run(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path)
    found = document(folder)
    assert list(found) == [
        "document_version",
        "schema",
        "run_id",
        "records",
        "config",
        "plan",
        "verified",
        "result_rows",
        "wall_seconds",
        "throughput_bytes_per_second",
        "bandwidth_bytes_per_second",
        "phases_seconds",
        "bottleneck",
        "link",
        "memory_rate",
        "lanes",
        "requested_transports",
        "protocols",
        "traffic",
        "peak_memory_bytes",
        "imported",
        "warnings",
        "error",
        "measured",
        "verification",
        "energy",
    ]
    assert found["schema"] == 1
    assert found["run_id"] == folder.name
    assert found["records"] == str(folder / "records.jsonl")
    assert found["config"] == {"name": "optimized", "path": "configs/optimized.cfg", "variables": {"UCX_TLS": "sm,tcp"}}
    assert found["plan"] == plan()
    assert found["verified"] is True
    assert found["result_rows"] == 600_000
    assert found["warnings"] == []
    assert found["error"] is None


def test_wall_and_throughput(tmp_path: Path) -> None:
    found = document(write_campaign(tmp_path))
    # Walls 0.10, 0.11, 0.12 s; the warm-up's 0.5 s does not count. Data: 2 workers × 2 frames × 16 MB = 64 MB.
    few = {"ci95": None, "ci95_ranks": None, "ci95_coverage": None}
    assert found["wall_seconds"] == {
        "median": 0.11,
        "quartiles": pytest.approx([0.105, 0.115]),
        "min": 0.10,
        "max": 0.12,
        **few,
    }
    # 640, 581.8 and 533.3 MB/s; quartiles half-way between neighbours.
    assert found["throughput_bytes_per_second"] == {
        "median": pytest.approx(64e6 / 0.11),
        "quartiles": pytest.approx([(64e6 / 0.12 + 64e6 / 0.11) / 2, (64e6 / 0.11 + 64e6 / 0.10) / 2]),
        "min": pytest.approx(64e6 / 0.12),
        "max": pytest.approx(64e6 / 0.10),
        **few,
    }


def test_what_was_measured_and_how_it_was_verified(tmp_path: Path) -> None:
    found = document(write_campaign(tmp_path))
    assert found["measured"] == {
        "launches": 1,
        "planned_launches": 1,
        "iterations": 3,
        "warmup": [1],
        "data_bytes": 64_000_000,
        "protocol": "tcp",
    }
    checked = {name: found["verification"][name] for name in ("state", "checks", "rows", "message", "folders")}
    assert checked == {"state": "verified", "checks": 2, "rows": 600_000, "message": None, "folders": []}


def test_the_interval_of_six_launches_has_its_ranks_and_its_confidence(tmp_path: Path) -> None:
    wall = document(write_campaign(tmp_path, *launches(6)))["wall_seconds"]
    assert (wall["ci95_ranks"], wall["ci95"]) == ([1, 6], pytest.approx([0.11, 0.16]))
    assert wall["ci95_coverage"] == pytest.approx(1 - 2 / 2**6)


def test_bandwidth_per_worker(tmp_path: Path) -> None:
    def slow_second(worker: s.WorkerIteration) -> s.WorkerIteration:
        flight = s.TransferSeconds(left=0.04, right=0.04, union=0.06)
        return msgspec.structs.replace(worker, flight_seconds=flight) if worker.rank == 1 else worker

    found = document(write_campaign(tmp_path, Script(worker=slow_second)))["bandwidth_bytes_per_second"]
    # 8 MB / 20 ms = 400 MB/s left, 4 MB / 20 ms = 200 MB/s right, mean 300; rank 1 takes twice as long: 150 MB/s.
    assert found["per_worker"] == [
        {"rank": 0, "host": "node0", "left": 4e8, "right": 2e8, "mean": 3e8},
        {"rank": 1, "host": "node0", "left": 2e8, "right": 1e8, "mean": 1.5e8},
    ]
    assert (found["min"], found["max"]) == (1.5e8, 3e8)
    assert found["harmonic_mean"] == pytest.approx(2e8)  # 2 / (1/300 + 1/150) MB/s


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(1e-3, 1.0), min_size=24, max_size=24),
    st.integers(2, 4),
    st.lists(st.sampled_from((0, 4_000_000, 8_000_000)), min_size=8, max_size=8),
)
def test_the_bandwidth_of_all_workers_lies_between_the_slowest_and_the_fastest(
    seconds: list[float], workers: int, sent: list[int]
) -> None:
    """Medians of figures that are in order in every iteration are in order, too."""
    times, number = itertools.cycle(seconds), itertools.count()

    def uneven(worker: s.WorkerIteration) -> s.WorkerIteration:
        at = next(number)
        flight = s.TransferSeconds(left=next(times), right=next(times), union=1.0)
        frames = s.FrameCounts(left=sent[at % 8], right=sent[(at + 3) % 8])
        return msgspec.structs.replace(worker, flight_seconds=flight, sent_bytes=frames)

    with tempfile.TemporaryDirectory() as folder:
        two = launches(2, worker=uneven, plan=plan(workers))
        found = document(write_campaign(Path(folder), *two))["bandwidth_bytes_per_second"]
    low, mean, high = found["min"], found["harmonic_mean"], found["max"]
    assert (low is None) == (mean is None) == (high is None)
    if low is not None:
        assert low <= mean * (1 + 1e-12)
        assert mean <= high * (1 + 1e-12)


def test_the_bandwidth_of_a_worker_is_the_median_of_its_iterations_means(tmp_path: Path) -> None:
    times = itertools.cycle([(0.01, 0.01)] * 2 + [(0.01, 0.04)] * 2 + [(0.04, 0.01)] * 2 + [(0.04, 0.04)] * 2)

    def uneven(worker: s.WorkerIteration) -> s.WorkerIteration:
        left, right = next(times)
        return msgspec.structs.replace(
            worker, flight_seconds=s.TransferSeconds(left=left, right=right, union=left + right)
        )

    found = document(write_campaign(tmp_path, Script(worker=uneven)))["bandwidth_bytes_per_second"]
    # Left 800, 200, 200 and right 100, 400, 100 MB/s after the warm-up: means of 450, 300 and 150.
    assert {(one["left"], one["right"], one["mean"]) for one in found["per_worker"]} == {(2e8, 1e8, 3e8)}
    assert (found["min"], found["harmonic_mean"], found["max"]) == (3e8, pytest.approx(3e8), 3e8)


def test_phases_are_those_of_the_slowest_worker(tmp_path: Path) -> None:
    def slow_join(worker: s.WorkerIteration) -> s.WorkerIteration:
        phases = s.PhaseSeconds(partition=0.02, exchange=0.03, join=0.07)
        return msgspec.structs.replace(worker, phases_seconds=phases) if worker.rank == 1 else worker

    found = document(write_campaign(tmp_path, Script(worker=slow_join)))
    assert found["phases_seconds"] == {"partition": 0.02, "exchange": 0.03, "join": 0.07}
    (warning,) = found["warnings"]
    assert warning["code"] == "straggler"
    assert (
        "rank 1 (node0) is slow in join: it takes 70.00 ms, the other ranks 40.00 ms (factor 1.75)"
        in warning["message"]
    )
    assert warning["remedy"]


def test_link_lanes_and_memory(tmp_path: Path) -> None:
    found = document(write_campaign(tmp_path))
    # A worker sends 12 MB: in 25 ms over the bare link (480 MB/s), in 30 ms in the merge (400 MB/s).
    assert found["link"] == {
        "limit_bytes_per_second": pytest.approx(480e6),
        "fraction": pytest.approx(400 / 480),
        "check_bytes_per_second": None,
        "not_checked": "not checked against ucx_perftest; use --check-link",
        "wall_ratio": pytest.approx(0.110 / 0.025),
        "transports": ["sysv/memory", "tcp/lo"],
        "bytes_per_second": pytest.approx(400e6),
        "silent_ranks": [],
        "disturbed": None,
    }
    assert found["lanes"] == [
        {"from": 0, "to": 1, "placement": "same host", "transports": ["sysv/memory", "tcp/lo"]},
        {"from": 1, "to": 0, "placement": "same host", "transports": ["sysv/memory", "tcp/lo"]},
    ]
    assert found["requested_transports"] == {"UCX_TLS": "sm,tcp"}
    (way,) = found["protocols"]
    assert way["pairs"] == [[0, 1], [1, 0]]
    assert way["ranges"][1] == {
        "memory": "host",
        "first_bytes": 8192,
        "last_bytes": None,
        "protocol": "rendezvous",
        "transports": "tcp/lo",
        "estimated": True,
    }
    assert found["traffic"] == [
        {
            "host": "node0",
            "during": "iterations",
            "sent": 72_000_000,
            "devices": {"lo": {"sent": 73 << 20, "received": 73 << 20}},
        }
    ]
    memory = found["peak_memory_bytes"]
    assert memory["max"] == 200_000_001
    assert memory["per_worker"][1] == {
        "rank": 1,
        "host": "node0",
        "peak": 200_000_001,
        "above_imports": 96_000_000,
        "device_peak": None,
        "device_above_imports": None,
        "input": 32_000_000,
    }


def test_the_median_is_over_launches_and_six_give_an_interval(tmp_path: Path) -> None:
    found = document(write_campaign(tmp_path, *launches(6)))
    # Launch k has walls 0.10 + 0.01 k, 0.11 + 0.01 k, 0.12 + 0.01 k: medians 0.11, 0.12, ... 0.16.
    wall = found["wall_seconds"]
    assert wall["median"] == pytest.approx(0.135)
    assert wall["ci95"] == pytest.approx([0.11, 0.16])
    assert (wall["min"], wall["max"]) == pytest.approx((0.10, 0.17))
    assert found["throughput_bytes_per_second"]["ci95"] == pytest.approx([64e6 / 0.16, 64e6 / 0.11])
    assert found["verified"] is True


def test_five_launches_give_none(tmp_path: Path) -> None:
    found = document(write_campaign(tmp_path, *launches(5)))
    assert found["wall_seconds"]["median"] == pytest.approx(0.13)
    assert found["wall_seconds"]["ci95"] is None


def test_a_launch_is_one_sample_however_many_iterations_it_has(tmp_path: Path) -> None:
    long = Script(plan=plan(launches=3, iterations=9), walls=(0.9,) * 9)
    short = [Script(index=k, plan=plan(launches=3, iterations=9), walls=(0.1,) * 8 + (0.1,)) for k in (1, 2)]
    assert document(write_campaign(tmp_path, long, *short))["wall_seconds"]["median"] == pytest.approx(0.1)


def test_what_dask_does_not_tell_is_null(tmp_path: Path) -> None:
    found = document(write_campaign(tmp_path, Script(plan=plan(exchange="dask"))))
    assert found["wall_seconds"]["median"] == 0.11
    assert found["bandwidth_bytes_per_second"]["harmonic_mean"] is None
    assert found["bandwidth_bytes_per_second"]["per_worker"] == [
        {"rank": rank, "host": "node0", "left": None, "right": None, "mean": None} for rank in (0, 1)
    ]
    assert found["phases_seconds"] == {"partition": None, "exchange": None, "join": None}
    assert found["link"] is None
    assert found["lanes"] == []
    assert found["result_rows"] == 600_000  # as the verification counted
    assert found["verified"] is True


def test_one_worker_has_no_bandwidth_and_no_link(tmp_path: Path) -> None:
    found = document(write_campaign(tmp_path, Script(plan=plan(1))))
    assert found["bandwidth_bytes_per_second"]["harmonic_mean"] is None
    assert found["link"] is None
    assert found["phases_seconds"]["join"] == 0.04
    assert found["throughput_bytes_per_second"]["median"] == pytest.approx(32e6 / 0.11)


@pytest.mark.parametrize(
    ("walls", "join", "bottleneck"),
    [((0.027,) * 3, 0.004, "link"), ((0.1,) * 3, 0.075, "cores"), ((0.1,) * 3, 0.04, "exchange")],
)
def test_what_limits_a_merge_whose_phases_overlap(
    tmp_path: Path, walls: tuple[float, ...], join: float, bottleneck: str
) -> None:
    """The bytes of a worker need 25 ms on the link, and its partition takes 20 ms."""

    def pipelined(worker: s.WorkerIteration) -> s.WorkerIteration:
        phases = s.PhaseSeconds(partition=0.02, exchange=walls[0], join=join)
        return msgspec.structs.replace(worker, phases_seconds=phases, join_overlap_seconds=0.003)

    script = Script(plan={**plan(), "pipeline": True}, walls=walls, worker=pipelined)
    found = document(write_campaign(tmp_path, script))
    assert (found["link"]["wall_ratio"], found["bottleneck"]["what"]) == (pytest.approx(walls[0] / 0.025), bottleneck)


@pytest.mark.parametrize(
    ("pipeline", "cpu", "bottleneck"), [(True, 0.046, "cores"), (True, 0.04, "exchange"), (False, 0.05, "link")]
)
def test_cores_that_move_bytes_all_the_time_limit_a_merge_whose_phases_overlap(
    tmp_path: Path, pipeline: bool, cpu: float, bottleneck: str
) -> None:
    """Both workers share two cores for 50 ms; with phases apart UCX polls, and the same share says nothing."""
    script = Script(
        plan={**plan(), "pipeline": pipeline},
        walls=(0.05,) * 3,
        worker=lambda worker: msgspec.structs.replace(
            worker, phases_seconds=s.PhaseSeconds(partition=0.01, exchange=0.05, join=0.02), cpu_seconds=cpu
        ),
        machine=lambda worker: msgspec.structs.replace(worker, hardware=Hardware(affinity="0-1")),
    )
    assert document(write_campaign(tmp_path, script))["bottleneck"]["what"] == bottleneck


def test_64_workers(tmp_path: Path) -> None:
    found = document(write_campaign(tmp_path, Script(plan=plan(64))))
    # 63 peers: 63 · 8 MB / 20 ms = 25.2 GB/s left, 12.6 right, mean 18.9 GB/s.
    assert found["bandwidth_bytes_per_second"]["harmonic_mean"] == pytest.approx(18.9e9)
    assert len(found["bandwidth_bytes_per_second"]["per_worker"]) == 64
    assert found["bandwidth_bytes_per_second"]["per_worker"][63]["host"] == "node15"
    assert len(found["lanes"]) == 64 * 63
    assert found["link"]["fraction"] == pytest.approx(25 / 30)
    assert found["result_rows"] == 64 * 300_000


def test_a_sweep_has_a_document_for_every_run(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, Script(), Script(index=1, config="tuned", walls=(0.05, 0.06, 0.07)))
    found = document(folder)
    assert list(found) == ["document_version", "schema", "records", "runs"]
    assert [run["config"]["name"] for run in found["runs"]] == ["optimized", "tuned"]
    assert [run["wall_seconds"]["median"] for run in found["runs"]] == [0.11, 0.06]
    assert [run["run_id"] for run in found["runs"]] == [f"{folder.name}/0", f"{folder.name}/1"]


@pytest.mark.parametrize("breaks", [lambda p: p.pop("launches"), lambda p: p.update(launches=None, verify=None)])
def test_a_plan_that_lacks_a_field_is_still_summed_up(
    tmp_path: Path, breaks: Callable[[dict[str, Any]], object]
) -> None:
    folder = write_campaign(tmp_path)
    path = folder / "records.jsonl"
    lines = path.read_text().splitlines()
    head = json.loads(lines[0])
    breaks(head["plans"][0])
    path.write_text("\n".join([json.dumps(head), *lines[1:]]) + "\n")
    assert document(folder)["wall_seconds"]["median"] == 0.11
