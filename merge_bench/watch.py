"""Watch over life and death: who died, who went silent, and how long that is allowed to last."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from distributed import Client

from merge_bench import on_scheduler
from merge_bench.errors import LaunchFailed
from merge_bench.launch.base import Launcher
from merge_bench.worker import heartbeat

POLL_SECONDS = 0.5
# Without error handling UCX aborts a worker whose peer dies while it reads from its memory. Never name that one.
_LOST_PEER = "No such process"  # as the kernel says it, in the worker's log
ABORTED_SECONDS = 0.6  # a killed worker's memory is given back before it has ended: by then another may have aborted
# A worker that went silent must be found early enough that the run can still end within the timeout.
SILENT_FRACTION = 0.7


@dataclass(frozen=True)
class Member:
    """One worker as the driver knows it."""

    rank: int
    address: str
    name: str
    host: str
    pid: int

    @property
    def shown(self) -> str:
        """How messages name it."""
        process = f", process {self.pid}" if self.pid else ""
        return f"rank {self.rank} (worker {self.name}{process} on {self.host})"


def broadcast(client: Client, step: Callable[..., Any], *arguments: Any) -> None:
    """Have every worker run a coroutine on its event loop, and wait for none: one of them may never answer."""

    async def send() -> None:
        with contextlib.suppress(Exception):
            await client._run(step, *arguments, wait=False, on_error="ignore")

    client.loop.add_callback(send)


class Watch:
    """Asks the scheduler, every half second, when it last heard of each worker; looks at our processes too.

    `check` raises `LaunchFailed` for the first thing that is wrong. It also tells the workers that the driver lives.
    """

    def __init__(self, client: Client, launcher: Launcher, timeout: float) -> None:
        self._client, self._launcher = client, launcher
        self._limit = timeout * SILENT_FRACTION
        self._members: Mapping[str, Member] = {}
        self._silences: dict[str, float] = {}
        self._generation = 0
        self._answered = time.monotonic()
        self._stop = threading.Event()
        self._fatal: str | None = None
        self._aborted: float | None = None
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self, members: list[Member]) -> None:
        """Begin to watch these workers."""
        self._members = {member.address: member for member in members}
        self._silences = {}  # an answer from before a worker came must not make it look lost
        self._generation += 1
        self._answered = time.monotonic()
        if not self._thread.is_alive():
            self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._stop.set()

    def report(self, message: str) -> None:
        """Something that a worker said of itself before it ended, to be told instead of its death."""
        self._fatal = message

    def check(self) -> None:
        """Raise `LaunchFailed` if a worker or the scheduler died or went silent."""
        by_name = {member.name: member for member in self._members.values()}
        exited = sorted(self._launcher.exited(), key=lambda each: each.status == -signal.SIGABRT)
        if exited and exited[0].status == -signal.SIGABRT:
            self._aborted = self._aborted or time.monotonic()
            if time.monotonic() - self._aborted < ABORTED_SECONDS:
                return
        for ended in exited:
            member = by_name.get(ended.role)
            who = member.shown if member else f"{ended.role} (process {ended.pid} on {ended.host})"
            reason = f" ({self._fatal})" if self._fatal else ""
            raise LaunchFailed(
                f"{who} {ended.how} during the run{reason}", host=ended.host, rank=member.rank if member else None,
                log_tail=ended.log_tail, code="worker-died" if member else "process-died",
            )  # fmt: skip
        silences = dict(self._silences)
        if silences:
            left = [member for address, member in self._members.items() if address not in silences]
            if left:
                member = min(left, key=lambda each: _LOST_PEER in self._launcher.tail(each.name))
                reason = f" ({self._fatal})" if self._fatal else ""
                raise LaunchFailed(
                    f"{member.shown} left the cluster{reason}", host=member.host, rank=member.rank,
                    log_tail=self._launcher.tail(member.name) or None, code="worker-died",
                )  # fmt: skip
            for address, member in self._members.items():
                if silences[address] > self._limit:
                    raise LaunchFailed(
                        f"{member.shown} gave no sign of life for {silences[address]:.0f} s",
                        host=member.host, rank=member.rank, log_tail=self._launcher.tail(member.name) or None,
                        code="worker-silent",
                    )  # fmt: skip
        if time.monotonic() - self._answered > self._limit:
            host = self._launcher.placed().get("scheduler")
            raise LaunchFailed(
                f"the scheduler{f' on {host}' if host else ''} gave no answer for {self._limit:.0f} s",
                host=host, log_tail=self._launcher.tail("scheduler") or None, code="scheduler-silent",
            )  # fmt: skip

    def _run(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            try:
                generation = self._generation
                silences = self._client.run_on_scheduler(on_scheduler.silences)
                self._answered = time.monotonic()
                if generation == self._generation:
                    self._silences = silences
                broadcast(self._client, heartbeat)
            except Exception:  # the connection is gone; `check` tells after the limit, or sooner from the processes
                continue


def wait_until(done: Callable[[], bool], wake: threading.Event, watch: Watch) -> None:
    """Return when `done`; look at the watch while waiting."""
    while not done():
        wake.wait(0.1)
        wake.clear()
        if not done():
            watch.check()
