"""The driver's end of the connection to a host's agent (`host_agent.py`): requests, answers, events, and closing."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

from merge_bench.cluster import host_agent, signals
from merge_bench.cluster.base import Exited
from merge_bench.cluster.supervisor import Child, tail
from merge_bench.errors import LaunchFailed

STDERR_LINES = 3


def main_argv(module: str, *arguments: str) -> tuple[str, ...]:
    """The command that runs a module's `main`: the driver's Python and package, at the paths that they have here."""
    path = f"import sys; sys.path.insert(0, {str(host_agent.ROOT)!r})"
    return (sys.executable, "-P", "-c", f"{path}; from {module} import main; main()", *arguments)


def agent_argv() -> tuple[str, ...]:
    """The command that runs the agent."""
    return main_argv(host_agent.__name__)


class HostAgentClient:
    """An agent on `host`, started by `argv` (the agent's command behind ssh or srun).

    `log`: the file for the standard error of ssh or srun. `on_event` is called from the reading thread with every event
    of the agent. Raises LaunchFailed if there is no such command.
    """

    def __init__(
        self, host: str, argv: Sequence[str], log: Path, on_event: Callable[[HostAgentClient, dict[str, Any]], None]
    ) -> None:
        self.host, self._log, self._on_event = host, log, on_event
        self.exits: list[Exited] = []
        self.started: dict[str, int] = {}
        self.tails: dict[str, str] = {}  # the last lines of each process's log, as the agent sent them last
        self._answers: dict[int, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._number = 0
        self._closing = False
        self.lost: str | None = None
        with signals.deferred():
            # Its input ends when this process does: then the agent ends what it started, and the connection after that.
            try:
                self._process = Child(
                    argv,
                    environment=os.environ,
                    log=log,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    death_signal=None,
                )
            except OSError as error:
                why = f"{argv[0]} cannot be run here: {error.strerror}"
                raise LaunchFailed(f"{host} cannot be reached: {why}", host=host) from error
        threading.Thread(target=self._read, name=f"agent-{host}", daemon=True).start()

    def send(self, do: str, **fields: Any) -> Callable[[float], dict[str, Any]]:
        """Send a request; gives a function that waits at most so many seconds for the answer.

        That function raises `LaunchFailed` if the agent refuses the request or is out of reach.
        """
        answer: Future[dict[str, Any]] = Future()
        with self._lock:
            self._number += 1
            number = self._number
            self._answers[number] = answer
        if self.lost is None:
            self._write({"id": number, "do": do, **fields})
        else:
            answer.cancel()

        def wait(seconds: float) -> dict[str, Any]:
            try:
                message = answer.result(max(seconds, 0.001))
            except CancelledError:
                raise self._unreachable(self.lost or "") from None
            except TimeoutError:
                silent = f"{self.host} did not answer within {seconds:.0f} s"
                raise self._unreachable(f"{silent}{self._complaint()}") from None
            finally:
                self._answers.pop(number, None)
            if "error" in message:
                raise LaunchFailed(f"{self.host}: {message['error']}", host=self.host, code="start-failed")
            return message

        return wait

    def notify(self, do: str) -> None:
        """Send a request that needs no answer."""
        if self.lost is None:
            self._write({"do": do})

    def close(self, deadline: float) -> None:
        """Close the connection: the agent ends what it started and removes its files.

        The program that connects is killed at `deadline`, if it has not ended by then.
        """
        self._closing = True
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.close()
        self._process.wait(max(deadline - time.monotonic(), 0.05))
        self._process.end()

    def _write(self, message: dict[str, Any]) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):  # `_read` notices that too, and reports it
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        for line in self._process.stdout:
            try:
                message = json.loads(line)
            except ValueError:  # a login message of the host's shell
                continue
            if "id" in message:
                answer = self._answers.get(message["id"])
                if answer is not None:
                    answer.set_result(message)
                continue
            if message.get("event") == "exited":
                role = message["role"]
                self.exits.append(Exited(role, self.host, message["pid"], message["status"], message["tail"]))
            if message.get("event") == "log":
                self.tails[message["role"]] = message["tail"]
            self._on_event(self, message)
        status = self._process.wait(math.inf)
        self.lost = f"{self.host} cannot be reached{self._complaint() or f' (status {status})'}"
        if not self._closing:
            gone = {ended.role for ended in self.exits}
            for role, pid in self.started.items():
                if role not in gone:
                    self.exits.append(Exited(role, self.host, pid, None, self.tails.get(role) or tail(self._log)))
        for answer in list(self._answers.values()):
            answer.cancel()

    def _unreachable(self, sentence: str) -> LaunchFailed:
        return LaunchFailed(sentence, host=self.host, log_tail=tail(self._log) or None, code="host-unreachable")

    def _complaint(self) -> str:
        """What ssh or srun printed about the failure, after a colon; empty if nothing."""
        lines = [line.strip() for line in tail(self._log, STDERR_LINES + 20).splitlines() if line.strip()]
        lines = [line for line in lines if not line.startswith(("@", "Warning: Permanently"))]
        chosen = next((line for line in lines if "verification failed" in line.lower()), lines[-1] if lines else "")
        return f": {chosen}" if chosen else ""
