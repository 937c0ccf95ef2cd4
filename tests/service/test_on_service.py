"""Commands on a real service: jobs that run, fail, are cancelled, or whose service is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from merge_bench.cluster.supervisor import ChildProcess
from merge_bench.records.campaign import Launch
from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import RECORDS
from tests.helpers.runs import LIMIT, Finished, environment
from tests.service.services import RealService, ends_well
from tests.service.test_client_commands import typed as typed_to

TOKEN = "a-secret-that-nobody-records"
TINY = ("--chunk", "1e4", "--iterations", "2", "--workers", "1", "--link-rounds", "0")
LONG = ("--chunk", "1e4", "--iterations", "1_000_000", "--workers", "1", "--verify", "off", "--link-rounds", "0")


class OnService:
    """`merge-bench VERB … --service URL`, started in a folder of its own, with the token of `service`."""

    def __init__(self, folder: Path, service: RealService, *words: str, stderr: int = subprocess.PIPE) -> None:
        self.results, self.output, temp = folder / "home", "", folder / "client"
        temp.mkdir(parents=True, exist_ok=True)
        surroundings = environment(temp, {"MERGE_BENCH_TOKEN": service.token, "MERGE_BENCH_SERVICE": service.url})
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "merge_bench", *words, "--results", str(self.results)],
            cwd=folder,
            text=True,
            env=surroundings,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )

    def ends(self, status: int) -> str:
        """Standard output of the command, which ends with this status, also in `output`; `errors` has the rest."""
        self.output, self.errors = self.process.communicate(timeout=LIMIT)
        assert self.process.returncode == status, f"{self.output}{self.errors}"
        assert "Traceback" not in f"{self.output}{self.errors}"
        return self.output

    @property
    def folder(self) -> Path:
        """The last result that came home."""
        return max(self.results.iterdir())


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    """Its environment has a token, as that of a schedule's client may. Nothing is left of it at the end."""
    variables = {"MERGE_BENCH_TOKEN": TOKEN, "MERGE_BENCH_TOKEN_FILE": f"/{TOKEN}", "MERGE_BENCH_SEED": "5"}
    found = RealService(tmp_path_factory.mktemp("service"), variables=variables)
    with ends_well(found):
        yield found


@pytest.fixture(scope="module")
def resumed(service: RealService, tmp_path_factory: pytest.TempPathFactory) -> OnService:
    """A run that has ended, after the service was killed and started again between its two launches."""
    client = OnService(tmp_path_factory.mktemp("resumed"), service, "run", "tcp", *TINY, "--launches", "2")
    until_recorded(service, lambda launch: launch.complete)
    service.kill()
    time.sleep(3.0)
    service.start()
    client.ends(0)
    return client


@pytest.mark.cluster
def test_a_client_waits_for_a_service_that_is_killed_and_started_again(
    service: RealService, resumed: OnService
) -> None:
    assert resumed.errors.count("trying again") >= 1
    launches = read_campaign(resumed.folder).launches
    assert [launch.complete for launch in launches].count(True) == 2
    assert launches[0].complete  # it was not made again
    assert [job["state"] for job in service.ask("GET", "/api/jobs")[1]["jobs"]] == ["done"]
    assert service.ask("GET", "/api/results")[1]["total"] == 1  # the same campaign went on


@pytest.mark.cluster
def test_records_come_home_equal_and_without_tokens_and_a_gate_that_is_not_met_ends_with_5(
    service: RealService, resumed: OnService
) -> None:
    theirs = service.results / resumed.folder.name
    assert (resumed.folder / RECORDS).read_bytes() == (theirs / RECORDS).read_bytes()
    assert f"Records: {resumed.folder / RECORDS}\n" in resumed.output
    assert f"Records: {theirs / RECORDS}, on the service's machine\n" in resumed.errors  # the job's own output
    assert "Next: " not in resumed.errors
    (step,) = [line for line in resumed.output.splitlines() if line.startswith("Next: ")]
    assert str(service.results) not in step
    assert str(resumed.results) in step or step.endswith(" doctor")  # which looks for what takes the cores
    assert resumed.output.startswith(f"merge_bench · {resumed.folder.name}\n")
    assert [config.name for config in read_campaign(resumed.folder).head.configs] == ["tcp"]

    files = (path for path in service.folder.rglob("*") if path.is_file() and not path.is_symlink())
    written = {path: path.read_bytes() for path in files}
    assert b"MERGE_BENCH_SEED" in written[theirs / RECORDS]
    assert [path for path, data in written.items() if TOKEN.encode() in data or b"MERGE_BENCH_TOKEN" in data] == []
    assert [path.name for path, data in written.items() if service.token.encode() in data] == ["token"]
    assert TOKEN not in f"{resumed.output}{resumed.errors}"

    gate = ("--against", resumed.folder.name, "--fail-on", "inconclusive", "--json")
    document = json.loads(OnService(resumed.results.parent, service, "run", "tcp", *TINY, *gate).ends(5))
    assert document["error"]["code"] == "gate-not-met"
    assert [each["verdict"] for each in document["comparisons"]] != []


@pytest.mark.cluster
def test_a_job_that_fails_or_is_refused_ends_the_command_with_its_status_and_is_listed_and_shown(
    service: RealService, tmp_path: Path
) -> None:
    def typed(verb: str, *words: str, status: int = 0, token: str = service.token) -> Finished:
        found = typed_to(service, tmp_path, verb, *words, token=token)
        assert found.status == status, found.errors
        assert "Traceback" not in f"{found.output}{found.errors}"
        return found

    failed = typed("run", "--exchange", "dask", "--pipeline", "on", "--how", "anti", "--json", status=2)
    assert failed.document["error"]["code"] == "usage"
    assert "cannot have the option hosts" in typed("run", "--hosts", "x", status=2).errors
    (job,) = service.ask("GET", "/api/jobs?limit=1")[1]["jobs"]
    assert (job["state"], job["status"], job["result"]) == ("failed", 2, None)

    number = str(job["id"])
    assert any(line.split()[:2] == [number, "failed"] for line in typed("jobs list").output.splitlines())
    assert "--how=anti" in typed("jobs show", number).output
    shown = typed("jobs show", number, "--json").document
    assert (shown["id"], shown["status"]) == (job["id"], 2)
    assert "Traceback" not in shown["log"]
    assert typed("jobs cancel", number, "--json").document["state"] == "failed"
    assert "no job with this number" in typed("jobs show", "99999", status=2).errors
    assert "MERGE_BENCH_TOKEN" in typed("jobs list", token="wrong", status=2).errors


@pytest.mark.cluster
def test_probe_and_tune_run_there_and_write_their_files_here(service: RealService, tmp_path: Path) -> None:
    words = ("--sizes", "8", "--repetitions", "1", "--csv", "a.csv")
    probe = typed_to(service, tmp_path / "probe", "probe p2p", *words, token=service.token)
    assert probe.status == 0, probe.errors
    assert "one host" in probe.output
    assert (tmp_path / "probe/a.csv").read_text().count("\n") > 1
    words = ("--chunk", "1e3", "--only", "rails", "--budget", "1s", "--json")
    tune = typed_to(service, tmp_path / "tune", "tune", *words, token=service.token)
    assert (tune.status, tune.document["error"]["code"]) == (2, "usage")
    assert service.ask("GET", "/api/jobs?limit=1")[1]["jobs"][0]["command"].startswith("merge-bench tune --chunk=1e3")


@pytest.mark.cluster
def test_a_gate_compares_a_config_that_was_edited_or_does_not_pass(service: RealService, tmp_path: Path) -> None:
    config = tmp_path / "rehearsal.cfg"
    gate = ("--against", "history", "--fail-on", "not-faster", "--json")

    def ended(status: int, *more: str) -> dict[str, Any]:
        client = OnService(tmp_path, service, "run", "--config", str(config), *TINY, *gate, *more)
        document: dict[str, Any] = json.loads(client.ends(status))
        return document

    config.write_text("UCX_TLS=sm\n")
    first = ended(0, "--allow-no-baseline")  # without it, as in tests/analysis/history/test_gate.py
    assert first["error"] is None
    assert first["config"]["name"] == "rehearsal"
    assert first["config"]["variables"]["UCX_TLS"] == "sm"
    for hours in (1, 2):
        write_again(service.results, Path(first["records"]).parent.name, hours)
    config.write_text("UCX_TLS=tcp\n")
    edited = ended(5, "--allow-no-baseline")
    assert (edited["config"]["name"], edited["config"]["variables"]["UCX_TLS"]) == ("rehearsal", "tcp")
    assert "rehearsal is " in edited["error"]["message"]
    (series,) = service.ask("GET", "/api/history?config=rehearsal")[1]["series"]
    assert len(series["results"]) == 4


@pytest.mark.cluster
def test_ctrl_c_cancels_the_job_and_brings_home_what_was_measured(service: RealService, tmp_path: Path) -> None:
    config = tmp_path / "mine.cfg"
    config.write_text("export UCX_TLS=tcp\n")
    client = OnService(tmp_path, service, "run", "--config", str(config), *LONG, stderr=subprocess.STDOUT)
    until_recorded(service, lambda launch: bool(launch.iterations))
    client.process.send_signal(signal.SIGINT)
    output = client.ends(3)
    assert "cancelled" in output
    assert output.count(f"merge_bench · {client.folder.name}\n") == 1  # the job's report; both streams are one
    assert output.count(f"Records: {client.folder / RECORDS}, copied to this machine\n") == 1
    step = output[output.index("Next: ") :].splitlines()[0]  # what the client typed, with its own file
    assert str(config) in step
    assert str(service.results) not in step
    campaign = read_campaign(client.folder)
    assert campaign.end is not None
    assert campaign.end.status == 3
    assert campaign.launches[0].iterations
    assert [config.variables for config in campaign.head.configs] == [{"UCX_TLS": "tcp"}]
    assert service.ask("GET", "/api/jobs?limit=1")[1]["jobs"][0]["state"] == "cancelled"


def write_again(results: Path, name: str, hours: int) -> None:
    """The same result from so many hours before."""
    head, _, rest = (results / name / RECORDS).read_bytes().partition(b"\n")
    first = json.loads(head)
    first |= {"campaign_id": f"20260101T000000Z-rehearsal-{hours:06}", "time": first["time"] - 3600 * hours}
    (results / first["campaign_id"]).mkdir()
    (results / first["campaign_id"] / RECORDS).write_bytes(json.dumps(first).encode() + b"\n" + rest)


def until_recorded(service: RealService, reached: Callable[[Launch], bool]) -> None:
    """Wait until the newest job runs and has recorded such a launch."""
    deadline = time.monotonic() + LIMIT
    while True:
        assert time.monotonic() < deadline
        time.sleep(0.1)
        jobs = service.ask("GET", "/api/jobs?limit=1")[1]["jobs"]
        name = jobs and service.ask("GET", f"/api/jobs/{jobs[0]['id']}")[1]["result"]
        running = jobs and jobs[0]["state"] == "running" and name
        if running and any(map(reached, read_campaign(service.results / name).launches)):
            return


def test_no_process_inherits_the_token(tmp_path: Path) -> None:
    surroundings = {**os.environ, "MERGE_BENCH_TOKEN": TOKEN, "MERGE_BENCH_TOKEN_FILE": TOKEN}
    ChildProcess(["env"], environment=surroundings, log=tmp_path / "log").wait(LIMIT)
    assert "PATH=" in (tmp_path / "log").read_text()
    assert TOKEN not in (tmp_path / "log").read_text()
