"""What the processes of a run on one machine open to its other users: every port is tried as such a user would."""

from __future__ import annotations

import contextlib
import signal
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from merge_bench.records.schema import LaunchLine, WarningLine
from tests.helpers.runs import ENDLESS, Running, start

pytestmark = pytest.mark.cluster

TLS, DASK, HTTP, OTHER = "asks for a certificate", "speaks with anybody", "serves no page", "something else"
HELLO = b"GET /json/identity.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.fixture
def merging(tmp_path: Path) -> Iterator[list[Running]]:
    """Runs that the test started."""
    started: list[Running] = []
    yield started
    for running in started:
        running.end()


def first_bytes(port: int, sent: bytes, wait: float) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.settimeout(wait)
        with contextlib.suppress(OSError):
            connection.sendall(sent)
            return connection.recv(4096)
    return b""


def kind_of(port: int) -> str:
    """What answers there to who has no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if first_bytes(port, HELLO, 10).startswith(b"HTTP/1.1 404"):
        return HTTP
    with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
        try:
            # Nothing is sent: to an end that has closed already it would bring a reset, which drops why it closed.
            with context.wrap_socket(plain) as connection:
                return DASK if connection.recv(1) else OTHER
        except OSError as error:
            if "CERTIFICATE_REQUIRED" in str(error):
                return TLS
    return DASK if first_bytes(port, b"", 2) else OTHER  # Dask's listener begins to speak


def open_ports(running: Running) -> dict[str, Counter[str]]:
    """How many ports of each kind each process has; all of them are on loopback."""
    found = {}
    for name, pid in running.until_merging().items():
        listening = [each for each in psutil.Process(pid).net_connections("inet") if each.status == psutil.CONN_LISTEN]
        assert {each.laddr.ip for each in listening} == {"127.0.0.1"}
        found[name] = Counter(kind_of(each.laddr.port) for each in listening)
    return found


def codes(running: Running) -> set[str]:
    return {line.code for line in running.lines() if isinstance(line, WarningLine)} & {"ucx-port", "dask-ports"}


def test_a_default_run_opens_no_port_of_ucx_and_those_of_dask_ask_for_its_certificate(
    tmp_path: Path, merging: list[Running]
) -> None:
    running = start(tmp_path, *ENDLESS, "--workers", "2")
    merging.append(running)
    found = open_ports(running)
    assert found == {name: {TLS: 1, HTTP: 1} for name in ("scheduler", "worker-0", "worker-1")}
    assert codes(running) == set()
    (launch,) = [line for line in running.lines() if isinstance(line, LaunchLine)]
    assert launch.cluster.protocol == "tls"
    assert {worker.environment["UCX_TLS"] for worker in launch.workers} == {"^tcp"}
    running.process.send_signal(signal.SIGINT)
    running.finish().check_clean()


@pytest.mark.soak  # what a run opens by default is above; the warnings are in tests/cluster
def test_what_was_asked_for_is_open_and_a_warning_says_so(tmp_path: Path, merging: list[Running]) -> None:
    running = start(tmp_path, *ENDLESS, "--workers", "2", "--config", "tcp.cfg", "--protocol", "tcp")
    merging.append(running)
    found = open_ports(running)
    assert found.pop("scheduler") == {DASK: 1, HTTP: 1}
    assert [each[OTHER] for each in found.values()] == [1, 1]
    assert [each[DASK] for each in found.values()] == [1, 1]
    assert codes(running) == {"ucx-port", "dask-ports"}
    running.process.send_signal(signal.SIGINT)
    running.finish().check_clean()
