"""Timelines of real runs: what the workers noted, that it agrees with the records, and the trace that is made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from merge_bench.records.reader import read_campaign
from merge_bench.records.schema import TimelineLine
from merge_bench.records.timeline import Timeline, file_name, read_timeline
from merge_bench.view.export import exporters
from tests.helpers.runs import SMALL, Finished, run
from tests.helpers.timelines import check_trace

pytestmark = pytest.mark.cluster
PHASES = ["barrier", "partition", "exchange", "join", "barrier"]


@pytest.fixture(scope="module")
def pipelined(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Three workers, messages of at most 64 KiB, no warm-up."""
    return run(
        tmp_path_factory.mktemp("pipelined"), *SMALL, "--workers", "3", "--pipeline", "on", "--warmup", "0",
        "--message-size", "64KiB", "--link-rounds", "1", "--timeline", "on",
    ).check_ended(0)  # fmt: skip


def timeline(finished: Finished) -> Timeline:
    found = read_timeline(finished.folder / file_name(0))
    assert found is not None
    return found


def trace(folder: Path) -> list[dict[str, Any]]:
    document = json.loads(exporters()["trace"].encode([read_campaign(folder)]))
    check_trace(document)
    events: list[dict[str, Any]] = document["traceEvents"]
    return events


def test_the_decision_and_its_reason_are_recorded(two_workers: Finished, pipelined: Finished) -> None:
    for finished, because in ((two_workers, "cheap"), (pipelined, "asked for")):
        (line,) = finished.of(TimelineLine)
        assert (line.recorded, line.because, line.file) == (True, because, file_name(0))
        assert line.iterations == [0, 1]
        assert line.notes > 0
        assert 0 < line.note_seconds < 1e-4
        found = timeline(finished)
        assert line.events == sum(
            worker.events for part in [*found.iterations, *found.rounds] for worker in part.workers
        )


def test_times_are_those_of_the_records(two_workers: Finished) -> None:
    (launch,) = read_campaign(two_workers.folder).launches
    for line, noted in zip(launch.timed, timeline(two_workers).iterations, strict=True):
        for worker, found in zip(line.workers, noted.workers, strict=True):
            assert [span.name for span in found.spans] == PHASES
            assert [one.end for one in found.spans[:-1]] == [one.begin for one in found.spans[1:]]
            lengths = {span.name: span.end - span.begin for span in found.spans}
            phases = worker.phases_seconds
            assert phases is not None
            for name in ("partition", "exchange", "join"):
                assert lengths[name] == pytest.approx(getattr(phases, name))
            exchange = found.spans[2]
            assert all(exchange.begin <= each.begin < each.end <= exchange.end for each in found.batches)


@pytest.mark.parametrize("name", ["two_workers", "pipelined"])
def test_every_byte_is_in_a_batch_and_every_batch_has_both_ends(name: str, request: pytest.FixtureRequest) -> None:
    finished: Finished = request.getfixturevalue(name)
    (launch,) = read_campaign(finished.folder).launches
    for line, noted in zip(launch.timed, timeline(finished).iterations, strict=True):
        ends = {
            (batch.side, batch.piece, worker.rank, batch.peer, batch.received): batch.bytes
            for worker in noted.workers
            for batch in worker.batches
        }
        for (side, piece, sender, receiver, received), size in ends.items():
            assert ends[side, piece, receiver, sender, not received] == size
        for worker in line.workers:
            sent = worker.sent_bytes
            assert sent is not None
            for side in ("left", "right"):
                mine = [size for key, size in ends.items() if key[0] == side and key[2] == worker.rank and not key[4]]
                assert sum(mine) == getattr(sent, side)
    events = trace(finished.folder)
    batches = sum(len(worker.batches) for part in timeline(finished).iterations for worker in part.workers)
    flows = [event for event in events if event["ph"] in "sf"]
    assert len(flows) == batches > 0


@pytest.mark.parametrize("name", ["two_workers", "pipelined"])
def test_every_worker_and_phase_is_in_the_trace(name: str, request: pytest.FixtureRequest) -> None:
    finished: Finished = request.getfixturevalue(name)
    found = timeline(finished)
    events = trace(finished.folder)
    workers = len(found.head.clocks)
    tracks = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {f"rank {rank}{kind}" for rank in range(workers) for kind in ("", " sends", " receives")} <= tracks
    spans = sum(len(worker.spans) for part in [*found.iterations, *found.rounds] for worker in part.workers)
    wholes = workers * (len(found.iterations) + len(found.rounds))
    batches = sum(len(worker.batches) for part in found.iterations for worker in part.workers)
    assert len([event for event in events if event["ph"] == "X"]) == spans + wholes + batches
    assert found.rounds
    assert {"partition", "exchange", "join", "barrier", "link"} <= {event["name"] for event in events}
