"""The client of a service: what comes home, and what is said when a service cannot be reached or answers strangely."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from merge_bench.errors import MergeBenchError, RunFailed, UsageError
from merge_bench.records.writer import RECORDS
from merge_bench.service.client import LONGEST_BYTES, Client
from merge_bench.service.documents import JobRequest
from tests.service.conftest import JOB, TOKEN, Fake


@pytest.mark.parametrize("name", ["../evil", "..", ".", "", "/tmp/evil", "a/b", "a\0b", ".service", "x" * 300, None])
def test_a_name_that_could_leave_the_folder_is_refused(fake: Callable[..., Fake], tmp_path: Path, name: str) -> None:
    client = Client(fake({"result": name}, b"evil").url)
    with pytest.raises(RunFailed):
        client.fetch_records(client.fetch_job(7), tmp_path / "in/results")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_other_records_of_the_same_name_are_kept(fake: Callable[..., Fake], tmp_path: Path) -> None:
    client, folder = Client(fake(records=b"theirs").url), tmp_path / str(JOB["result"])
    assert client.fetch_records(client.fetch_job(7), tmp_path) == folder
    assert client.fetch_records(client.fetch_job(7), tmp_path) == folder  # the same once more
    (folder / RECORDS).write_bytes(b"mine")
    with pytest.raises(RunFailed, match="other records"):
        client.fetch_records(client.fetch_job(7), tmp_path)
    assert (folder / RECORDS).read_bytes() == b"mine"
    assert list(tmp_path.iterdir()) == [folder]


HOSTILE = {
    "no JSON": (200, b"<html>", {}),
    "something else": (200, b'{"id": "seven"}', {}),
    "nested": (200, b"[" * 100_000, {}),
    "cut": (200, b"{}", {"Content-Length": "99"}),
    "other error": (500, b"oops", {}),
    "control characters": (403, json.dumps({"error": {"code": "x", "message": "\x1b[2J" + "x" * 9999}}).encode(), {}),
    "no status": (99, b"", {}),
    "header": (200, b"{}", {"Content-Length": "x"}),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_strange_answer_is_one_sentence(fake: Callable[..., Fake], kind: str) -> None:
    with pytest.raises(MergeBenchError) as found:
        Client(fake(answer=lambda method, path: HOSTILE[kind]).url).fetch_job(7)
    assert str(found.value).isprintable()
    assert len(str(found.value)) < 1000


def test_an_answer_that_is_too_long_is_not_kept(fake: Callable[..., Fake]) -> None:
    job = json.dumps(JOB).encode()
    for spaces, read in ((LONGEST_BYTES - len(job), True), (LONGEST_BYTES, False)):
        body = job[:-1] + b" " * spaces + job[-1:]
        client = Client(fake(answer=lambda method, path, body=body: (200, body, {})).url)
        with contextlib.nullcontext() if read else pytest.raises(RunFailed, match="no merge_bench service"):
            assert client.fetch_job(7).id == 7


def test_the_token_goes_to_no_other_host(fake: Callable[..., Fake], monkeypatch: pytest.MonkeyPatch) -> None:
    other = fake()
    for status in (301, 302, 307, 308):
        to = {"Location": f"http://localhost:{other.server_port}/api/jobs/7"}
        with pytest.raises(MergeBenchError):
            Client(fake(answer=lambda method, path, status=status, to=to: (status, b"", to)).url).fetch_job(7)
    monkeypatch.setenv("http_proxy", other.url)  # a proxy could read it, too
    monkeypatch.setenv("no_proxy", "")
    assert Client(fake().url).fetch_job(7).id == 7
    assert other.asked == []


def test_a_token_is_sought_in_the_environment_then_in_a_file_that_only_its_owner_reads(
    fake: Callable[..., Fake], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = fake()

    def sent() -> str:
        Client(server.url, results=tmp_path).fetch_job(7)
        return server.asked[-1][1]["Authorization"]

    own = tmp_path / ".service/token"
    own.parent.mkdir()
    (tmp_path / "named").write_text("named\n")
    own.write_text("own\n")
    own.chmod(0o600)
    assert sent() == f"Bearer {TOKEN}"
    monkeypatch.delenv("MERGE_BENCH_TOKEN")
    assert sent() == "Bearer own"
    monkeypatch.setenv("MERGE_BENCH_TOKEN_FILE", str(tmp_path / "named"))
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setenv("MERGE_BENCH_TOKEN_FILE", str(tmp_path / "pipe"))
    with pytest.raises(UsageError, match="not a regular file"):
        sent()
    monkeypatch.setenv("MERGE_BENCH_TOKEN_FILE", str(tmp_path / "named"))
    (tmp_path / "named").chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        sent()
    (tmp_path / "named").chmod(0o600)
    assert sent() == "Bearer named"
    (tmp_path / "named").write_text("two\nlines")
    with pytest.raises(UsageError):
        sent()
    monkeypatch.delenv("MERGE_BENCH_TOKEN_FILE")
    with pytest.raises(UsageError, match="needs a token"):
        Client("https://bench.example", results=tmp_path)
    own.unlink()
    with pytest.raises(UsageError, match="MERGE_BENCH_TOKEN"):
        sent()


@pytest.mark.parametrize(
    "url",
    ["ftp://x", "https://", "https://me:token@x", "https://x/path", "https://x?y", "https://x,key", "https://x y"],
)
def test_the_address_of_a_service_is_checked(url: str) -> None:
    with pytest.raises(UsageError, match="not the address of one service"):
        Client(url, "token")


def write_certificate_of_loopback(file: Path) -> None:
    """Write a certificate of 127.0.0.1 that nothing but itself vouches for, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    now, day = dt.datetime.now(dt.UTC), dt.timedelta(1)
    unsigned = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - day, now + day)
    certificate = unsigned.add_extension(address, critical=False).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(certificate.public_bytes(pem) + private)


def test_a_certificate_that_is_not_trusted_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "loopback.pem"
    write_certificate_of_loopback(file)
    server = Fake(lambda method, path: (200, json.dumps(JOB).encode(), {}))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    url = f"https://127.0.0.1:{server.server_port}"
    with pytest.raises(UsageError, match="SSL_CERT_FILE"):
        Client(url, "token").fetch_job(7)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    assert Client(url, "token").fetch_job(7).id == 7
    server.shutdown()
    server.server_close()


def test_a_request_is_repeated_while_the_service_is_away(
    fake: Callable[..., Fake], capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter([(503, b"<html>", {}), (429, b'{"error":{"code":"queue-full","message":"wait"}}', {})])
    usual = (201, json.dumps(JOB).encode(), {})
    server = fake(answer=lambda method, path: next(answers, usual))
    assert Client(server.url, wait=60.0, pause=0.01).queue_job(JobRequest(command="run", key="once")).id == 7
    assert [body["key"] for _, _, body in server.asked] == ["once"] * 3
    assert capsys.readouterr().err.count("trying again") == 1
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(RunFailed, match="refused; check the address"):
        Client(f"http://127.0.0.1:{port}", wait=3600.0).fetch_job(7)  # nothing has answered there yet
    assert time.monotonic() - began < 1800.0
    assert "trying again" not in capsys.readouterr().err


def test_a_service_that_stops_after_an_answer_is_waited_for(
    fake: Callable[..., Fake], capsys: pytest.CaptureFixture[str]
) -> None:
    server = fake()
    client = Client(server.url, wait=0.05, pause=0.01)
    assert client.fetch_job(7).id == 7
    server.shutdown()
    server.server_close()
    with pytest.raises(RunFailed, match=r"refused$"):
        client.fetch_job(7)
    assert capsys.readouterr().err.count("trying again") == 1
