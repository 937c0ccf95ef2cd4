"""What other programs of the machine get from a client, and from a service, when they have its port or its names."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from merge_bench.errors import RunFailed, UsageError
from merge_bench.service.api import ServiceLimits
from merge_bench.service.client import Client
from merge_bench.service.store import FOLDER, hash_token, make_token_proof, open_service_store
from tests.service.conftest import TOKEN
from tests.service.in_process import running
from tests.service.services import RealService, ends_well, started

Answer = Callable[[bytes], bytes]


@contextlib.contextmanager
def impostor(answer: Answer, port: int = 0, address: str = "127.0.0.1") -> Iterator[tuple[int, list[bytes]]]:
    """A program that has the port, answers each request, and keeps all that it receives."""
    received: list[bytes] = []
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address, port))
        listening.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(10)
                    while data := connection.recv(65536):
                        received.append(data)
                        connection.sendall(answer(data))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1], received
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(20)


def as_http(text: str, *headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(text)}", "Content-Type: application/json", *headers, "", text]
    return "\r\n".join(lines).encode()


def nonce_in(request: bytes) -> str:
    found = re.search(rb"nonce=([\w-]+)", request)
    return found[1].decode() if found else ""


def answer_with_nothing(request: bytes) -> bytes:
    return as_http("{}")


def answer_with_the_question(request: bytes) -> bytes:
    return as_http(json.dumps({"proof": nonce_in(request)}))


def answer_with_another_token(request: bytes) -> bytes:
    host = re.search(rb"Host: (\S+)", request)
    assert host is not None
    return as_http(json.dumps({"proof": make_token_proof(hash_token("guess"), nonce_in(request), host[1].decode())}))


@pytest.mark.parametrize("answer", [answer_with_nothing, answer_with_the_question, answer_with_another_token])
def test_who_has_the_port_after_the_service_stopped_gets_no_token(answer: Answer, tmp_path: Path) -> None:
    with running(tmp_path, ServiceLimits()) as service:
        port, token = service.port, service.tokens["ci"]
        assert Client(f"http://127.0.0.1:{port}", token).fetch_jobs().jobs == []
    with impostor(answer, port) as (_, received), pytest.raises(UsageError, match="was not sent"):
        Client(f"http://127.0.0.1:{port}", token).fetch_jobs()
    assert received
    assert token.encode() not in b"".join(received)
    assert hash_token(token).encode() not in b"".join(received)


@pytest.mark.parametrize("renamed", [False, True])
def test_who_passes_requests_on_to_the_service_at_its_other_port_gets_no_token(renamed: bool, tmp_path: Path) -> None:
    with running(tmp_path, ServiceLimits()) as service:

        def pass_on(request: bytes) -> bytes:
            given = re.sub(rb"Host: \S+", f"Host: 127.0.0.1:{service.port}".encode(), request) if renamed else request
            return service.raw(given, wait=0.5)

        with impostor(pass_on) as (port, received), pytest.raises(UsageError, match="was not sent"):
            Client(f"http://127.0.0.1:{port}", service.tokens["ci"]).fetch_jobs()
        assert received
        assert service.tokens["ci"].encode() not in b"".join(received)


def test_who_has_the_port_at_the_other_address_of_localhost_gets_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many machines name ::1 first, where a service on 127.0.0.1 does not listen."""
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda name, *more: resolve("::1" if name == "localhost" else name, *more)
    )
    with running(tmp_path, ServiceLimits()) as service:
        token = service.tokens["ci"]
        try:
            other = impostor(lambda request: service.raw(request, wait=0.5), service.port, "::1")
            with other as (port, received):
                assert Client(f"http://localhost:{port}", token).fetch_jobs().jobs == []
                assert received == []
                with pytest.raises(UsageError, match="was not sent"):
                    Client(f"http://[::1]:{port}", token).fetch_jobs()
                assert received
                assert token.encode() not in b"".join(received)
        except OSError:
            pytest.skip("this machine has no ::1")


def test_a_proof_counts_for_one_connection() -> None:
    def prove(request: bytes) -> bytes:
        text = json.dumps({"proof": make_token_proof(hash_token(TOKEN), nonce_in(request), f"127.0.0.1:{port}")})
        return as_http(text, "Connection: close")

    with impostor(prove) as (port, received), pytest.raises(RunFailed):
        Client(f"http://127.0.0.1:{port}", TOKEN).fetch_jobs()
    assert TOKEN.encode() not in b"".join(received)


def test_a_token_crosses_a_network_without_tls_only_if_that_is_allowed() -> None:
    with pytest.raises(UsageError, match="--insecure"):
        Client("http://bench.example:5007", TOKEN)
    Client("http://bench.example:5007", TOKEN, insecure=True)
    Client("https://bench.example:5007", TOKEN)


def test_a_name_that_another_login_takes_does_not_keep_the_service_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    results = tmp_path / "results"
    with contextlib.closing(open_service_store(results)) as store:
        instance = store.instance
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(f"\0merge-bench-{instance}")
        with started(results), pytest.raises(UsageError, match="running already"), started(results):
            pass
    with started(results):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_another_login_can_neither_take_the_locks_nor_read_the_files_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    results = tmp_path / "results"
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    with started(results):
        files = [*(results / FOLDER).iterdir(), *(tmp_path / "cache/merge_bench").iterdir()]
        assert {file.name.partition("-")[0] for file in files} >= {"lock", "service.sqlite", "service"}
    reached, ours = os.pipe()
    if (child := os.fork()) == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        opened = []
        for file in files:
            with contextlib.suppress(OSError):
                os.close(os.open(file, os.O_RDONLY))
                opened.append(file.name)
        os.write(ours, json.dumps(opened).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(ours)
    with os.fdopen(reached) as stream:
        assert json.load(stream) == []


@pytest.mark.slow
def test_programs_without_a_proof_use_the_socket_in_the_folder_of_the_owner(tmp_path: Path) -> None:
    """As ``curl --unix-socket`` does."""
    with ends_well(RealService(tmp_path)) as service:
        way = service.results / FOLDER / "socket"
        assert way.stat().st_mode & 0o777 == 0o600
        assert way.parent.stat().st_mode & 0o777 == 0o700
        connection = http.client.HTTPConnection("127.0.0.1", int(service.port), timeout=60)
        with contextlib.closing(connection):
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(str(way))
            connection.request("GET", "/api/jobs", headers={"Authorization": f"Bearer {service.token}"})
            assert json.load(connection.getresponse()) == {"jobs": []}
        for file in (each for each in service.results.rglob("*") if not each.is_dir()):
            assert file.stat().st_mode & 0o077 == 0, file
