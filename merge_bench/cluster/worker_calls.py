"""Runs steps on the workers of one launch, collects their results, and names what failed first."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import threading
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from distributed import Client, Future

from merge_bench.cluster import signals
from merge_bench.cluster.base import Launcher
from merge_bench.cluster.dask_scheduler_functions import run_step
from merge_bench.cluster.watch import Member, Watch, broadcast
from merge_bench.errors import LaunchFailed, MergeBenchError, UsageError
from merge_bench.merge import worker

ERROR_SECONDS = 5.0  # to read the error of a failed future, which the client already has


class WorkerCalls:
    """Calls to the workers, by rank. Every wait watches the processes, and ends when a problem is noticed."""

    def __init__(self, client: Client, launcher: Launcher, timeout: float) -> None:
        self.client, self.launcher = client, launcher
        self.watch = Watch(client, launcher, timeout)
        self.members: list[Member] = []
        self._wake = threading.Event()
        self._problem: MergeBenchError | None = None  # that was noticed

    def on_all(
        self, step: Callable[..., Any], *values: Any, ranked: bool = False, after: tuple[Any, ...] = (), **kwargs: Any
    ) -> list[Any]:
        """Run a step on every worker at once; gives the results by rank, and raises what failed first.

        `ranked`: whether the step gets the worker's rank, between `values` and `after`.
        """
        arguments_by_rank = [(*values, member.rank, *after) if ranked else values for member in self.members]
        return self.results(self.submit(step, arguments_by_rank, **kwargs))

    def call(self, answer: Coroutine[Any, Any, Any]) -> Any:
        """The result of a coroutine of the client; the processes are watched meanwhile."""
        future = asyncio.run_coroutine_threadsafe(answer, self.client.loop.asyncio_loop)
        future.add_done_callback(lambda _: self._wake.set())
        try:
            self.until(future.done)
        finally:
            future.cancel()
        return future.result()

    def on_one(self, rank: int, step: Callable[..., Any], *arguments: Any) -> Any:
        return self.on_some({rank: (step, *arguments)})[0]

    def on_some(self, steps_by_rank: Mapping[int, tuple[Any, ...]]) -> list[Any]:
        """Run on each of some workers a step with its arguments, all at once; gives results in the same order."""
        members = [self.members[rank] for rank in steps_by_rank]
        calls = zip(members, steps_by_rank.values(), strict=True)
        return self.results([self._submit(member, *call) for member, call in calls], members)

    def submit(
        self, step: Callable[..., Any], arguments_by_rank: Sequence[tuple[Any, ...]], **kwargs: Any
    ) -> list[Future]:
        """Begin one call of `step` on each worker, with arguments of its own; gives the futures, in rank order."""
        return [
            self._submit(member, step, *values, **kwargs)
            for member, values in zip(self.members, arguments_by_rank, strict=True)
        ]

    def _submit(self, member: Member, step: Callable[..., Any], *arguments: Any, **kwargs: Any) -> Future:
        return self.client.submit(
            run_step,
            pickle.dumps((step, arguments, kwargs)),
            key=f"{step.__name__}-{uuid.uuid4()}",
            workers=[member.address],
            allow_other_workers=False,
            priority=10,
        )

    def results(self, futures: list[Future], members: Sequence[Member] | None = None) -> list[Any]:
        """Wait for futures, then fetch and release them; `members`: their workers, by default one future per rank."""
        try:
            self.wait_for(futures, members)
            # Not `result()` of each: that waits for scheduler and workers without a limit, and without watching.
            return list(self.call(self.client.gather(futures, asynchronous=True)))
        finally:
            for future in futures:
                with contextlib.suppress(Exception):
                    future.release()

    def wait_for(self, futures: list[Future], members: Sequence[Member] | None = None) -> None:
        """Wait until all futures are done, and watch the processes meanwhile; raises for the first that failed.

        `members`: their workers, by default one future per rank; empty for tasks that Dask assigns to workers itself.
        """
        for future in futures:
            future.add_done_callback(lambda _: self._wake.set())
        self.until(lambda: all(f.done() for f in futures) or self._first_failed(futures) is not None)
        failed = self._first_failed(futures)
        if failed is not None:
            whose = self.members if members is None else members
            self._raise_first_failure(futures[failed], whose[failed] if whose else None)

    def notice(self, problem: MergeBenchError | None = None) -> None:
        """Called when an event of a worker arrived: the wait checks again, and ends if there is a `problem`."""
        if problem is not None:
            self._problem = problem
        self._wake.set()

    def notice_stuck(self, rank: int, how: str) -> None:
        """Called when a worker said that it is in native code that does not return; its heartbeats go on."""
        member = self.members[rank]
        self.notice(LaunchFailed(f"{member.shown} {how}", host=member.host or None, rank=rank, code="worker-silent"))

    def until(self, done: Callable[[], bool]) -> None:
        """Wait until `done` gives True, and watch the processes meanwhile; raises a problem that was noticed."""

        def ended() -> bool:
            return done() or self._problem is not None

        while not ended():
            self._wake.wait(0.1)
            self._wake.clear()
            signals.check()
            if not ended():
                self.watch.check()
        if self._problem is not None:
            self.abort("the run is ending")
            raise self._problem

    def _first_failed(self, futures: list[Future]) -> int | None:
        return next((rank for rank, future in enumerate(futures) if future.status in ("error", "cancelled")), None)

    def _raise_first_failure(self, future: Future, member: Member | None) -> None:
        """Stop the other workers, and raise what failed first, with the worker named."""
        error = future.exception(timeout=ERROR_SECONDS) if future.status == "error" else None
        if not isinstance(error, UsageError):
            # A worker that ended makes others fail too, and a client without its scheduler cancels everything.
            self.watch.settle(lost_scheduler=error is None)
        shown = member.shown if member else "a task of Dask's merge"
        self.abort(f"stopped because {shown} failed")
        if isinstance(error, UsageError):
            raise error
        if error is None:  # this run itself never cancels a task
            raise LaunchFailed("Dask's scheduler stopped, or it cancelled the tasks of this run", code="process-died")
        message = str(error) if isinstance(error, MergeBenchError) else f"{type(error).__name__}: {error}"
        raise LaunchFailed(
            f"{shown} failed: {message}", host=member.host if member else None, rank=member.rank if member else None
        ) from error

    def abort(self, reason: str) -> None:
        broadcast(self.client, worker.abort, reason)
