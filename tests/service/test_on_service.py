"""Commands on a real service: jobs that run, fail, are cancelled, or whose service is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from merge_bench.cluster.supervisor import Child
from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import RECORDS
from tests.helpers.runs import LIMIT, environment
from tests.service.services import RealService

TOKEN = "a-secret-that-nobody-records"
TINY = ("--chunk", "1e4", "--iterations", "2", "--workers", "2", "--link-rounds", "0")
LONG = ("--chunk", "1e4", "--iterations", "1_000_000", "--workers", "2", "--verify", "off", "--link-rounds", "0")


class OnService:
    """`merge-bench VERB … --on URL`, started in a folder of its own, with the token of `service`."""

    def __init__(
        self, folder: Path, service: RealService, *words: str, token: str | None = None, stderr: int = subprocess.PIPE
    ) -> None:
        self.results, temp = folder / "home", folder / "client"
        temp.mkdir(parents=True, exist_ok=True)
        surroundings = environment(temp, {"MERGE_BENCH_TOKEN": token or service.token, "MERGE_BENCH_ON": service.url})
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "merge_bench", *words, "--results", str(self.results)], cwd=folder, text=True,
            env=surroundings, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True,
        )  # fmt: skip

    def ends(self, status: int) -> str:
        """Standard output of the command, which ends with this status; `errors` has the rest."""
        output, self.errors = self.process.communicate(timeout=LIMIT)
        assert self.process.returncode == status, f"{output}{self.errors}"
        assert "Traceback" not in f"{output}{self.errors}"
        return output

    @property
    def folder(self) -> Path:
        """The last result that came home."""
        return max(self.results.iterdir())


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    """Its environment has a token, as that of a schedule's client may."""
    variables = {"MERGE_BENCH_TOKEN": TOKEN, "MERGE_BENCH_TOKEN_FILE": f"/{TOKEN}", "MERGE_BENCH_SEED": "5"}
    found = RealService(tmp_path_factory.mktemp("service"), variables=variables)
    yield found
    found.close()


@pytest.mark.cluster
def test_records_come_home_equal_and_without_tokens_and_a_gate_that_is_not_met_ends_with_5(
    service: RealService, tmp_path: Path
) -> None:
    first = OnService(tmp_path, service, "run", "tcp", *TINY)
    output = first.ends(0)
    theirs = service.results / first.folder.name
    assert (first.folder / RECORDS).read_bytes() == (theirs / RECORDS).read_bytes()
    assert f"Records: {first.folder / RECORDS}\n" in output
    assert f"Records: {theirs / RECORDS}\n" in first.errors  # the job's own output
    assert output.startswith(f"merge_bench · {first.folder.name}\n")
    assert [config.name for config in read_campaign(first.folder).head.configs] == ["tcp"]

    files = (path for path in service.folder.rglob("*") if path.is_file() and not path.is_symlink())
    written = {path: path.read_bytes() for path in files}
    assert b"MERGE_BENCH_SEED" in written[theirs / RECORDS]
    assert [path for path, data in written.items() if TOKEN.encode() in data or b"MERGE_BENCH_TOKEN" in data] == []
    assert [path.name for path, data in written.items() if service.token.encode() in data] == ["token"]
    assert TOKEN not in f"{output}{first.errors}"

    gate = ("--against", first.folder.name, "--fail-on", "inconclusive", "--json")
    document = json.loads(OnService(tmp_path, service, "run", "tcp", *TINY, *gate).ends(5))
    assert document["error"]["code"] == "gate-not-met"
    assert [each["verdict"] for each in document["comparisons"]] != []
    elsewhere = OnService(tmp_path / "ci", service, "run", "tcp", *TINY, *gate)  # does not have the earlier result
    document = json.loads(elsewhere.ends(5))
    assert (document["error"]["code"], document.get("comparisons")) == ("gate-not-met", None)
    assert "INCONCLUSIVE" in elsewhere.errors


@pytest.mark.cluster
def test_a_job_that_fails_or_is_refused_ends_the_command_with_its_status(service: RealService, tmp_path: Path) -> None:
    failed = OnService(tmp_path / "failed", service, "run", "--exchange", "dask", "--pipeline", "on", "--json")
    assert json.loads(failed.ends(2))["error"]["code"] == "usage"
    refused = OnService(tmp_path / "refused", service, "run", "--hosts", "x")
    refused.ends(2)
    assert "cannot have the option hosts" in refused.errors


@pytest.mark.cluster
def test_probe_and_tune_run_there_and_write_their_files_here(service: RealService, tmp_path: Path) -> None:
    probe = OnService(
        tmp_path / "probe", service, "probe", "p2p", "--sizes", "8", "--repetitions", "1", "--csv", "a.csv"
    )
    assert "one host" in probe.ends(0)
    assert (tmp_path / "probe/a.csv").read_text().count("\n") > 1
    tune = OnService(
        tmp_path / "tune", service, "tune", "--chunk", "1e3", "--only", "rails", "--budget", "1s", "--json"
    )
    document = json.loads(tune.ends(2))
    assert document["error"]["code"] == "usage"
    assert service.ask("GET", "/api/jobs?limit=1")[1]["jobs"][0]["command"].startswith("merge-bench tune --chunk=1e3")


@pytest.mark.cluster
def test_ctrl_c_cancels_the_job_and_brings_home_what_was_measured(service: RealService, tmp_path: Path) -> None:
    client = OnService(tmp_path, service, "run", *LONG, stderr=subprocess.STDOUT)
    until_measured(service)
    client.process.send_signal(signal.SIGINT)
    output = client.ends(3)
    assert "cancelled" in output
    assert output.count(f"merge_bench · {client.folder.name}\n") == 1  # the job's report; both streams are one
    assert output.count(f"Records: {client.folder / RECORDS}\n") == 1
    campaign = read_campaign(client.folder)
    assert campaign.end is not None
    assert campaign.end.status == 3
    assert campaign.launches[0].iterations
    assert service.ask("GET", "/api/jobs?limit=1")[1]["jobs"][0]["state"] == "cancelled"


@pytest.mark.cluster
def test_a_client_waits_for_a_service_that_is_killed_and_started_again(tmp_path: Path) -> None:
    service = RealService(tmp_path / "service")
    try:
        words = ("run", *TINY[:2], "--iterations", "200", *TINY[4:], "--launches", "2")
        client = OnService(tmp_path, service, *words)
        until_measured(service)
        service.kill()
        time.sleep(3.0)
        service.start()
        client.ends(0)
        assert client.errors.count("trying again") >= 1
        assert (client.folder / RECORDS).read_bytes() == (service.results / client.folder.name / RECORDS).read_bytes()
        assert [launch.complete for launch in read_campaign(client.folder).launches].count(True) == 2
        assert [job["state"] for job in service.ask("GET", "/api/jobs")[1]["jobs"]] == ["done"]
        assert service.ask("GET", "/api/results")[1]["total"] == 1  # the same campaign went on
        assert service.stop() == 0
    finally:
        service.close()


def until_measured(service: RealService) -> None:
    """Wait until the newest job has recorded an iteration."""
    deadline = time.monotonic() + LIMIT
    while True:
        assert time.monotonic() < deadline
        time.sleep(0.1)
        jobs = service.ask("GET", "/api/jobs?limit=1")[1]["jobs"]
        name = jobs and service.ask("GET", f"/api/jobs/{jobs[0]['id']}")[1]["result"]
        running = jobs and jobs[0]["state"] == "running" and name
        if running and any(launch.iterations for launch in read_campaign(service.results / name).launches):
            return


@pytest.mark.slow
def test_jobs_are_listed_shown_and_cancelled(service: RealService, tmp_path: Path) -> None:
    number = service.add({"command": "run", "options": {"exchange": "dask", "pipeline": "on", "how": "anti"}})
    service.until(number, "failed")
    listed = OnService(tmp_path, service, "jobs", "list").ends(0)
    assert [line for line in listed.splitlines() if len(line) > 80] == []
    assert any(line.split()[:2] == [str(number), "failed"] for line in listed.splitlines())
    assert "--how=anti" in OnService(tmp_path, service, "jobs", "show", str(number)).ends(0)
    shown = json.loads(OnService(tmp_path, service, "jobs", "show", str(number), "--json").ends(0))
    assert (shown["id"], shown["status"]) == (number, 2)
    assert (
        json.loads(OnService(tmp_path, service, "jobs", "cancel", str(number), "--json").ends(0))["state"] == "failed"
    )
    missing = OnService(tmp_path, service, "jobs", "show", "99999")
    missing.ends(2)
    assert "no job with this number" in missing.errors
    wrong = OnService(tmp_path, service, "jobs", "list", token="wrong")
    wrong.ends(2)
    assert "MERGE_BENCH_TOKEN" in wrong.errors


def test_no_process_inherits_the_token(tmp_path: Path) -> None:
    surroundings = {**os.environ, "MERGE_BENCH_TOKEN": TOKEN, "MERGE_BENCH_TOKEN_FILE": TOKEN}
    Child(["env"], environment=surroundings, log=tmp_path / "log").wait(LIMIT)
    assert "PATH=" in (tmp_path / "log").read_text()
    assert TOKEN not in (tmp_path / "log").read_text()
