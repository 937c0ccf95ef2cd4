"""The `serve` command: who reaches it, by which names, with which tokens, and what an operator adds while it runs.

`test_on_service.py` and `test_backup.py` have its jobs.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from merge_bench.cluster import supervisor
from merge_bench.errors import RunFailed, UsageError
from merge_bench.host.network import choose_server_port
from merge_bench.service.serve import TOKEN_FILE, ServiceSettings, check_service_can_start
from merge_bench.service.store import FOLDER, LOCAL, ServiceStore, open_service_store
from tests.helpers.runs import LIMIT, command
from tests.service.services import RealService, ends_well, started
from tests.service.test_health import ask

TINY = {"command": "run", "options": {"chunk": "1e4", "iterations": 1, "workers": 2, "link-rounds": 0}}
NAMES = ("Bench.example:443", "plain.example:80", "own.example", "[2001:db8::1]:8443")
"""By which clients reach the service; those with a port are of a proxy."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    names = (word for name in NAMES for word in ("--host-name", name))
    found = RealService(tmp_path_factory.mktemp("service"), *names, port=str(choose_server_port("127.0.0.1", 0)))
    with ends_well(found):
        yield found


@pytest.mark.slow
def test_idle_connections_leave_files_for_jobs(service: RealService) -> None:
    host, port = "127.0.0.1", int(service.port)
    held = [socket.create_connection((host, port), timeout=LIMIT) for _ in range(400)]
    closed = [each for each in held[256:] if each.recv(1) == b""]
    assert len(closed) == len(held) - 256
    held[255].setblocking(False)
    with pytest.raises(BlockingIOError):  # it is open: those above were not closed because they were idle
        held[255].recv(1)
    assert len(os.listdir(f"/proc/{service.process.pid}/fd")) < 400
    for each in held:
        each.close()
    deadline = time.monotonic() + LIMIT
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            assert service.ask("GET", "/api/health")[0] == 200
            break
        assert time.monotonic() < deadline


@pytest.mark.slow
def test_a_service_is_healthy_as_long_as_it_answers(service: RealService) -> None:
    check_health(service)


def check_health(service: RealService) -> None:
    """Ask the health check of a container about a service that answers, and while it does not."""
    found = ask(service.process.pid)
    assert (found.returncode, found.stderr) == (0, "")
    os.kill(service.process.pid, signal.SIGSTOP)
    try:
        found = ask(service.process.pid)
    finally:
        os.kill(service.process.pid, signal.SIGCONT)
    assert found.returncode == 1
    assert f"port {service.port}" in found.stderr


@pytest.mark.slow
def test_tokens_are_made_listed_and_removed_while_the_service_runs(service: RealService) -> None:
    file = service.results / ".service/token"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    token = operate(service, "token", "add", "--name", "ci", "--role", "read").strip()
    assert service.ask("GET", "/api/jobs", token=token)[0] == 200
    assert service.ask("POST", "/api/jobs", TINY, token=token)[0] == 403
    listed = operate(service, "token", "list")
    assert [line.split()[::2] for line in listed.splitlines()] == [["read", "ci"], ["run", "local"]]
    assert token not in listed
    operate(service, "token", "remove", "ci")
    assert service.ask("GET", "/api/jobs", token=token)[0] == 401
    assert "is running already" in problem_of(ServiceSettings(service.results, 0, "127.0.0.1"))


def operate(service: RealService, *words: str, status: int = 0) -> str:
    """What `merge-bench serve` prints for these words, beside the service that runs."""
    found = command(service.folder, *words, json_output=False, verb=("serve",))
    assert found.results == service.results
    assert found.status == status, found.errors
    return found.output


def test_the_token_of_the_operator_stays_unless_others_may_have_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / FOLDER / TOKEN_FILE
    with started(tmp_path):
        before = file.read_text()
    with started(tmp_path):
        assert file.read_text() == before
    file.chmod(0o644)
    with started(tmp_path) as service:
        assert file.stat().st_mode & 0o777 == 0o600
        assert service.store.find_token(before.strip()) is None
        assert (found := service.store.find_token(file.read_text().strip())) is not None
        assert found.name == LOCAL


@pytest.mark.slow
def test_a_running_service_finds_what_another_process_added(service: RealService) -> None:
    words = ("schedule", "add", "--name", "nightly", "--at", "02:30", "--zone", "Europe/Berlin", "--missed", "run")
    job = ("--", "run", "--exchange", "dask", "--pipeline", "on")  # ends at once, with a refusal
    assert operate(service, *words, *job).startswith("nightly begins at 20")
    assert operate(service, *words, *job, status=2) == ""
    with contextlib.closing(ServiceStore(service.results / FOLDER / "service.sqlite")) as store:
        (schedule,) = store.list_schedules()
        store.store_schedule(msgspec.structs.replace(schedule, next=schedule.created))  # as if it was added yesterday
        deadline = time.monotonic() + LIMIT
        while not (jobs := service.ask("GET", "/api/jobs")[1]["jobs"]):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert (jobs[0]["who"], jobs[0]["schedule"], jobs[0]["command"]) == (LOCAL, "nightly", schedule.command)
        assert service.until(jobs[0]["id"], "failed")["status"] == 2
        assert str(schedule.next)[:9] in str(store.list_schedules()[0].next)
    assert "merge-bench run --exchange=dask --pipeline=on" in operate(service, "schedule", "list")
    operate(service, "schedule", "remove", "nightly")
    operate(service, "schedule", "remove", "nightly", status=2)
    assert service.ask("GET", "/api/schedules")[1] == {"schedules": []}


def test_other_addresses_need_tls_or_a_word_about_the_risk(tmp_path: Path) -> None:
    settings = ServiceSettings(tmp_path, 0, "0.0.0.0")
    problem = problem_of(settings)
    assert "--tls-cert" in problem
    assert "--insecure" in problem
    assert check_service_can_start(ServiceSettings(tmp_path, 0, "0.0.0.0", insecure=True)) == "none"
    assert check_service_can_start(ServiceSettings(tmp_path, 0, "127.0.0.1")) == "none"


def problem_of(settings: ServiceSettings) -> str:
    with pytest.raises(RunFailed) as found:
        check_service_can_start(settings)
    return str(found.value)


def test_what_is_wrong_is_found_before_the_service_starts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for settings, word in (
        (ServiceSettings(tmp_path, 0, "127.0.0.1", tables=(tmp_path / "no",)), "--tables"),
        (ServiceSettings(tmp_path, 0, "127.0.0.1", tls_cert=str(tmp_path / "file"), tls_key="no"), "--tls-cert"),
        (ServiceSettings(tmp_path, 0, "127.0.0.1", host_names=("https://bench.example",)), "--host-name"),
        (ServiceSettings(tmp_path, 0, "127.0.0.1", host_names=("bench.example:port",)), "--host-name"),
        (ServiceSettings(tmp_path, 0, "no.such.host.invalid"), "no.such.host.invalid"),
        (ServiceSettings(tmp_path / "file", 0, "127.0.0.1"), "cannot use the folder"),
    ):
        problem = problem_of(settings)
        assert word in problem
        assert "\n" not in problem
    open_service_store(tmp_path / "damaged").close()
    (tmp_path / "damaged/.service/service.sqlite").write_bytes(b"no database" * 999)
    assert "cannot use the folder" in problem_of(ServiceSettings(tmp_path / "damaged", 0, "127.0.0.1"))
    with pytest.raises(UsageError):
        open_service_store(tmp_path / "damaged")


@pytest.mark.slow
def test_check_says_what_it_found(tmp_path: Path) -> None:
    words = [sys.executable, "-X", "importtime", "-m", "merge_bench", "serve", "--check", "--port", "0"]
    words += ["--results", str(tmp_path)]
    found = subprocess.run(words, capture_output=True, text=True, check=True)
    assert found.stdout == "The service can start; its newest job: none.\n"
    imported = {line.rpartition("|")[2].strip() for line in found.stderr.splitlines()}
    assert imported & {"merge_bench.service.serve", "panel", "bokeh"} == {"merge_bench.service.serve"}  # it is quick
    refused = command(tmp_path, "--check", "--port", "0", "--address", "0.0.0.0", json_output=False, verb=("serve",))
    assert (refused.status, refused.output) == (3, "")
    assert "--insecure" in refused.errors


@pytest.mark.slow
def test_with_a_certificate_it_serves_https_only_by_the_names_that_it_was_given(tmp_path: Path) -> None:
    files = supervisor.write_tls_certificate(tmp_path)
    options = (f"--tls-cert={files['cert']}", f"--tls-key={files['key']}", "--host-name", "Bench.example")
    port = str(choose_server_port("127.0.0.1", 0))
    service = RealService(tmp_path / "service", *options, "--address", "0.0.0.0", port=port)
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
        check_health(service)
        assert service.stop() == 0
    finally:
        service.close()


@pytest.mark.slow
def test_behind_a_proxy_it_is_reached_by_the_names_and_ports_of_the_proxy(service: RealService) -> None:
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
