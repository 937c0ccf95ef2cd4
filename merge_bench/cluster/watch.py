"""Watch over life and death: who died, who went silent, and how long that is allowed to last."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from distributed import Client

from merge_bench.cluster import on_scheduler, signals
from merge_bench.cluster.base import Launcher
from merge_bench.cluster.first_cause import Member, first_cause, losses
from merge_bench.errors import LaunchFailed
from merge_bench.merge.worker import heartbeat

POLL_SECONDS = 0.5
# How long a loss that may be the consequence of another one waits for the other to be seen. A killed worker's memory
# is given back before the process has ended, and that alone can make UCX abort its peers.
PATIENCE_SECONDS = 2.0
SETTLE_SECONDS = 1.0  # after an error, for the loss of a process that caused it to be seen
# A worker that went silent must be found early enough that the run can still end within the timeout.
SILENT_FRACTION = 0.7


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
        self._silences: dict[str, float] | None = None  # None: not answered yet
        self._generation = 0
        self._answered = time.monotonic()
        self._stop = threading.Event()
        self._fatal: str | None = None
        self._noticed: float | None = None  # when the first loss was seen
        self._checked = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self, members: list[Member]) -> None:
        """Begin to watch these workers."""
        self._members = {member.address: member for member in members}
        self._silences = None  # an answer from before a worker came must not make it look lost
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
        """Raise `LaunchFailed` if a worker or the scheduler died or went silent, naming the one that failed first."""
        self._allow_for_suspension()
        answer = self._silences
        silences = dict(answer or {})
        members = list(self._members.values())
        left = [member for address, member in self._members.items() if answer is not None and address not in answer]
        lost = losses(self._launcher.exited(), left, members, self._launcher.tail)
        if not lost:
            self._noticed = None
        else:
            first, certain = first_cause(lost)
            self._noticed = self._noticed or time.monotonic()
            if not certain and time.monotonic() - self._noticed < PATIENCE_SECONDS:
                return
            reason = f" ({self._fatal})" if self._fatal else ""
            raise LaunchFailed(
                f"{first.shown} {first.how}{reason}", host=first.host, rank=first.member.rank if first.member else None,
                log_tail=first.log_tail or None, code="worker-died" if first.member else "process-died",
            )  # fmt: skip
        silent = max(members, key=lambda member: silences.get(member.address, 0.0), default=None)
        if silent is not None and silences.get(silent.address, 0.0) > self._limit:
            raise LaunchFailed(
                f"{silent.shown} gave no sign of life for {silences[silent.address]:.0f} s",
                host=silent.host, rank=silent.rank, log_tail=self._launcher.tail(silent.name) or None,
                code="worker-silent",
            )  # fmt: skip
        if time.monotonic() - self._answered > self._limit:
            host = self._launcher.placed().get("scheduler")
            raise LaunchFailed(
                f"the scheduler{f' on {host}' if host else ''} gave no answer for {self._limit:.0f} s",
                host=host, log_tail=self._launcher.tail("scheduler") or None, code="scheduler-silent",
            )  # fmt: skip

    def settle(self, *, lost_scheduler: bool = False) -> None:
        """After an error: give the loss that may have caused it time to be seen; raises `LaunchFailed` for it.

        `lost_scheduler`: the connection to the scheduler closed. Then a process of ours ended or a network was cut, and
        the news may need longer, from a busy host over ssh: wait for it, at most until the scheduler counts as silent.
        """
        certain = lost_scheduler and self._launcher.owns_processes
        deadline = time.monotonic() + (self._limit + POLL_SECONDS if certain else SETTLE_SECONDS)
        while time.monotonic() < deadline or self._noticed is not None:
            self.check()
            time.sleep(0.05)

    def _allow_for_suspension(self) -> None:
        """Whether the scheduler answers cannot be known right after this process was itself stopped for a while."""
        now, before = time.monotonic(), self._checked
        self._checked = now
        if now - before > self._limit / 2:
            self._answered = now

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
        signals.check()
        if not done():
            watch.check()
