"""Runs on a cluster that already runs: tables of all kinds on 1, 2 and 3 of its workers, with all engines; refusals.

And their timelines: what the workers noted, that it agrees with the records, and the trace that is made of it.
"""

from __future__ import annotations

import functools
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import merge_bench
from merge_bench.campaign import dask_baseline
from merge_bench.campaign.recording import KEPT
from merge_bench.cluster.dask_scheduler_functions import import_dask_dataframes
from merge_bench.cluster.worker_calls import WorkerStepRunner
from merge_bench.merge.exchange.ucx import GOODBYE_SECONDS
from merge_bench.records.reader import read_campaign
from merge_bench.records.schema import (
    IterationLine,
    LanesLine,
    LaunchLine,
    LinkLimitLine,
    TimelineLine,
    VerificationLine,
)
from merge_bench.records.timeline import Timeline, read_timeline, timeline_file_name
from merge_bench.view.export import exporters
from tests.helpers.clusters import dask_cluster, scheduler_alone
from tests.helpers.documents import summarized
from tests.helpers.runs import ENDLESS, SMALL, Finished, command, start
from tests.helpers.timelines import check_trace
from tests.runs.conftest import Tables

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def scheduler_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with dask_cluster(tmp_path_factory.mktemp("cluster"), 3, {"UCX_RNDV_THRESH": "16384"}) as file:
        yield file


def run_here(folder: Path, scheduler_file: Path, *options: str | Path, **more: Any) -> Finished:
    return command(folder, "--scheduler-file", scheduler_file, *options, **more)


PHASES = ["barrier", "partition", "exchange", "join", "barrier"]
WITHOUT_LINK = ("--link-rounds", "0")
MERGES = [("native", 3), ("polars", 1)]
MORE = [("pandas", 2), ("native", 1), ("native", 2), ("polars", 3)]
Merged = Callable[[str, int], Finished]


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory, scheduler_file: Path, tables: Tables) -> Merged:
    """The real tables by engine and number of workers, merged once each; on three with all rows compared."""

    @functools.cache
    def merge(engine: str, workers: int) -> Finished:
        return run_here(
            tmp_path_factory.mktemp("tables"),
            scheduler_file,
            *tables.options,
            "--engine",
            engine,
            "--workers",
            str(workers),
            "--verify",
            "full" if workers == 3 else "ends",
        )

    return merge


@pytest.mark.parametrize(
    ("engine", "workers"), [*MERGES, *(pytest.param(*each, marks=pytest.mark.soak) for each in MORE)]
)
def test_tables(merged: Merged, tables: Tables, engine: str, workers: int) -> None:
    finished = merged(engine, workers).check_ended(0)
    document = finished.document
    assert document["verified"] is True
    assert document["result_rows"] == tables.rows
    assert document["plan"]["rows_per_chunk"] is None
    (launch,) = finished.of(LaunchLine)
    assert len(launch.workers) == workers
    assert launch.rows == 12_000
    for line in finished.of(IterationLine):
        assert sum(worker.result_rows for worker in line.workers) == tables.rows
    assert (document["link"] is None) == (workers == 1)


def test_tables_give_the_same_rows_everywhere(merged: Merged) -> None:
    checks = {check.checksum for each in MERGES for check in merged(*each).of(VerificationLine)}
    assert len(checks) == 1


@pytest.mark.parametrize("shuffle", [pytest.param("tasks", marks=pytest.mark.soak), "p2p"])
def test_a_worker_can_begin_the_merge_of_dask(
    tmp_path: Path, scheduler_file: Path, shuffle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with cuDF, whose empty frames need a GPU; here with pandas."""
    begun: list[object] = []

    def submit_on_worker(merge: dask_baseline._DaskMerge) -> object:
        assert import_dask_dataframes in steps, "the worker's event loop would load them, and send no heartbeat"
        begun.append(merge)
        return merge._submit_merge_on_worker()

    steps: list[object] = []
    run_on_all_workers = WorkerStepRunner.run_on_all_workers

    def run_and_note_on_all_workers(runner: Any, step: Callable[..., Any], *values: Any, **more: Any) -> Any:
        steps.append(step)
        return run_on_all_workers(runner, step, *values, **more)

    monkeypatch.setattr(dask_baseline._DaskMerge, "_submit_merge", submit_on_worker)
    monkeypatch.setattr(WorkerStepRunner, "run_on_all_workers", run_and_note_on_all_workers)
    options = ("--exchange", "dask", "--shuffle", shuffle, "--chunk", "2e4", "--iterations", "1", "--verify", "every")
    finished = run_here(tmp_path, scheduler_file, *options, "--workers", "2").check_ended(0)
    assert finished.document["verified"] is True
    assert begun


@pytest.mark.parametrize("how", ["outer", *(pytest.param(how, marks=pytest.mark.soak) for how in ("left", "right"))])
def test_dask_keeps_rows_with_null_keys(tmp_path: Path, scheduler_file: Path, how: str) -> None:
    """Null and NaN keys, and values that a float cannot hold, in both tables; every row is compared with DuckDB's."""
    rng = np.random.default_rng(3)
    for side, rows in (("left", 900), ("right", 600)):
        keys = rng.integers(0, 500, rows)
        columns = {
            "id": pa.array(keys, mask=rng.random(rows) < 0.1),
            "part": np.where(rng.random(rows) < 0.1, np.nan, keys % 3),
            f"{side}_value": pa.array(rng.integers(2**60, 2**62, rows), mask=rng.random(rows) < 0.1),
            f"{side}_text": [f"text {key}" for key in keys],
        }
        pq.write_table(pa.table(columns), tmp_path / f"{side}.parquet", row_group_size=200)
    tables = ("--left", tmp_path / "left.parquet", "--right", tmp_path / "right.parquet", "--on", "id,part")
    options = ("--exchange", "dask", "--how", how, "--iterations", "1", "--verify", "full", "--workers", "2")
    document = run_here(tmp_path / "run", scheduler_file, *tables, *options).check_ended(0).document
    assert document["verified"] is True
    assert (document["plan"]["engine"], document["plan"]["shuffle"]) == ("pandas", "p2p")
    assert document["link"] is None
    assert document["wall_seconds"]["median"] > 0


@pytest.mark.parametrize("exchange", ["ucx", "dask"])
def test_auto_sends_a_small_table_whole(tmp_path: Path, scheduler_file: Path, exchange: str) -> None:
    """Left rows of which some have no key, and most no match, beside 40 right rows that one worker starts with."""
    left = pa.table({"id": [None if row % 7 == 0 else row for row in range(5000)], "a": range(5000)})
    right = pa.table({"id": range(0, 400, 10), "b": [f"text {row}" for row in range(40)]})
    for name, table in (("left", left), ("right", right)):
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=1000)
    tables = ("--left", tmp_path / "left.parquet", "--right", tmp_path / "right.parquet", "--on", "id")
    options = ("--how", "left", "--exchange", exchange, "--iterations", "2")
    finished = run_here(tmp_path, scheduler_file, *tables, *options, *WITHOUT_LINK, "--workers", "2")
    document = finished.check_ended(0).document
    assert (document["verified"], document["result_rows"]) == (True, 5000)
    assert (document["plan"]["distribution"], document["plan"]["broadcast_side"]) == ("broadcast", "right")
    assert "broadcast of the right table sends" in document["plan"]["distribution_reason"]
    if exchange == "ucx":
        sent = [worker.sent_bytes for worker in finished.of(IterationLine)[-1].workers]
        assert {each.left for each in sent} == {0}
        assert sorted(each.right > 0 for each in sent) == [False, True]


@pytest.mark.parametrize(
    ("question", "how", "least"), [pytest.param("3", "left", 10_000, marks=pytest.mark.soak), ("4", "inner", 8_000)]
)
def test_questions_of_db_benchmark_are_verified(
    tmp_path: Path, scheduler_file: Path, question: str, how: str, least: int
) -> None:
    """The one that keeps all left rows, and one whose keys are strings, nine tenths of which match."""
    options = ("--workload", "h2o", "--question", question, "--rows", "1e4", "--iterations", "1", "--warmup", "0")
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    finished = run_here(tmp_path, scheduler_file, *options, *WITHOUT_LINK, "--workers", "1", environ=cache)
    document = finished.check_ended(0).document
    assert document["verified"] is True
    assert (document["plan"]["workload"]["question"], document["plan"]["how"]) == (f"q{question}", how)
    assert least <= document["result_rows"] <= 10_000


def test_dask_merges_the_same_tables(tmp_path: Path, scheduler_file: Path, tables: Tables, merged: Merged) -> None:
    options = ("--exchange", "dask", "--shuffle", "tasks", "--workers", "2")
    finished = run_here(tmp_path, scheduler_file, *tables.options, *options).check_ended(0)
    assert (finished.document["verified"], finished.document["result_rows"]) == (True, tables.rows)
    ours, theirs = (f.of(VerificationLine)[-1].checksum for f in (finished, merged("polars", 1)))
    assert ours == theirs


def test_without_verification_every_number_is_marked(tmp_path: Path, scheduler_file: Path) -> None:
    finished = run_here(tmp_path, scheduler_file, *SMALL, "--verify", "off", *WITHOUT_LINK, "--workers", "1")
    finished.check_ended(0)
    document = finished.document
    assert document["verified"] is False
    assert finished.of(VerificationLine) == []
    assert "unverified" in {warning["code"] for warning in document["warnings"]}


def test_error_handling_and_short_messages_under_a_config_that_the_workers_have(
    tmp_path: Path, scheduler_file: Path
) -> None:
    """Peer error handling drops shared memory, and messages of 10,000 bytes carry the same rows."""
    config = tmp_path / "same.cfg"
    config.write_text("UCX_RNDV_THRESH=16384\n")
    options = ("--error-handling", "peer", "--message-size", "10_000", "--workers", "2", "--frac-match", "0.25")
    finished = run_here(tmp_path, scheduler_file, *SMALL, *options, *WITHOUT_LINK, "--config", config).check_ended(0)
    assert finished.document["verified"] is True
    assert finished.document["result_rows"] == 10_000
    for lane in finished.document["lanes"]:
        assert {transport.split("/")[0] for transport in lane["transports"]} <= {"tcp", "self"}


def test_skewed_keys_are_verified_and_name_the_overloaded_rank(tmp_path: Path, scheduler_file: Path) -> None:
    """Half of the matching rows are on one key. Three workers meet in every pair."""
    options = ("--skew", "zipf:1.2", "--frac-match", "0.9", "--verify", "every", *WITHOUT_LINK)
    finished = run_here(tmp_path, scheduler_file, *SMALL, *options).check_ended(0)
    document = finished.document
    assert document["verified"] is True
    assert document["result_rows"] == 54_000
    assert document["plan"]["workers"] == 3  # all of the cluster
    rows = {worker.rank: worker.result_rows for line in finished.of(IterationLine) for worker in line.workers}
    heaviest = max(rows, key=lambda rank: rows[rank])
    warning = next(w for w in document["warnings"] if w["code"] == "overloaded-rank")  # the worst comes first
    assert warning["message"].startswith(f"rank {heaviest} (")
    assert f"produces {rows[heaviest]:,} result rows" in warning["message"]
    pairs = {(one, other) for one in range(3) for other in range(3) if one != other}
    assert {(lane["from"], lane["to"]) for lane in document["lanes"]} == pairs
    assert all(lane["transports"] for lane in document["lanes"])
    for line in finished.of(IterationLine):
        assert {(pair.from_rank, pair.to_rank) for pair in line.pairs} == pairs


def test_one_worker_and_the_report_for_people(tmp_path: Path, scheduler_file: Path) -> None:
    finished = run_here(tmp_path, scheduler_file, *SMALL, "--workers", "1", json_output=False).check_ended(0)
    document = summarized(read_campaign(finished.folder))
    assert document["verified"] is True
    assert document["result_rows"] == 6_000
    assert document["link"] is None
    assert document["lanes"] == []
    assert document["bandwidth_bytes_per_second"]["harmonic_mean"] is None
    assert finished.of(LinkLimitLine, LanesLine) == []
    report = finished.output
    assert finished.errors == ""
    assert "\x1b" not in report
    for part in ("GiB/s", "Throughput", "Wall", str(finished.folder / "records.jsonl")):
        assert part.lower() in report.lower(), report
    assert "UNVERIFIED" not in report


def test_a_run_from_python_is_the_run_of_the_command(tmp_path: Path, scheduler_file: Path) -> None:
    result = merge_bench.run(chunk=1e4, workers=1, iterations=3, results=tmp_path, scheduler_file=scheduler_file)
    assert result.verified
    assert result.status == 0
    assert len(result.iterations()) == 3
    assert result.campaign.head.argv[1:3] == ["run", "--chunk"]


def test_transports_are_shown_without_a_merge(tmp_path: Path, scheduler_file: Path) -> None:
    done = run_here(tmp_path, scheduler_file, "--available", verb=("transports",), json_output=False)
    assert done.status == 0, done.shown()
    lines = done.output.splitlines()
    assert any(line.startswith("configured: UCX_TLS=all") for line in lines)
    assert any(re.match(r"selected: .*\(all 6 pairs, same host\)", line) for line in lines)
    assert "Transports available on each host" in lines


def test_config_that_the_workers_lack(tmp_path: Path, scheduler_file: Path) -> None:
    config = tmp_path / "other.cfg"
    config.write_text("UCX_RNDV_THRESH=16384\nexport UCX_RNDV_SCHEME=get_zcopy\n")
    finished = run_here(tmp_path, scheduler_file, *SMALL, "--config", config)
    assert finished.status == 2, finished.shown()
    (sentence,) = finished.errors.strip().splitlines()
    assert "UCX_RNDV_SCHEME=get_zcopy" in sentence
    assert "has no UCX_RNDV_SCHEME" in sentence
    assert finished.document["error"]["message"] in sentence


@pytest.mark.parametrize("pipeline", [pytest.param("off", marks=pytest.mark.soak), "on"])
def test_the_run_after_an_aborted_one(tmp_path: Path, scheduler_file: Path, pipeline: str) -> None:
    """The workers of the aborted run give up what was in flight together: none waits, and none keeps memory."""
    options = ("--scheduler-file", scheduler_file, "--workers", "3", "--pipeline", pipeline)
    running = start(tmp_path / "aborted", *options, *ENDLESS)
    try:
        running.until_merging()
        os.kill(running.process.pid, signal.SIGINT)
        assert running.finish().failure.code == "interrupted"
    finally:
        running.end()
    finished = run_here(tmp_path / "next", scheduler_file, *options[2:], *SMALL).check_ended(0)
    assert finished.document["verified"]
    assert not [each for each in finished.document["warnings"] if each["code"] == KEPT]
    (launch,) = finished.of(LaunchLine)
    assert launch.startup_seconds < GOODBYE_SECONDS


def test_more_than_one_launch(tmp_path: Path, scheduler_file: Path) -> None:
    run_here(tmp_path, scheduler_file, *SMALL, "--launches", "2").check_refused("--launches", "running cluster")


def test_a_gate_that_is_not_met_ends_the_run_before_anything_is_measured(tmp_path: Path, scheduler_file: Path) -> None:
    """With peer error handling nothing is left but TCP."""
    options = ("--error-handling", "peer", "--require-transport", "sm,cuda_ipc", "--workers", "2")
    stopped = run_here(tmp_path, scheduler_file, *SMALL, *options).check_ended(5)
    error = stopped.document["error"]
    assert error["code"] == stopped.failure.code == "gate-not-met"
    for part in ("sm,cuda_ipc", "rank 0 to rank 1 (same host)", "tcp/lo"):
        assert part in error["message"]
    assert stopped.of(IterationLine) == []
    assert {lane for pair in stopped.document["lanes"] for lane in pair["transports"]} == {"tcp/lo"}


def test_too_few_workers(tmp_path: Path, scheduler_file: Path) -> None:
    finished = run_here(tmp_path, scheduler_file, *SMALL, "--workers", "4", "--start-timeout", "1")
    assert finished.status == 2, finished.shown()
    waiting, sentence = finished.errors.strip().splitlines()
    assert waiting == f"merge_bench: waiting up to 1 s for 4 workers; the cluster at {scheduler_file} now has 3"
    assert "only 3 of 4 workers" in sentence
    assert finished.document["error"]["message"] in sentence


def test_no_workers(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    with scheduler_alone(file):
        run_here(tmp_path / "counted", file, *SMALL).check_refused("has no workers", "use --workers N")
        finished = run_here(tmp_path / "asked", file, *SMALL, "--workers", "2", "--start-timeout", "1")
        assert finished.status == 2, finished.shown()
        waiting, sentence = finished.errors.strip().splitlines()
        assert waiting.endswith(f"for 2 workers; the cluster at {file} now has none")
        assert "only 0 of 2 workers connected within 1 s" in sentence


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory, scheduler_file: Path) -> Finished:
    """Two workers, one phase after the other."""
    return run_here(tmp_path_factory.mktemp("apart"), scheduler_file, *SMALL, "--workers", "2", "--link-rounds", "1")


@pytest.fixture(scope="module")
def pipelined(tmp_path_factory: pytest.TempPathFactory, scheduler_file: Path) -> Finished:
    """Three workers, messages of at most 64 KiB, no warm-up."""
    return run_here(
        tmp_path_factory.mktemp("pipelined"),
        scheduler_file,
        *SMALL,
        "--pipeline",
        "on",
        "--warmup",
        "0",
        "--message-size",
        "64KiB",
        "--link-rounds",
        "1",
        "--timeline",
        "on",
    ).check_ended(0)


def timeline(finished: Finished) -> Timeline:
    found = read_timeline(finished.folder / timeline_file_name(0))
    assert found is not None
    return found


def trace(folder: Path) -> list[dict[str, Any]]:
    document = json.loads(exporters()["trace"].encode([read_campaign(folder)]))
    check_trace(document)
    events: list[dict[str, Any]] = document["traceEvents"]
    return events


def test_the_decision_and_its_reason_are_recorded(apart: Finished, pipelined: Finished) -> None:
    for finished, because in ((apart, "cheap"), (pipelined, "asked for")):
        (line,) = finished.of(TimelineLine)
        assert (line.recorded, line.because, line.file) == (True, because, timeline_file_name(0))
        assert line.iterations == [0, 1]
        assert line.notes > 0
        assert 0 < line.note_seconds < 1e-4
        found = timeline(finished)
        assert line.events == sum(
            worker.event_count for part in [*found.iterations, *found.rounds] for worker in part.workers
        )


def test_times_are_those_of_the_records(apart: Finished) -> None:
    (launch,) = read_campaign(apart.folder).launches
    for line, noted in zip(launch.timed_iterations, timeline(apart).iterations, strict=True):
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


@pytest.mark.parametrize("name", ["apart", "pipelined"])
def test_every_byte_is_in_a_batch_and_every_batch_has_both_ends(name: str, request: pytest.FixtureRequest) -> None:
    finished: Finished = request.getfixturevalue(name)
    (launch,) = read_campaign(finished.folder).launches
    for line, noted in zip(launch.timed_iterations, timeline(finished).iterations, strict=True):
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


@pytest.mark.parametrize("name", ["apart", "pipelined"])
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
