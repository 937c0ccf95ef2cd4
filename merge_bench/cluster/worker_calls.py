"""Calls to the workers of one launch: steps go to them, results come back, and the first thing that fails is named."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

from distributed import Client, Future

from merge_bench.cluster.base import Launcher
from merge_bench.cluster.first_cause import Member
from merge_bench.cluster.watch import Watch, broadcast, wait_until
from merge_bench.errors import LaunchFailed, MergeBenchError, UsageError
from merge_bench.merge import worker

ERROR_SECONDS = 5.0  # for the error of a future that failed, which the client has already


class WorkerCalls:
    """Calls to the workers, by rank; every wait looks at who lives, and ends with a problem that was noticed."""

    def __init__(self, client: Client, launcher: Launcher, timeout: float) -> None:
        self.client, self.launcher = client, launcher
        self.watch = Watch(client, launcher, timeout)
        self.members: list[Member] = []
        self._wake = threading.Event()
        self._problem: MergeBenchError | None = None  # that was noticed

    def on_all(
        self, step: Callable[..., Any], *arguments: Any, ranked: bool = False, after: tuple[Any, ...] = (), **named: Any
    ) -> list[Any]:
        """Run a step on every worker at once; results by rank. Fails for the first thing that goes wrong anywhere."""
        each = [(*arguments, member.rank, *after) if ranked else arguments for member in self.members]
        return self.results(self.submit(step, each, **named))

    def call(self, answer: Coroutine[Any, Any, Any]) -> Any:
        """Wait, watching, for something that the client asks of the cluster."""
        future = asyncio.run_coroutine_threadsafe(answer, self.client.loop.asyncio_loop)
        future.add_done_callback(lambda _: self._wake.set())
        try:
            self.until(future.done)
        finally:
            future.cancel()
        return future.result()

    def on_one(self, rank: int, step: Callable[..., Any], *arguments: Any) -> Any:
        """Run a step on one worker."""
        return self.on_some({rank: (step, *arguments)})[0]

    def on_some(self, steps_by_rank: Mapping[int, tuple[Any, ...]]) -> list[Any]:
        """Run a step with its arguments on each of some workers, all at once; results in the order given."""
        futures = [
            self._submit(self.members[rank], step, *arguments) for rank, (step, *arguments) in steps_by_rank.items()
        ]
        return self.results(futures, [self.members[rank] for rank in steps_by_rank])

    def submit(self, step: Callable[..., Any], each: Sequence[tuple[Any, ...]], **named: Any) -> list[Future]:
        """One call of `step` per worker, with its own arguments, in rank order."""
        return [self._submit(member, step, *values, **named) for member, values in zip(self.members, each, strict=True)]

    def _submit(self, member: Member, step: Callable[..., Any], *arguments: Any, **named: Any) -> Future:
        return self.client.submit(
            step, *arguments, **named, workers=[member.address], allow_other_workers=False, pure=False, priority=10
        )

    def results(self, futures: list[Future], members: Sequence[Member] | None = None) -> list[Any]:
        """Wait for futures, then fetch and release them; `members`: whose they are, by default one a rank."""
        with _released(futures):
            self.wait_for(futures, members)
            # Not `result()` of each: that waits for scheduler and workers without a limit, and without looking.
            return list(self.call(self.client.gather(futures, asynchronous=True)))

    def wait_for(self, futures: list[Future], members: Sequence[Member] | None = None) -> None:
        """Wait until all are done, watching; raises for the first that failed.

        `members`: whose they are, by default one a rank; empty for tasks that Dask places.
        """
        for future in futures:
            future.add_done_callback(lambda _: self._wake.set())
        self.until(lambda: all(f.done() for f in futures) or self._failed(futures) is not None)
        failed = self._failed(futures)
        if failed is not None:
            whose = self.members if members is None else members
            self._fail(futures[failed], whose[failed] if whose else None)

    def notice(self, problem: MergeBenchError | None = None) -> None:
        """Something came in on its own: whoever waits looks again, and `problem` ends the wait."""
        if problem is not None:
            self._problem = problem
        self._wake.set()

    def until(self, done: Callable[[], bool]) -> None:
        """Wait until `done`, watching; raises what was noticed meanwhile."""
        wait_until(lambda: done() or self._problem is not None, self._wake, self.watch)
        if self._problem is not None:
            self.abort("the run is ending")
            raise self._problem

    def _failed(self, futures: list[Future]) -> int | None:
        return next((rank for rank, future in enumerate(futures) if future.status in ("error", "cancelled")), None)

    def _fail(self, future: Future, member: Member | None) -> None:
        """Tell the others to stop, and raise what went wrong first, with the worker named."""
        error = future.exception(timeout=ERROR_SECONDS) if future.status == "error" else None
        if not isinstance(error, UsageError):
            # A worker that died makes others fail too; without its scheduler a client cancels everything.
            self.watch.settle(lost_scheduler=error is None)
        shown = member.shown if member else "a task of Dask's merge"
        self.abort(f"stopped because {shown} failed")
        if isinstance(error, UsageError):
            raise error
        if error is None:  # this run cancels nothing itself
            raise LaunchFailed("Dask's scheduler ended, or cancelled this run's tasks", code="process-died")
        message = str(error) if isinstance(error, MergeBenchError) else f"{type(error).__name__}: {error}"
        raise LaunchFailed(
            f"{shown} failed: {message}", host=member.host if member else None, rank=member.rank if member else None
        ) from error

    def abort(self, reason: str) -> None:
        """Make everything that waits on the workers stop."""
        broadcast(self.client, worker.abort, reason)


@contextlib.contextmanager
def _released(futures: list[Future]) -> Iterator[None]:
    try:
        yield
    finally:
        for future in futures:
            with contextlib.suppress(Exception):
                future.release()
