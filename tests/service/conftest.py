"""A server that stands for a service, and answers whatever a test wants."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import pytest

from merge_bench.service.store import hash_token, make_token_proof, token_identifier

TOKEN = "a-secret-that-nobody-records"


JOB = {
    "key": None,
    "words": ["run"],
    "resume": True,
    "attempts": 1,
    "cancelled": False,
    "id": 7,
    "who": "ci",
    "state": "done",
    "command": "merge-bench run",
    "settings": {},
    "status": 0,
    "message": None,
    "result": "20260101T000000Z-x-000000",
    "created": 0.0,
    "started": 0.0,
    "ended": 0.0,
    "ahead": 0,
    "log": "",
}
Answer = tuple[int, bytes, dict[str, str]]


class Fake(ThreadingHTTPServer):
    """A server whose answers are those of `answer`; it keeps what it was asked."""

    def __init__(self, answer: Callable[[str, str], Answer]) -> None:
        asked: list[tuple[str, dict[str, str], Any]] = []
        known = {token_identifier(hash_token(token)): hash_token(token) for token in (TOKEN, "own", "named")}

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # the proof comes over the same connection

            def do_GET(self) -> None:
                if self.path.startswith("/api/proof?"):
                    given = parse_qs(self.path.partition("?")[2])
                    text = json.dumps(
                        {"proof": make_token_proof(known[given["token"][0]], given["nonce"][0], self.headers["Host"])}
                    )
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text.encode())
                    return
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
    """Makes servers that answer with these changes to `JOB`, these records, or whatever a function says.

    Commands that follow a job wait for `patience` seconds while the server is away.
    """
    monkeypatch.setenv("MERGE_BENCH_TOKEN", TOKEN)
    servers: list[Fake] = []

    def make(
        job: object = None,
        records: bytes = b"",
        answer: Callable[[str, str], Answer] | None = None,
        patience: float = 0.0,
    ) -> Fake:
        monkeypatch.setattr("merge_bench.service.client.PATIENCE_SECONDS", patience)

        def usual(method: str, path: str) -> Answer:
            return 200, records if path.endswith("/records") else json.dumps({**JOB, **(job or {})}).encode(), {}

        servers.append(Fake(answer or usual))
        threading.Thread(target=servers[-1].serve_forever, args=[0.01], daemon=True).start()
        return servers[-1]

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()
