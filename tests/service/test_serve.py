"""The `serve` command with real jobs: they run, are cancelled, and survive a service that is killed."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from merge_bench.cluster import certificate
from merge_bench.errors import RunFailed, UsageError
from merge_bench.records.reader import read_campaign
from merge_bench.service.serve import Settings, check
from merge_bench.service.store import open_store
from tests.helpers.runs import LIMIT
from tests.service.services import RealService

TINY = {"command": "run", "options": {"chunk": "1e4", "iterations": 1, "workers": 2, "link-rounds": 0}}
LONG = {
    "command": "run",
    "options": {"chunk": "1e4", "iterations": 1_000_000, "workers": 2, "verify": "off", "link-rounds": 0},
}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RealService]:
    found = RealService(tmp_path)
    yield found
    found.close()


@pytest.mark.slow
def test_idle_connections_leave_files_for_jobs(service: RealService) -> None:
    host, port = "127.0.0.1", int(service.port)
    held = [socket.create_connection((host, port), timeout=LIMIT) for _ in range(400)]
    closed = [each for each in held[256:] if each.recv(1) == b""]
    assert len(closed) == len(held) - 256
    assert len(os.listdir(f"/proc/{service.process.pid}/fd")) < 400
    for each in held:
        each.close()
    deadline = time.monotonic() + LIMIT
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            assert service.ask("GET", "/api/health")[0] == 200
            break
        assert time.monotonic() < deadline


@pytest.mark.cluster
def test_jobs_run_are_cancelled_and_survive_a_service_that_is_killed(service: RealService) -> None:
    probe = service.add({"command": "probe p2p", "configs": ["tcp"], "options": {"sizes": "8", "repetitions": 1}})
    wrong = service.add({"command": "run", "options": {"exchange": "dask", "pipeline": "on"}})
    long, killed = service.add({**LONG, "settings": {"UCX_TLS": "tcp"}}), service.add(LONG)
    done = service.until(probe, "done")
    assert done["status"] == 0
    assert done["result"] in done["log"]
    failed = service.until(wrong, "failed")
    assert (failed["status"], failed["result"]) == (2, None)
    assert "Traceback" not in failed["log"]

    until_measured(service, long)
    assert service.ask("DELETE", f"/api/jobs/{long}")[0] == 200
    cancelled = service.until(long, "cancelled")
    campaign = read_campaign(service.results / cancelled["result"])
    assert [config.variables for config in campaign.head.configs] == [{"UCX_TLS": "tcp"}]
    assert campaign.end is not None
    assert campaign.end.status == 3

    until_measured(service, killed)
    service.kill()
    service.start()
    assert service.until(killed, "interrupted")["result"] is not None
    listed = service.ask("GET", "/api/results")[1]
    assert listed["total"] == 3
    assert service.stop() == 0
    assert service.before.left_after(service.pids, 30) == []


def until_measured(service: RealService, number: int) -> str:
    """The name of the job's campaign, once an iteration was recorded."""
    deadline = time.monotonic() + LIMIT
    while True:
        job = service.until(number, "running")
        if job["result"] is not None and any(
            launch.iterations for launch in read_campaign(service.results / job["result"]).launches
        ):
            return str(job["result"])
        assert time.monotonic() < deadline, job
        time.sleep(0.1)


@pytest.mark.slow
def test_tokens_are_made_listed_and_removed_while_the_service_runs(service: RealService) -> None:
    file = service.results / ".service/token"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    token = run(service, "token", "add", "--name", "ci", "--role", "read").stdout.strip()
    assert service.ask("GET", "/api/jobs", token=token)[0] == 200
    assert service.ask("POST", "/api/jobs", TINY, token=token)[0] == 403
    listed = run(service, "token", "list").stdout
    assert [line.split()[::2] for line in listed.splitlines()] == [["read", "ci"], ["run", "local"]]
    assert token not in listed
    run(service, "token", "remove", "ci")
    assert service.ask("GET", "/api/jobs", token=token)[0] == 401
    twice = run(service, "--port", "0", status=2)
    assert "is running already" in twice.stderr
    assert service.stop() == 0
    before = file.read_text()
    service.start()
    assert file.read_text() == before
    file.chmod(0o644)  # others may have read it
    service.stop()
    service.start()
    assert file.read_text() != before
    assert service.ask("GET", "/api/jobs", token=before.strip())[0] == 401


def run(service: RealService, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    process = service.command(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == status, errors
    return subprocess.CompletedProcess(words, status, output, errors)


def test_other_addresses_need_tls_or_a_word_about_the_risk(tmp_path: Path) -> None:
    settings = Settings(tmp_path, 0, "0.0.0.0")
    problem = problem_of(settings)
    assert "--tls-cert" in problem
    assert "--insecure" in problem
    assert check(Settings(tmp_path, 0, "0.0.0.0", insecure=True)) == "none"
    assert check(Settings(tmp_path, 0, "127.0.0.1")) == "none"


def problem_of(settings: Settings) -> str:
    with pytest.raises(RunFailed) as found:
        check(settings)
    return str(found.value)


def test_what_is_wrong_is_found_before_the_service_starts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for settings, word in (
        (Settings(tmp_path, 0, "127.0.0.1", tables=(tmp_path / "no",)), "--tables"),
        (Settings(tmp_path, 0, "127.0.0.1", tls_cert=str(tmp_path / "file"), tls_key="no"), "--tls-cert"),
        (Settings(tmp_path, 0, "127.0.0.1", host_names=("https://bench.example",)), "--host-name"),
        (Settings(tmp_path, 0, "127.0.0.1", host_names=("bench.example:port",)), "--host-name"),
        (Settings(tmp_path, 0, "no.such.host.invalid"), "no.such.host.invalid"),
        (Settings(tmp_path / "file", 0, "127.0.0.1"), "cannot use the folder"),
    ):
        problem = problem_of(settings)
        assert word in problem
        assert "\n" not in problem
    open_store(tmp_path / "damaged").close()
    (tmp_path / "damaged/.service/service.sqlite").write_bytes(b"no database" * 999)
    assert "cannot use the folder" in problem_of(Settings(tmp_path / "damaged", 0, "127.0.0.1"))
    with pytest.raises(UsageError):
        open_store(tmp_path / "damaged")


@pytest.mark.slow
def test_check_says_what_it_found(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "merge_bench", "serve", "--check", "--port", "0"]
    command += ["--results", str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout == "The service can start; its newest job: none.\n"
    imported = {line.rpartition("|")[2].strip() for line in found.stderr.splitlines()}
    assert imported & {"merge_bench.service.serve", "panel", "bokeh"} == {"merge_bench.service.serve"}  # it is quick
    found = subprocess.run([*command, "--address", "0.0.0.0"], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (3, "")
    assert "--insecure" in found.stderr


@pytest.mark.slow
def test_with_a_certificate_it_serves_https_only_by_the_names_that_it_was_given(tmp_path: Path) -> None:
    files = certificate.write(tmp_path)
    options = ("--tls-cert", files["cert"], "--tls-key", files["key"], "--host-name", "Bench.example")
    service = RealService(tmp_path / "service", *options, "--address", "0.0.0.0")
    try:
        assert service.url.startswith("https://0.0.0.0:")
        context = ssl.create_default_context(cafile=files["ca"])
        context.check_hostname = False
        for host, status in (("bench.example", 200), ("localhost", 200), ("evil.example", 403)):
            connection = http.client.HTTPSConnection("127.0.0.1", int(service.port), timeout=60, context=context)
            connection.request("GET", "/api/health", headers={"Host": f"{host}:{service.port}"})
            assert connection.getresponse().status == status
            connection.close()
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            urllib.request.urlopen(f"http://127.0.0.1:{service.port}/api/health", timeout=60)
        assert service.stop() == 0
    finally:
        service.close()


@pytest.mark.slow
def test_behind_a_proxy_it_is_reached_by_the_names_and_ports_of_the_proxy(tmp_path: Path) -> None:
    names = ("Bench.example:443", "plain.example:80", "own.example", "[2001:db8::1]:8443")
    service = RealService(tmp_path, *(word for name in names for word in ("--host-name", name)))
    try:
        for host, origin, status in (
            ("bench.example", "https://bench.example", 200),
            ("bench.example:443", "https://Bench.example", 200),
            ("bench.example", "https://other.example", 403),
            (f"bench.example:{service.port}", None, 403),
            ("plain.example", "http://plain.example", 200),
            ("own.example", None, 403),
            (f"own.example:{service.port}", f"http://own.example:{service.port}", 200),
            (f"own.example:{service.port}", "https://own.example", 403),
            ("[2001:db8::1]:8443", "https://[2001:db8::1]:8443", 200),
            ("[2001:db8::1]", None, 403),
            (f"127.0.0.1:{service.port}", None, 200),
            (f"127.0.0.1:{service.port}", "ftp://bench.example", 403),
        ):
            connection = http.client.HTTPConnection("127.0.0.1", int(service.port), timeout=60)
            connection.request("GET", "/api/health", headers={"Host": host} | ({"Origin": origin} if origin else {}))
            assert connection.getresponse().status == status, (host, origin)
            connection.close()
        assert service.stop() == 0
    finally:
        service.close()
