"""`export --format trace` on timelines with chosen times: what is on which track, and how hosts are aligned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from merge_bench.analysis.timelines import align_timeline, iteration_nearest_to_median, read_aligned_timelines
from merge_bench.cli import cli
from merge_bench.records.reader import read_campaign
from merge_bench.records.schema import WarningLine
from merge_bench.records.timeline import WorkerTimeline, timeline_file_name
from merge_bench.records.writer import RECORDS, encode_record
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign
from tests.helpers.timelines import add_timeline, check_trace, timeline


def traced(folder: Path) -> dict[str, Any]:
    done = CliRunner().invoke(cli, ["export", str(folder), "--format", "trace"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    check_trace(found)
    return found


def refused(*results: Path) -> str:
    done = CliRunner().invoke(cli, ["export", *map(str, results), "--format", "trace"])
    assert done.exit_code == 2
    return done.stderr


@pytest.fixture
def two_hosts(tmp_path: Path) -> Path:
    """Two launches of four workers on two hosts whose clocks are an hour apart."""
    scripts = [Script(index=number, plan=plan(workers=4, launches=2)) for number in range(2)]
    folder = write_campaign(tmp_path, *scripts)
    for number in range(2):
        add_timeline(folder, timeline(["a", "a", "b", "b"], {"a": 5000.0, "b": 1400.0}, launch=number))
    return folder


def slices(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [event for event in document["traceEvents"] if event["ph"] == "X" and event["name"].startswith(name)]


def test_everything_noted_is_in_the_trace(two_hosts: Path) -> None:
    document = traced(two_hosts)
    counts = {name: len(slices(document, name)) for name in ("iteration", "partition", "exchange", "join", "barrier")}
    assert counts == {"iteration": 24, "partition": 24, "exchange": 24, "join": 24, "barrier": 48}
    assert len(slices(document, "link measurement")) == 8
    assert len(slices(document, "left 0 to rank")) == len(slices(document, "right 1 from rank")) == 2 * 3 * 12
    flows = [event for event in document["traceEvents"] if event["ph"] == "s"]
    assert len(flows) == 2 * 3 * 2 * 12
    named = {
        (event["name"], event["args"]["name"]) for event in document["traceEvents"] if event["name"].endswith("_name")
    }
    assert {("process_name", "a"), ("process_name", "b"), ("thread_name", "rank 3")} <= named
    assert {event["pid"] for event in slices(document, "iteration")} == {1, 2}
    names = ("iteration", "partition", "exchange", "join", "barrier", "link")
    assert len({event["tid"] for name in names for event in slices(document, name)}) == 4  # a track a worker
    assert "1000.0 us" in document["otherData"]["alignment"]


def test_hosts_are_aligned_at_the_opening_barrier_and_launches_lie_apart(two_hosts: Path) -> None:
    found = [(event["ts"], event["dur"]) for event in slices(traced(two_hosts), "partition")]
    begins = sorted({ts for ts, _ in found})
    expected = [5000 + 1e5 * index + 1e7 * launch for launch in range(2) for index in range(3)]
    assert begins == pytest.approx(expected, abs=0.5)  # a time since 1970 has so many digits
    assert {dur for _, dur in found} == {10_000.0}


def test_the_error_is_what_barriers_and_messages_leave_possible(tmp_path: Path) -> None:
    """The closing barrier takes 1 ms: that much earlier or later the other host may be, and no more."""
    (launch, *_) = read_campaign(write_campaign(tmp_path)).launches
    hosts, zeros = ["a", "b"], {"a": 7.0, "b": 9.0}
    steady = align_timeline(launch, timeline(hosts, zeros, late=5e-6))
    assert steady.offsets["b"] == pytest.approx(-2.0 - 5e-6)
    assert steady.error == pytest.approx(1e-3)
    assert align_timeline(launch, timeline(["a", "a"], zeros)).error == 0.0


def test_hosts_that_wake_late_are_aligned_no_further_than_the_error_says(tmp_path: Path) -> None:
    """In every iteration the other host leaves the opening barrier 20 ms late, as a busy one does."""
    (launch, *_) = read_campaign(write_campaign(tmp_path)).launches
    made = timeline(["a", "b"], {"a": 7.0, "b": 9.0})

    def woken(worker: WorkerTimeline) -> WorkerTimeline:
        first, partition, *others = worker.spans
        end = first.end + 0.02 * worker.rank
        return replace(worker, spans=[replace(first, end=end), replace(partition, begin=end, end=end), *others])

    iterations = [replace(each, workers=[*map(woken, each.workers)]) for each in made.iterations]
    found = align_timeline(launch, replace(made, iterations=iterations))
    assert abs(found.offsets["b"] + 2.0) <= found.error
    assert found.error == pytest.approx(2e-3)


def test_warnings_are_instants_inside_the_trace(two_hosts: Path) -> None:
    line = WarningLine(launch=1, code="straggler", message="rank 1 is slow", remedy=None, time=1.7e9 + 10.05)
    records = two_hosts / RECORDS
    lines = records.read_bytes().splitlines()
    records.write_bytes(b"\n".join([*lines[:-2], encode_record(line), *lines[-2:]]) + b"\n")
    (found,) = [event for event in traced(two_hosts)["traceEvents"] if event["ph"] == "i"]
    assert (found["name"], found["s"], found["args"]["message"]) == ("straggler", "g", "rank 1 is slow")
    assert found["ts"] == pytest.approx(10.05e6 + 5000, abs=1)


def test_what_has_no_timeline_is_refused(two_hosts: Path, tmp_path: Path) -> None:
    assert "one RESULT" in refused(two_hosts, write_campaign(tmp_path))
    assert "contains no timeline" in refused(write_campaign(tmp_path))
    (two_hosts / timeline_file_name(0)).unlink()
    assert len(slices(traced(two_hosts), "iteration")) == 12  # of the other launch
    (two_hosts / timeline_file_name(1)).write_bytes(b'{"kind":"timeline"')
    assert timeline_file_name(1) in refused(two_hosts)


def test_the_drawn_iteration_is_the_recorded_one_nearest_to_the_median(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, Script(walls=(0.10, 0.50, 0.13, 0.12, 0.11), plan=plan(iterations=5)))
    add_timeline(folder, timeline(["node0", "node0"], {"node0": 1.0}, iterations=3))
    campaign = read_campaign(folder)
    found = iteration_nearest_to_median(campaign, campaign.runs[0])
    assert found is not None
    assert found[1].index == 2  # the median is iteration 3, which has no timeline; 2 is nearer to it than 0
    assert len(list(read_aligned_timelines(campaign))) == 1
