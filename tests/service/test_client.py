"""Measuring on a service: what is asked of it, what comes home, and what is said when that does not work."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509

from merge_bench.cluster import certificate
from merge_bench.errors import MergeBenchError, RunFailed, UsageError
from merge_bench.records.writer import RECORDS
from merge_bench.service.client import Client
from merge_bench.service.documents import JobRequest
from tests.helpers.runs import LIMIT, Finished, command, environment
from tests.helpers.synthetic_campaigns import write_campaign
from tests.tune.clusters import TRUTH, Cluster, begin, evaluator_of, search

TOKEN = "a-secret-that-nobody-records"
RECORDED = Path(__file__).parents[1] / "data" / "campaigns"


JOB = {
    "key": None, "words": ["run"], "resume": True, "attempts": 1, "cancelled": False,
    "id": 7, "who": "ci", "state": "done", "command": "merge-bench run", "settings": {}, "status": 0, "message": None,
    "result": "20260101T000000Z-x-000000", "created": 0.0, "started": 0.0, "ended": 0.0, "ahead": 0, "log": "",
}  # fmt: skip
Answer = tuple[int, bytes, dict[str, str]]


class Fake(ThreadingHTTPServer):
    """A server whose answers are those of `answer`; it keeps what it was asked."""

    def __init__(self, answer: Callable[[str, str], Answer]) -> None:
        asked: list[tuple[str, dict[str, str], Any]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                asked.append((f"{self.command} {self.path}", dict(self.headers), json.loads(body) if body else None))
                status, text, headers = answer(self.command, self.path)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(text)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                with contextlib.suppress(ConnectionError):
                    self.wfile.write(text)

            do_POST = do_DELETE = do_GET

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.asked, self.url = asked, f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Fake]]:
    """Makes servers that answer with these changes to `JOB`, these records, or whatever a function says."""
    monkeypatch.setattr("merge_bench.service.client.PATIENCE", 0.0)
    monkeypatch.setenv("MERGE_BENCH_TOKEN", TOKEN)
    servers: list[Fake] = []

    def make(job: object = None, records: bytes = b"", answer: Callable[[str, str], Answer] | None = None) -> Fake:
        def usual(method: str, path: str) -> Answer:
            return 200, records if path.endswith("/records") else json.dumps({**JOB, **(job or {})}).encode(), {}

        servers.append(Fake(answer or usual))
        threading.Thread(target=servers[-1].serve_forever, args=[0.01], daemon=True).start()
        return servers[-1]

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("name", ["../evil", "..", ".", "", "/tmp/evil", "a/b", "a\0b", ".service", "x" * 300, None])
def test_a_name_that_could_leave_the_folder_is_refused(fake: Callable[..., Fake], tmp_path: Path, name: str) -> None:
    client = Client(fake({"result": name}, b"evil").url)
    with pytest.raises(RunFailed):
        client.records(client.job(7), tmp_path / "in/results")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_other_records_of_the_same_name_are_kept(fake: Callable[..., Fake], tmp_path: Path) -> None:
    client, folder = Client(fake(records=b"theirs").url), tmp_path / str(JOB["result"])
    assert client.records(client.job(7), tmp_path) == folder
    assert client.records(client.job(7), tmp_path) == folder  # the same once more
    (folder / RECORDS).write_bytes(b"mine")
    with pytest.raises(RunFailed, match="other records"):
        client.records(client.job(7), tmp_path)
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
        Client(fake(answer=lambda method, path: HOSTILE[kind]).url).job(7)
    assert str(found.value).isprintable()
    assert len(str(found.value)) < 1000


def test_an_answer_that_is_too_long_is_not_kept(fake: Callable[..., Fake], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("merge_bench.service.client._LONGEST", 100)
    with pytest.raises(RunFailed, match="no merge_bench service"):
        Client(fake({"log": "x" * 1000}).url).job(7)


def test_the_token_goes_to_no_other_host(fake: Callable[..., Fake], monkeypatch: pytest.MonkeyPatch) -> None:
    other = fake()
    for status in (301, 302, 307, 308):
        to = {"Location": f"http://localhost:{other.server_port}/api/jobs/7"}
        with pytest.raises(MergeBenchError):
            Client(fake(answer=lambda method, path, status=status, to=to: (status, b"", to)).url).job(7)
    monkeypatch.setenv("http_proxy", other.url)  # a proxy could read it, too
    monkeypatch.setenv("no_proxy", "")
    assert Client(fake().url).job(7).id == 7
    assert other.asked == []


def test_a_token_is_sought_in_the_environment_then_in_a_file_that_only_its_owner_reads(
    fake: Callable[..., Fake], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = fake()

    def sent() -> str:
        Client(server.url, results=tmp_path).job(7)
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
    with pytest.raises(UsageError, match="--on"):
        Client(url, "token")


def test_a_certificate_that_is_not_trusted_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # The module itself stays as it is: the library keeps what it finds there.
    of_an_address = {"DNSName": lambda name: x509.IPAddress(ipaddress.ip_address("127.0.0.1"))}
    monkeypatch.setattr(certificate, "x509", SimpleNamespace(**{**vars(x509), **of_an_address}))
    files = certificate.write(tmp_path)
    server = Fake(lambda method, path: (200, json.dumps(JOB).encode(), {}))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files["cert"], files["key"])
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    url = f"https://127.0.0.1:{server.server_port}"
    with pytest.raises(UsageError, match="SSL_CERT_FILE"):
        Client(url, "token").job(7)
    monkeypatch.setenv("SSL_CERT_FILE", files["ca"])
    assert Client(url, "token").job(7).id == 7
    server.shutdown()
    server.server_close()


def test_a_request_is_repeated_while_the_service_is_away(
    fake: Callable[..., Fake], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("merge_bench.service.client._PAUSE", 0.01)
    answers = iter([(503, b"<html>", {}), (429, b'{"error":{"code":"queue-full","message":"wait"}}', {})])
    usual = (201, json.dumps(JOB).encode(), {})
    server = fake(answer=lambda method, path: next(answers, usual))
    assert Client(server.url, wait=60.0).add(JobRequest(command="run", key="once")).id == 7
    assert [body["key"] for _, _, body in server.asked] == ["once"] * 3
    assert capsys.readouterr().err.count("trying again") == 1
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(RunFailed, match="refused"):
        Client(f"http://127.0.0.1:{port}").job(7)


def on_fake(server: Fake, folder: Path, *words: str, **surroundings: str) -> Any:
    environ = {"MERGE_BENCH_TOKEN": TOKEN, **surroundings}
    verb = ("tune",) if words[:1] == ("tune",) else ("run",)
    return command(
        folder, *words[words[:1] == verb :], "--on", server.url, environ=environ, json_output=False, verb=verb
    )


def test_exactly_the_options_that_were_given_are_sent_as_they_were_typed(
    fake: Callable[..., Fake], tmp_path: Path
) -> None:
    records = (write_campaign(tmp_path) / RECORDS).read_bytes()
    server = fake(records=records)
    words = ("tcp", "--chunk", "25e6", "--threshold", "3%", "--check-link", "--details", "--left-on", "a,b")
    on_fake(server, tmp_path / "1", *words, "--left-on", "c", MERGE_BENCH_WARMUP="0", MERGE_BENCH_CHUNK="7")
    asked, _, body = server.asked[0]
    key = body.pop("key")
    assert (asked, len(key)) == ("POST /api/jobs", 32)
    assert body == {
        "command": "run", "configs": ["tcp.cfg"], "settings": {}, "resume": True,
        "options": {
            "chunk": "25e6", "threshold": "3%", "check_link": True, "left_on": ["a,b", "c"], "warmup": "0"
        },
    }  # fmt: skip
    config = tmp_path / "my.cfg"
    config.write_text("export UCX_TLS=tcp\nCHUNK_SIZE=1000\n")
    on_fake(server, tmp_path / "2", "--config", str(config))
    body = server.asked[-3][2]
    assert (body["configs"], body["settings"]) == ([], {"UCX_TLS": "tcp", "MERGE_BENCH_CHUNK": "1000"})
    on_fake(server, tmp_path / "3", "--configs", f"{config},tcp").check_refused("shipped configs")
    on_fake(server, tmp_path / "4", "--dry-run").check_refused("--dry-run")
    on_fake(server, tmp_path / "5", "--on", "key").check_refused("address of one service")


@pytest.mark.parametrize(
    ("job", "status"),
    [
        ({"state": "cancelled", "message": "\x1b[2J cancelled"}, 3), ({"state": "interrupted", "status": None}, 3),
        ({"state": "failed", "status": 5}, 5), ({"state": "failed", "status": -9}, 3),
        ({"state": "failed", "status": 0}, 3), ({"log": "\x1b[2J\n\rx\x07\n"}, 0),
    ],
)  # fmt: skip
def test_every_end_of_a_job_has_its_status_and_no_control_character_is_printed(
    fake: Callable[..., Fake], tmp_path: Path, job: dict[str, Any], status: int
) -> None:
    records = (write_campaign(tmp_path) / RECORDS).read_bytes()
    for more in ({}, {"result": None} if job.get("state") else {}):
        finished = on_fake(fake({**job, **more}, records), tmp_path / f"run{len(more)}")
        assert finished.status == status, finished.errors
        assert {each for each in finished.output + finished.errors if not each.isprintable()} <= {"\n"}
        assert "Traceback" not in finished.errors


def test_output_is_printed_once_as_it_grows(fake: Callable[..., Fake], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("merge_bench.cli.jobs._POLL_SECONDS", 0.0)
    lines = [f"line {number}\n" for number in range(40)]
    text = "".join(lines)
    ends = iter([*range(0, len(text), 37), len(text)])
    records = (write_campaign(tmp_path) / RECORDS).read_bytes()

    def answer(method: str, path: str) -> Answer:
        if path.endswith("/records"):
            return 200, records, {}
        end = next(ends, len(text))
        state = "done" if end == len(text) else "running"
        return 200, json.dumps({**JOB, "state": state, "log": text[max(0, end - 90) : end]}).encode(), {}

    finished = on_fake(fake(answer=answer), tmp_path / "run")
    assert [line for line in finished.errors.splitlines(keepends=True) if line.startswith("line")] == lines


@pytest.mark.cluster
def test_a_second_ctrl_c_leaves_at_once_and_names_the_command_that_cancels(
    fake: Callable[..., Fake], tmp_path: Path
) -> None:
    server = fake({"state": "running"})
    (tmp_path / "tmp").mkdir()
    surroundings = environment(tmp_path / "tmp", {"MERGE_BENCH_TOKEN": TOKEN})
    words = [sys.executable, "-P", "-m", "merge_bench", "run", "--on", server.url]
    process = subprocess.Popen(words, env=surroundings, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + LIMIT
    for asked in ("GET /api/jobs/7", "DELETE /api/jobs/7"):
        while not any(each == asked for each, _, _ in server.asked):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=LIMIT)[1]
    assert process.returncode == -signal.SIGINT
    assert f"jobs cancel 7 --on {server.url}" in errors


def test_a_tuning_comes_home_with_the_config_that_it_found(
    fake: Callable[..., Fake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with begin(tmp_path) as writer:
        search(evaluator_of(writer, Cluster(writer).launch))
    server, config = fake(records=writer.records.read_bytes()), tmp_path / "found.cfg"
    words = ("tune", "--only", "rails", "--output", str(config), "--json")
    finished = on_fake(server, tmp_path / "other", *words)
    assert (finished.status, config.exists()) == (3, False)
    assert "another tuning space" in finished.errors
    monkeypatch.setattr("merge_bench.tune.space.read_space", lambda path: TRUTH.space)
    finished = on_fake(server, tmp_path / "same", *words)
    assert finished.status == 0, finished.errors
    assert (finished.document["config"], finished.document["winner"]["settings"]) == (str(config), ["a=y", "b=y"])
    assert "export UCX_" in config.read_text()
    assert server.asked[0][2]["options"] == {"only": ["rails"]}


def test_the_gate_of_several_configs_is_shown_from_their_records(fake: Callable[..., Fake], tmp_path: Path) -> None:
    server = fake({"state": "failed", "status": 5}, (RECORDED / "sweep" / RECORDS).read_bytes())
    words = ("--configs", "default,tcp", "--fail-on", "slower", "--json")
    finished = on_fake(server, tmp_path / "run", *words)
    assert finished.status == 5
    assert finished.document["comparisons"] != []
    assert server.asked[0][2]["configs"] == ["default.cfg", "tcp.cfg"]


@pytest.mark.parametrize(("verb", "words", "tries"), [("jobs list", (), 1), ("jobs show", ("7",), 1), ("run", (), 3)])
def test_only_a_command_that_follows_a_job_waits_for_a_service_that_is_away(
    fake: Callable[..., Fake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, words: tuple[str], tries: int
) -> None:
    monkeypatch.setattr("merge_bench.service.client.PATIENCE", 60.0)
    monkeypatch.setattr("merge_bench.service.client._PAUSE", 0.01)
    answers = iter([(503, b"<html>", {})] * 2)
    gone = (404, b'{"error":{"code":"no-such-job","message":"there is no job with this number"}}', {})
    server = fake(answer=lambda method, path: next(answers, gone))
    finished = typed(server, tmp_path, verb, *words)
    assert (finished.status, len(server.asked)) == (3 if tries == 1 else 2, tries)
    assert ("trying again" in finished.errors) == (tries > 1)


def typed(server: Fake, folder: Path, verb: str, *words: str) -> Finished:
    words = (*words, "--on", server.url)
    return command(folder, *words, environ={"MERGE_BENCH_TOKEN": TOKEN}, json_output=False, verb=verb.split())


BARE = {"schema": 1, "kind": "campaign", "time": 1.0, "campaign_id": "x", "argv": [], "version": "0", "runs": []}
STRANGE = {
    "newer": {**BARE, "schema": 999},
    "damaged": [],
    "nothing run": {**BARE, "configs": [], "plans": []},
    "nothing tuned": {**BARE, "configs": [], "plans": [{"tune": {}}]},
    "nothing measured": {**BARE, "configs": [], "plans": [{"probe": "p2p"}]},
}


@pytest.mark.parametrize("verb", ["run", "tune", "probe p2p"])
@pytest.mark.parametrize("sent", ["run", "tune", "p2p", "mpi", *STRANGE])
def test_records_of_another_kind_and_strange_ones_end_the_command_with_one_sentence(
    fake: Callable[..., Fake], tmp_path: Path, verb: str, sent: str
) -> None:
    records = (
        json.dumps(STRANGE[sent]).encode() + b"\n" if sent in STRANGE else (RECORDED / sent / RECORDS).read_bytes()
    )
    finished = typed(fake(records=records), tmp_path, verb)
    if sent == verb.split()[-1]:
        assert (finished.status, finished.errors) == (0, "")
        return
    assert (finished.status, finished.output) == (3, "")
    assert finished.errors.startswith("merge_bench: ")
    assert finished.errors.count("\n") == 1


def test_a_job_of_a_schedule_is_listed_with_its_name(fake: Callable[..., Fake], tmp_path: Path) -> None:
    listed = {
        "jobs": [
            {**JOB, "ended": 99.0, "schedule": "nightly", "command": "merge-bench run --config=" + "x" * 80},
            {**JOB, "ended": 9.0},
        ]
    }
    server = fake(answer=lambda method, path: (200, json.dumps(listed).encode(), {}))
    head, first, second = typed(server, tmp_path, "jobs list").output.splitlines()
    place = head.index("Queued by")
    assert (first[place:].split("  ")[0], second[place:].split()[0]) == ("schedule nightly", "ci")
    assert max(map(len, (head, first, second))) <= 80
