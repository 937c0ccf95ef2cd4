"""Whole runs on clusters of their own: what they print, what they record, and that nothing stays."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from merge_bench.records.reader import read_campaign
from merge_bench.records.schema import (
    CampaignLine,
    IterationLine,
    LaunchEndLine,
    LaunchLine,
    LinkLimitLine,
    MemoryLine,
    VerificationLine,
    WarningLine,
)
from tests.helpers.documents import summarized
from tests.helpers.runs import SMALL, Finished, command

pytestmark = pytest.mark.cluster

DOCUMENT = {
    "schema": (),
    "run_id": (),
    "records": (),
    "config": ("name", "path", "variables"),
    "plan": ("rows_per_chunk", "workers", "hosts", "iterations", "warmup", "launches", "engine", "exchange", "seed"),
    "verified": (),
    "result_rows": (),
    "wall_seconds": ("median", "ci95", "min", "max"),
    "throughput_bytes_per_second": ("median", "ci95"),
    "bandwidth_bytes_per_second": ("harmonic_mean", "min", "max", "per_worker"),
    "phases_seconds": ("partition", "exchange", "join"),
    "link": ("limit_bytes_per_second", "fraction", "transports"),
    "lanes": (),
    "requested_transports": (),
    "protocols": (),
    "traffic": (),
    "peak_memory_bytes": ("max", "per_worker"),
    "warnings": (),
    "error": (),
}


def test_two_workers(two_workers: Finished) -> None:
    two_workers.check_ended(0)
    document = two_workers.document
    assert document["verified"] is True
    assert document["error"] is None
    assert document["result_rows"] == 10_000  # round(0.25 × 40,000), the fraction from the config
    assert two_workers.errors == ""
    logs = [log.read_text() for log in (two_workers.folder / "logs").glob("launch-*.log")]
    assert len(logs) == 3
    assert not any("out-of-band" in log for log in logs)  # the watch's questions would fill them


def test_document_has_every_key(two_workers: Finished) -> None:
    document = two_workers.document
    assert set(document) >= set(DOCUMENT)
    for key, inner in DOCUMENT.items():
        assert set(inner) <= set(document[key] if inner else ()), key
    assert document["plan"]["hosts"]
    for worker in document["bandwidth_bytes_per_second"]["per_worker"]:
        assert set(worker) == {"rank", "host", "left", "right", "mean"}
    assert [(lane["from"], lane["to"]) for lane in document["lanes"]] == [(0, 1), (1, 0)]
    for warning in document["warnings"]:
        assert set(warning) == {"code", "message", "remedy"}


def test_document_follows_from_the_records(two_workers: Finished) -> None:
    document = two_workers.document
    assert Path(document["records"]) == two_workers.folder / "records.jsonl"
    assert summarized(read_campaign(two_workers.folder)) == document
    (launch,) = two_workers.of(LaunchLine)
    timed = [line for line in two_workers.of(IterationLine) if not line.warmup]
    walls = [max(worker.seconds for worker in line.workers) for line in timed]
    assert [line.wall_seconds for line in timed] == walls
    assert (document["wall_seconds"]["min"], document["wall_seconds"]["max"]) == (min(walls), max(walls))
    assert launch.data_bytes == 2 * 40_000 * 16
    rates = sorted(launch.data_bytes / wall for wall in walls)
    assert document["throughput_bytes_per_second"]["median"] == pytest.approx(sum(rates) / 2)


def test_workers_ran_under_the_config(two_workers: Finished) -> None:
    (launch,) = two_workers.of(LaunchLine)
    for worker in launch.workers:
        assert worker.environment["UCX_RNDV_THRESH"] == "16384"
        assert worker.environment["UCX_NET_DEVICES"] == "lo"
        assert "16K" in worker.ucx.config["UCX_RNDV_THRESH"]
    assert two_workers.document["config"]["variables"]["UCX_TLS"] == "sysv,cma"
    transports = {t for lane in two_workers.document["lanes"] for t in lane["transports"]}
    assert {t.split("/")[0] for t in transports} <= {"sysv", "cma", "self"}
    assert "sysv/memory" in transports
    assert [worker.rank for worker in launch.workers] == [0, 1]
    assert len({worker.pid for worker in launch.workers}) == 2


def test_iterations_are_accounted_for(two_workers: Finished) -> None:
    lines = two_workers.of(IterationLine)
    assert [(line.warmup, line.index) for line in lines] == [(True, 0), (False, 0), (False, 1)]
    for line in lines:
        sent = {worker.rank: worker.sent_bytes.left + worker.sent_bytes.right for worker in line.workers}
        assert {pair.from_rank: pair.bytes for pair in line.pairs} == sent
        assert all((pair.from_rank, pair.to_rank) in ((0, 1), (1, 0)) for pair in line.pairs)
        # About half of the 1,280,000 bytes cross, plus what alignment adds.
        assert 560_000 < sum(sent.values()) < 720_000
        assert sum(worker.received_rows.left for worker in line.workers) == 40_000
        assert sum(worker.received_rows.right for worker in line.workers) == 40_000
        assert sum(worker.result_rows for worker in line.workers) == 10_000
        for worker in line.workers:
            phases = worker.phases_seconds
            assert worker.seconds == pytest.approx(phases.partition + phases.exchange + phases.join)
            assert 0 < worker.flight_seconds.union <= phases.exchange
    checks = two_workers.of(VerificationLine)
    assert [(check.after, check.ok, check.rows) for check in checks] == [
        (None, True, 10_000),
        (0, True, 10_000),
        (1, True, 10_000),
    ]
    assert len({check.checksum for check in checks}) == 1
    (link,) = two_workers.of(LinkLimitLine)
    assert len(link.rounds) >= 5
    assert link.bytes == [worker.sent_bytes.left + worker.sent_bytes.right for worker in lines[-1].workers]
    (memory,) = two_workers.of(MemoryLine)
    for worker in memory.workers:
        assert worker.input_bytes == 640_000
        assert worker.peak_bytes > worker.peak_above_imports_bytes > worker.input_bytes
        assert worker.copied_bytes > 60e6  # small chunks are copied again and again
        assert len(worker.copy_seconds) == 3
    assert two_workers.document["memory_rate"]["copy_bytes_per_second"] > 1e8
    assert 0 < two_workers.document["memory_rate"]["partition_fraction"] < 2


@pytest.mark.soak  # several launches: test_campaigns.py; settings: test_transports.py; TLS is the default
def test_two_launches_with_tls_and_pandas(two_launches: Finished) -> None:
    two_launches.check_ended(0)
    document = two_launches.document
    assert document["verified"] is True
    assert document["result_rows"] == 6_000
    launches = two_launches.of(LaunchLine)
    assert [launch.launch for launch in launches] == [0, 1]
    assert all(launch.cluster.scheduler.startswith("tls://127.0.0.1:") for launch in launches)
    assert all(launch.data_bytes == 2 * 20_000 * 8 * 4 for launch in launches)
    pids = [{worker.pid for worker in launch.workers} for launch in launches]
    assert not pids[0] & pids[1]
    assert len(two_launches.of(LaunchEndLine)) == 2
    assert document["wall_seconds"]["ci95"] is None  # two launches are too few
    assert len(document["wall_seconds"]["quartiles"]) == 2


@pytest.mark.soak  # as in test_transports.py
def test_a_setting_that_lost_is_told_with_what_was_found(two_launches: Finished) -> None:
    lines = [line for line in two_launches.of(WarningLine) if line.code == "environment-differs"]
    told = [each for each in two_launches.document["warnings"] if each["code"] == "environment-differs"]
    assert [line.launch for line in lines] == [0, 1]
    for message in (*(line.message for line in lines), *(each["message"] for each in told)):
        assert message == "UCX_MAX_RNDV_LANES=2 was requested, but rank 0 has UCX_MAX_RNDV_RAILS=1"
    assert told
    assert all(line.remedy for line in lines)


def test_campaign_line_says_what_was_asked(two_workers: Finished) -> None:
    (campaign,) = two_workers.of(CampaignLine)
    assert campaign.campaign_id == two_workers.folder.name
    assert "--verify" in campaign.argv
    assert campaign.seed == 3
    assert campaign.plans[0]["workload"]["name"] == "synthetic"
    assert campaign.plans[0]["require_transport"] == ["sysv"]  # a gate that every pair met
    assert "mine" in two_workers.folder.name


def test_dry_run_starts_nothing(tmp_path: Path) -> None:
    finished = command(tmp_path, *SMALL, "--workers", "3", "--dry-run", json_output=False)
    assert finished.status == 0
    finished.check_clean()
    assert not finished.results.exists()
    commands = [line for line in finished.output.splitlines() if not line.startswith("#")]
    assert len(commands) == 4
    assert all(f"{sys.executable} -P -m merge_bench.cluster.start_dask " in command for command in commands)
    assert sum(" dask_scheduler " in command for command in commands) == 1
    for number in range(3):
        assert sum(f"--name worker-{number}" in command for command in commands) == 1
    assert all("--host 127.0.0.1" in command for command in commands)
    assert "UCX_NET_DEVICES=lo" in commands[0]
    assert finished.output.count("with the environment of scheduler") == 3


@pytest.mark.parametrize("name", ["two_workers", pytest.param("two_launches", marks=pytest.mark.soak)])
def test_nothing_is_left(name: str, request: pytest.FixtureRequest) -> None:
    finished = request.getfixturevalue(name)
    workers = {worker.pid for launch in finished.of(LaunchLine) for worker in launch.workers}
    assert workers
    assert workers <= finished.pids  # they were seen, so the marker by which left-overs are sought works
    finished.check_clean()


def test_the_questions_of_db_benchmark_are_one_campaign(tmp_path: Path) -> None:
    """Which rows they have is tested on a cluster that runs already."""
    options = ("--workload", "h2o", "--rows", "1e3", "--workers", "1", "--dry-run")
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    shown = command(tmp_path, *options, environ=cache, json_output=False).output
    assert re.findall(r"^## .*h2o (q\d), 1 launches$", shown, re.M) == ["q1", "q2", "q3", "q4", "q5"]
