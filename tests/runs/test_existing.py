"""Runs on a cluster that already runs: tables of all kinds on 1, 2 and 3 of its workers, with all engines; refusals."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import distributed  # noqa: F401  (it takes long, and not from the seconds in which a scheduler must answer)
import pytest

import merge_bench
from merge_bench.records.reader import read_campaign
from merge_bench.records.schema import IterationLine, LanesLine, LaunchLine, LinkLine, VerificationLine
from tests.helpers.clusters import dask_cluster
from tests.helpers.documents import summarized
from tests.helpers.runs import SMALL, Finished, command
from tests.runs.conftest import Tables

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def scheduler_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with dask_cluster(tmp_path_factory.mktemp("cluster"), 3, {"UCX_RNDV_THRESH": "16384"}) as file:
        yield file


def run_here(folder: Path, scheduler_file: Path, *options: str | Path, **more: Any) -> Finished:
    return command(folder, "--scheduler-file", scheduler_file, *options, **more)


MERGES = [("native", 3), ("polars", 1), ("pandas", 2)]
MORE = [("native", 1), ("native", 2), ("polars", 3)]
Merged = Callable[[str, int], Finished]


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory, scheduler_file: Path, tables: Tables) -> Merged:
    """The real tables by engine and number of workers, merged once each; on three with all rows compared."""

    @functools.cache
    def merge(engine: str, workers: int) -> Finished:
        return run_here(
            tmp_path_factory.mktemp("tables"), scheduler_file, *tables.options, "--engine", engine,
            "--workers", str(workers), "--verify", "full" if workers == 3 else "ends",
        )  # fmt: skip

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


def test_dask_merges_the_same_tables(tmp_path: Path, scheduler_file: Path, tables: Tables, merged: Merged) -> None:
    finished = run_here(tmp_path, scheduler_file, *tables.options, "--exchange", "dask", "--shuffle", "tasks")
    finished.check_ended(0)
    assert (finished.document["verified"], finished.document["result_rows"]) == (True, tables.rows)
    ours, theirs = (f.of(VerificationLine)[-1].checksum for f in (finished, merged("polars", 1)))
    assert ours == theirs


def test_without_verification_every_number_is_marked(tmp_path: Path, scheduler_file: Path) -> None:
    finished = run_here(tmp_path, scheduler_file, *SMALL, "--verify", "off", "--link-rounds", "0")
    finished.check_ended(0)
    document = finished.document
    assert document["verified"] is False
    assert finished.of(VerificationLine) == []
    assert "unverified" in {warning["code"] for warning in document["warnings"]}
    assert document["link"] is None
    assert document["plan"]["workers"] == 3


def test_error_handling_and_short_messages(tmp_path: Path, scheduler_file: Path) -> None:
    """Peer error handling drops shared memory, and messages of 10,000 bytes carry the same rows."""
    options = ("--error-handling", "peer", "--message-size", "10_000", "--workers", "2", "--frac-match", "0.25")
    finished = run_here(tmp_path, scheduler_file, *SMALL, *options).check_ended(0)
    assert finished.document["verified"] is True
    assert finished.document["result_rows"] == 10_000
    for lane in finished.document["lanes"]:
        assert {transport.split("/")[0] for transport in lane["transports"]} <= {"tcp", "self"}


def test_skewed_keys_are_verified_and_name_the_overloaded_rank(tmp_path: Path, scheduler_file: Path) -> None:
    """Half of the matching rows are on one key. Three workers meet in every pair."""
    options = ("--skew", "zipf:1.2", "--frac-match", "0.9", "--verify", "every")
    finished = run_here(tmp_path, scheduler_file, *SMALL, *options).check_ended(0)
    document = finished.document
    assert document["verified"] is True
    assert document["result_rows"] == 54_000
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
    assert finished.of(LinkLine, LanesLine) == []
    report = finished.output
    assert finished.errors == ""
    assert "\x1b" not in report
    for part in ("GiB/s", "Throughput", "Wall", str(finished.folder / "records.jsonl")):
        assert part.lower() in report.lower(), report
    assert "UNVERIFIED" not in report


def test_dask_merges_with_its_own_peer_to_peer_shuffle(tmp_path: Path, scheduler_file: Path) -> None:
    options = ("--exchange", "dask", "--shuffle", "p2p", "--frac-match", "0.25", "--workers", "2")
    document = run_here(tmp_path, scheduler_file, *SMALL, *options).check_ended(0).document
    assert (document["verified"], document["result_rows"]) == (True, 10_000)
    assert document["plan"]["engine"] == "pandas"
    assert document["link"] is None
    assert document["wall_seconds"]["median"] > 0


def test_a_run_from_python_is_the_run_of_the_command(tmp_path: Path, scheduler_file: Path) -> None:
    result = merge_bench.run(chunk=1e4, workers=2, iterations=3, results=tmp_path, scheduler_file=scheduler_file)
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


def test_config_that_the_workers_have(tmp_path: Path, scheduler_file: Path) -> None:
    config = tmp_path / "same.cfg"
    config.write_text("UCX_RNDV_THRESH=16384\n")
    finished = run_here(tmp_path, scheduler_file, *SMALL, "--config", config, "--workers", "2")
    finished.check_ended(0)


def test_more_than_one_launch(tmp_path: Path, scheduler_file: Path) -> None:
    run_here(tmp_path, scheduler_file, *SMALL, "--launches", "2").check_refused("--launches", "running cluster")


def test_too_few_workers(tmp_path: Path, scheduler_file: Path) -> None:
    finished = run_here(tmp_path, scheduler_file, *SMALL, "--workers", "4", "--start-timeout", "1")
    assert finished.status == 2, finished.shown()
    waiting, sentence = finished.errors.strip().splitlines()
    assert waiting == f"merge_bench: waiting up to 1 s for 4 workers; the cluster at {scheduler_file} now has 3"
    assert "only 3 of 4 workers" in sentence
    assert finished.document["error"]["message"] in sentence


def test_no_workers(tmp_path: Path) -> None:
    with dask_cluster(tmp_path / "empty", 0) as file:
        run_here(tmp_path / "counted", file, *SMALL).check_refused("has no workers", "use --workers N")
        finished = run_here(tmp_path / "asked", file, *SMALL, "--workers", "2", "--start-timeout", "1")
        assert finished.status == 2, finished.shown()
        waiting, sentence = finished.errors.strip().splitlines()
        assert waiting.endswith(f"for 2 workers; the cluster at {file} now has none")
        assert "only 0 of 2 workers connected within 1 s" in sentence
