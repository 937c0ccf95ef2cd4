"""A real service in a process of its own, and a client that asks it; or a service that is started in this process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from merge_bench.service.api import ServiceContext
from merge_bench.service.serve import ServiceSettings, start_service
from tests.helpers.leftovers import Before, processes
from tests.helpers.runs import LIMIT, ROOT, environment

ENDED = ("done", "failed", "cancelled", "interrupted")


class RealService:
    """`merge-bench serve` on a free port of loopback, whose results lie in `folder`, if not elsewhere.

    `variables`: of its environment, besides those of any test.
    """

    def __init__(
        self,
        folder: Path,
        *options: str,
        results: Path | None = None,
        variables: Mapping[str, str] | None = None,
        port: str = "0",
    ) -> None:
        self.folder, self.results, self.temp = folder, results or folder / "results", folder / "tmp"
        self.temp.mkdir(parents=True)
        self.before = Before(self.temp)
        self.options, self.variables = options, variables
        self.pids: set[int] = set()
        self.port = port
        self.start()

    def start(self) -> None:
        """Start it, and return when it listens."""
        self.process = self.command(*self.options, "--port", self.port, stderr=subprocess.PIPE)
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        found = re.search(r"(https?://[^ ]+:\d+)/", line)
        assert found is not None, line + self.process.stderr.read()
        self.url = found[1]
        self.port = self.url.rpartition(":")[2]  # clients find it there again
        self.token = (self.results / ".service/token").read_text().strip()

    def command(self, *words: str, **given: Any) -> subprocess.Popen[str]:
        """`merge-bench serve` with these words."""
        command = [sys.executable, "-P", "-m", "merge_bench", "serve", "--results", str(self.results), *words]
        surroundings = environment(self.temp, self.variables)
        return subprocess.Popen(command, text=True, cwd=ROOT, env=surroundings, start_new_session=True, **given)

    def kill(self) -> None:
        """Kill it and nothing else, as ``kill -9`` does."""
        self.pids |= set(processes(self.temp))
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """End it by SIGTERM; gives its exit status."""
        self.pids |= set(processes(self.temp))
        self.process.terminate()
        return self.process.wait(LIMIT)

    def close(self) -> None:
        """End it whatever happened."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()

    def ask(self, method: str, path: str, body: object = None, token: str | None = None) -> tuple[int, dict[str, Any]]:
        """Status and body of the answer."""
        headers = {"Authorization": f"Bearer {token or self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            return refusal.code, json.load(refusal)

    def add(self, body: object) -> int:
        """Queue a job; gives its number."""
        status, job = self.ask("POST", "/api/jobs", body)
        assert status == 201, job
        return int(job["id"])

    def until(self, number: int, *states: str) -> dict[str, Any]:
        """The job, once it is in one of these states."""
        deadline = time.monotonic() + LIMIT
        while (job := self.ask("GET", f"/api/jobs/{number}")[1])["state"] not in states:
            assert job["state"] not in ENDED, job
            assert time.monotonic() < deadline, job
            time.sleep(0.1)
        return job


@contextlib.contextmanager
def started(results: Path) -> Iterator[ServiceContext]:
    """The service of these results in this process, with its locks and its token; it listens nowhere."""
    with contextlib.ExitStack() as stack:
        yield start_service(stack, ServiceSettings(results, 0, "127.0.0.1"), hosts=(), scheme="http")


@contextlib.contextmanager
def ends_well(service: RealService) -> Iterator[RealService]:
    """The service, which ends with status 0 after the block and leaves no process and no file behind."""
    try:
        yield service
        assert service.stop() == 0
        assert service.before.left_after(service.pids, 30) == []
    finally:
        service.close()
