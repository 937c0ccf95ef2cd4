"""Calls of libraries that wait without a limit, made in a thread so that the worker's own wait has one."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from merge_bench.errors import RunFailed
from merge_bench.merge.exchange.base import STALL_FACTOR, Abort

CHECK_SECONDS = 0.05

Result = TypeVar("Result")


class Call(Generic[Result]):
    """A call that was begun: `returned` is set at its end, then `results` or `errors` has an element."""

    def __init__(self, function: Callable[[], Result], doing: str) -> None:
        self._function, self.doing = function, doing
        self.returned = threading.Event()
        self.results: list[Result] = []
        self.errors: list[BaseException] = []

    def make(self) -> None:
        """Make the call; the thread of `LimitedCalls` does."""
        try:
            self.results.append(self._function())
        except BaseException as error:
            self.errors.append(error)
        self.returned.set()


class LimitedCalls:
    """One thread that makes one call after the other.

    A call that never returns keeps its thread, and all that it uses, for as long as the process runs: what it waits for
    may still write into that memory.

    Parameters
    ----------
    begin
        Called once in the thread before any call, to bind a CUDA context there.
    timeout
        Seconds without progress and without a heartbeat after which a wait ends.
    """

    def __init__(self, rank: int, abort: Abort, timeout: float, begin: Callable[[], object]) -> None:
        self._rank, self._abort, self._timeout = rank, abort, timeout
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stuck = ""
        threading.Thread(target=self._serve, name="limited-calls", daemon=True).start()
        self.call(begin, "preparing a thread")

    def call(self, function: Callable[[], Result], doing: str, progress: Callable[[], float] = lambda: 0.0) -> Result:
        """What the function returns; the arguments are those of `start` and `wait`."""
        return self.wait(self.start(function, doing), progress)

    def start(self, function: Callable[[], Result], doing: str) -> Call[Result]:
        """Begin a call, to be waited for with `wait`; `doing`: what it does, as in ``waiting for rows``.

        Raises
        ------
        RunFailed
            If an earlier call has not returned.
        """
        if self._stuck:
            raise RunFailed(f"rank {self._rank} is still {self._stuck}, after a run that failed; restart the workers")
        call = Call(function, doing)
        self._calls.put(call.make)
        return call

    def wait(self, call: Call[Result], progress: Callable[[], float] = lambda: 0.0) -> Result:
        """What a call returns, or the exception that it raises.

        `progress`: a number that changes while there is progress.

        Raises
        ------
        RunFailed
            If the run is aborted, or there is no progress for too long.
        """
        try:
            self._wait(call, progress)
        except RunFailed:
            self._stuck = call.doing
            raise
        if call.errors:
            raise call.errors[0]
        return call.results[0]

    def end(self, function: Callable[[], object], seconds: float) -> None:
        """Make a last call and end the thread; waits so many seconds at most for it."""
        call = Call(function, "ending")
        self._calls.put(call.make)
        self._calls.put(_end)
        call.returned.wait(seconds)

    def _serve(self) -> None:
        call: Any = None
        while call is not _end:
            call = self._calls.get()
            call()

    def _wait(self, call: Call[Any], progress: Callable[[], float]) -> None:
        last, since = progress(), time.monotonic()
        while not call.returned.wait(CHECK_SECONDS):
            self._abort.check()
            now, moved = time.monotonic(), progress()
            if moved != last:
                last, since = moved, now
            silent, unheard = now - since, now - self._abort.last_heartbeat
            if silent >= self._timeout and (unheard >= self._timeout or silent >= STALL_FACTOR * self._timeout):
                raise RunFailed(f"rank {self._rank} was {call.doing} for {silent:.0f} s without progress")


def _end() -> None:
    """Nothing; the thread ends after it."""
