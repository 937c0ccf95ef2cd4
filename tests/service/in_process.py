"""A service in a thread of this process, whose jobs are harmless."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bokeh.server.server import BaseServer
from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop
from tornado.testing import bind_unused_port

from merge_bench.dashboard.app import make_dashboard_application
from merge_bench.host.network import allowed_page_origins
from merge_bench.service.api import LOCAL, ServiceContext, ServiceLimits
from merge_bench.service.job_rules import JobRules
from merge_bench.service.runner import JobRunner
from merge_bench.service.serve import AuthorizingRouter, ServiceResultsFolder
from merge_bench.service.store import ServiceStore


@dataclass
class Running:
    """A service in a thread of this process."""

    port: int
    store: ServiceStore
    tokens: Mapping[str, str]
    folder: Path
    mistakes: list[str]
    """What it logged as an error."""
    service: ServiceContext

    def ask(
        self, method: str, path: str, body: object = None, *, token: str | None = "ci", **headers: str
    ) -> tuple[int, dict[str, Any]]:
        """Status and body of the answer, nothing for a page; `headers` with underscores; empty ones are not sent."""
        sent = {"Host": f"127.0.0.1:{self.port}", "Content-Type": "application/json" if body is not None else ""}
        if token is not None:
            sent["Authorization"] = f"Bearer {self.tokens.get(token, token)}"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                if value:
                    connection.putheader(name, value)
            if data is not None:
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data)
            answer = connection.getresponse()
            text = answer.read()
        assert answer.headers["Server"] is None
        return answer.status, {} if text.startswith(b"<") else json.loads(text)

    def occupy(self) -> None:
        """Queue a job and wait until it runs: as long as it does, others wait."""
        self.store.add_job("ci", ["run"], {}, most_queued=10**6)
        self.service.runner.look_for_jobs_now()
        deadline = time.monotonic() + 60
        while self.store.find_running_job() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def refused(self, status: int, method: str, path: str, body: object = None, **given: Any) -> dict[str, Any]:
        """The same for a request that is refused with one sentence."""
        found, answer = self.ask(method, path, body, **given)
        assert found == status, answer
        assert set(answer) == {"error"}
        assert "\n" not in answer["error"]["message"]
        assert "Traceback" not in answer["error"]["message"]
        return answer["error"]

    def raw(self, data: bytes, wait: float = 60.0) -> bytes:
        """What the service answers to these bytes until it closes the connection, or sends nothing for that long."""
        found = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait) as connection:
            connection.sendall(data)
            with contextlib.suppress(TimeoutError):
                while part := connection.recv(65536):
                    found += part
        return found


class Mistakes(logging.Handler):
    """Keeps the texts of what is logged as an error."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@contextlib.contextmanager
def running(
    folder: Path,
    limits: ServiceLimits,
    *,
    job: Sequence[str] = ("true",),
    clock: Callable[[], float] = time.monotonic,
    make_results: Callable[[Path, JobRunner], ServiceResultsFolder] = ServiceResultsFolder,
    commands: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[Running]:
    """A service that runs the command `job` for every job; `clock`: for its limits and sessions.

    `commands`: those that its operator named.
    """
    (folder / "results").mkdir()
    (folder / "tables").mkdir()
    store = ServiceStore(folder / "service.sqlite")
    tokens = {name: store.add_token(name, role) for name, role in (("ci", "run"), ("other", "run"), ("reader", "read"))}
    tokens[LOCAL] = store.add_token(LOCAL, "run")
    runner = JobRunner(store, folder / "jobs", folder / "results", job_seconds=60, command=lambda words, _: list(job))
    ports, ready, loops, services = [], threading.Event(), [], list[ServiceContext]()

    async def main() -> None:
        listening, port = bind_unused_port(address="127.0.0.1")
        index = make_results(folder / "results", runner)
        service = ServiceContext(
            store=store,
            runner=runner,
            rules=JobRules(folder / "results", (folder / "tables",), commands or {}),
            limits=limits,
            hosts=frozenset(allowed_page_origins("127.0.0.1", port)),
            scheme="http",
            results=index,
            clock=clock,
        )
        services.append(service)
        gate = AuthorizingRouter(service, make_dashboard_application, pace=lambda: 0.0)
        server = HTTPServer(gate, max_body_size=limits.body_bytes)
        server.add_sockets([listening])
        pages = BaseServer(IOLoop.current(), gate.pages, server)
        pages.start()
        ends = asyncio.Event()
        loops.append((asyncio.get_running_loop(), ends))
        ports.append(port)
        ready.set()
        await ends.wait()
        pages.stop()
        await server.close_all_connections()
        service.threads.shutdown()

    mistakes = Mistakes(logging.ERROR)
    logging.getLogger().addHandler(mistakes)
    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert ready.wait(60)
    runner.start()
    try:
        yield Running(ports[0], store, tokens, folder, mistakes.texts, services[0])
    finally:
        logging.getLogger().removeHandler(mistakes)
        loop, ends = loops[0]
        loop.call_soon_threadsafe(ends.set)
        thread.join()
        runner.close()
        store.close()
