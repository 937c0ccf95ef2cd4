"""The driver's end of the line to one host's guard (`node.py`): requests, answers, news, and the line's own end."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from merge_bench.cluster import node, signals
from merge_bench.cluster.base import Exited
from merge_bench.cluster.supervisor import Child, tail
from merge_bench.errors import LaunchFailed

STDERR_LINES = 3


def guard_argv() -> tuple[str, ...]:
    """The command that runs the guard: this Python and this package, at the paths they have here."""
    code = f"import sys; sys.path.insert(0, {str(node.ROOT)!r}); from merge_bench.cluster.node import main; main()"
    return (sys.executable, "-P", "-c", code)


class GuardLine:
    """A guard on `host`, started by `argv` (the guard's command behind ssh or srun).

    `log`: where the connecting program's own complaints go. `on_news` is called from the reading thread with every
    event of the guard.
    """

    def __init__(
        self, host: str, argv: Sequence[str], log: Path, on_news: Callable[[GuardLine, dict[str, Any]], None]
    ) -> None:
        self.host, self._log, self._on_news = host, log, on_news
        self.exits: list[Exited] = []
        self.started: dict[str, int] = {}
        self.tails: dict[str, str] = {}  # the last lines of each process's log, as the guard last told them
        self._answers: dict[int, queue.SimpleQueue[dict[str, Any] | None]] = {}
        self._lock = threading.Lock()
        self._number = 0
        self._closing = False
        self.lost: str | None = None
        with signals.deferred():
            # Its input ends with this process: then the guard ends what it started, and the connection after it.
            self._process = Child(
                argv, environment=os.environ, log=log, stdin=subprocess.PIPE, stdout=subprocess.PIPE, death_signal=None
            )
        threading.Thread(target=self._read, name=f"guard-{host}", daemon=True).start()

    def send(self, do: str, **fields: Any) -> Callable[[float], dict[str, Any]]:
        """Send a request; gives a function that waits at most so many seconds for the answer.

        That function raises `LaunchFailed` if the guard refuses or cannot be heard any more.
        """
        box: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        with self._lock:
            self._number += 1
            number = self._number
            self._answers[number] = box
        if self.lost is None:
            self._write({"id": number, "do": do, **fields})
        else:
            box.put(None)

        def wait(seconds: float) -> dict[str, Any]:
            try:
                answer = box.get(timeout=max(seconds, 0.001))
            except queue.Empty:
                raise LaunchFailed(
                    f"{self.host} gave no answer for {seconds:.0f} s{self._complaint(': ')}",
                    host=self.host, log_tail=tail(self._log) or None, code="host-unreachable",
                ) from None  # fmt: skip
            finally:
                self._answers.pop(number, None)
            if answer is None:
                raise LaunchFailed(
                    self.lost or "", host=self.host, log_tail=tail(self._log) or None, code="host-unreachable"
                )
            if "error" in answer:
                raise LaunchFailed(f"{self.host}: {answer['error']}", host=self.host, code="start-failed")
            return answer

        return wait

    def notify(self, do: str) -> None:
        """Send a request that needs no answer."""
        if self.lost is None:
            self._write({"do": do})

    def close(self, deadline: float) -> None:
        """Hang up: the guard ends what it started and removes its files. What does not end by itself is killed."""
        self._closing = True
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.close()
        self._process.wait(max(deadline - time.monotonic(), 0.05))
        self._process.end()

    def _write(self, message: dict[str, Any]) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):  # the reader finds out, and says so
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        for line in self._process.stdout:
            try:
                message = json.loads(line)
            except ValueError:  # a login message of the host's shell
                continue
            if "id" in message:
                box = self._answers.get(message["id"])
                if box is not None:
                    box.put(message)
                continue
            if message.get("event") == "exited":
                role = message["role"]
                self.exits.append(Exited(role, self.host, message["pid"], message["status"], message["tail"]))
            if message.get("event") == "log":
                self.tails[message["role"]] = message["tail"]
            self._on_news(self, message)
        status = self._process.wait(math.inf)
        self.lost = f"{self.host} cannot be reached{self._complaint(': ') or f' (status {status})'}"
        if not self._closing:
            gone = {ended.role for ended in self.exits}
            for role, pid in self.started.items():
                if role not in gone:
                    self.exits.append(Exited(role, self.host, pid, None, self.tails.get(role) or tail(self._log)))
        for box in list(self._answers.values()):
            box.put(None)

    def _complaint(self, before: str) -> str:
        lines = [line.strip() for line in tail(self._log, STDERR_LINES + 20).splitlines() if line.strip()]
        lines = [line for line in lines if not line.startswith(("@", "Warning: Permanently"))]
        chosen = next((line for line in lines if "verification failed" in line.lower()), lines[-1] if lines else "")
        return before + chosen if chosen else ""
