"""A worker's event of an iteration, as Dask carries it, and the line that the events of all workers make."""

from __future__ import annotations

import json

import msgspec
from msgspec.structs import replace

from merge_bench.campaign.recording import IterationAssembler
from merge_bench.merge.merger import WorkerMeasurement
from merge_bench.records.schema import FrameCounts, PairTraffic, PhaseSeconds, TransferSeconds, WorkerIteration
from merge_bench.records.writer import encode_record
from tests.helpers.strict_records import validate

WORKER = WorkerIteration(
    rank=0,
    seconds=2.0,
    phases_seconds=PhaseSeconds(partition=0.5, exchange=1.0, join=0.5),
    sent_bytes=FrameCounts(left=100, right=300),
    flight_seconds=TransferSeconds(left=0.25, right=0.5, union=0.7),
    received_rows=FrameCounts(left=7, right=9),
    result_rows=5,
    cpu_seconds=3.5,
)


def measured(worker: WorkerIteration, source: int, seconds: float) -> WorkerMeasurement:
    return WorkerMeasurement(worker, [PairTraffic(from_rank=source, to_rank=worker.rank, bytes=400, seconds=seconds)])


def event(part: WorkerMeasurement) -> dict[str, object]:
    """As a worker sends it, and as it arrives."""
    values = {"rank": part.worker.rank, "index": 4, "warmup": False, "measured": msgspec.to_builtins(part)}
    found: dict[str, object] = json.loads(json.dumps({"event": "iteration", **values}))
    return found


def test_the_last_event_completes_the_line() -> None:
    assembler = IterationAssembler(launch=3, workers=2)
    assembler.skew = 1e-4
    first, second = measured(WORKER, 1, 0.6), measured(replace(WORKER, rank=1, seconds=2.5), 0, 0.8)
    assert assembler.add_event(event(second)) is None
    line = assembler.add_event(event(first))
    assert line is not None
    assert validate(encode_record(line)) == line
    assert (line.launch, line.index, line.warmup, line.wall_seconds) == (3, 4, False, 2.5)
    assert line.barrier_skew_seconds == 1e-4
    assert line.workers == [first.worker, second.worker]
    assert line.pairs == [
        PairTraffic(from_rank=1, to_rank=0, bytes=400, seconds=0.6),
        PairTraffic(from_rank=0, to_rank=1, bytes=400, seconds=0.8),
    ]
    assert assembler.complete == 1
