"""Ranks for tests of the data plane: each a process of its own, which runs what a test asks for."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from typing import Any

import pytest

LIMIT = 120.0
ABORTED = "aborted"

Task = Callable[..., Any]


class Ranks:
    """A few processes. `everyone(task, …)` runs ``task(exchange, …)`` on each of the first W at once.

    `environment`: variables that the processes start with, as the loader of libraries and UCX need them.
    """

    def __init__(self, count: int, environment: Mapping[str, str] | None = None) -> None:
        context = multiprocessing.get_context("spawn" if environment else "forkserver")
        if isinstance(context, ForkServerContext):
            context.set_forkserver_preload(["tests.merge.exchange.rank_imports"])
        self._pipes: list[Connection] = []
        self.processes = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            with pytest.MonkeyPatch.context() as patch:
                for name, value in (environment or {}).items():
                    patch.setenv(name, value)
                process.start()
            theirs.close()
            self._pipes.append(ours)
            self.processes.append(process)

    def everyone(self, task: Task, workers: int, *arguments: Any, **settings: Any) -> list[Any]:
        """What the task gave on each rank; an exception's class name and text where it raised.

        `settings` go to `UcxExchange`, but for `setup`, which every rank calls first. Every rank is connected before
        the task and closed after it.
        """
        self.begin(workers, **settings)
        for pipe in self._pipes[:workers]:
            pipe.send((task, arguments))
        return [self.answer(rank) for rank in range(workers)]

    def begin(self, workers: int, **settings: Any) -> None:
        """Make an exchange on each of the first W ranks, and send each the others' addresses."""
        for rank, pipe in enumerate(self._pipes[:workers]):
            pipe.send((rank, workers, settings))
        addresses = [self.answer(rank) for rank in range(workers)]
        for pipe in self._pipes[:workers]:
            pipe.send(addresses)
        assert [self.answer(rank) for rank in range(workers)] == ["connected"] * workers

    def send(self, rank: int, task: Task, *arguments: Any) -> None:
        """Have one rank begin a task, after `begin`."""
        self._pipes[rank].send((task, arguments))

    def answer(self, rank: int) -> Any:
        """Its next answer."""
        assert self._pipes[rank].poll(LIMIT), f"rank {rank} gave no answer within {LIMIT:.0f} s"
        return self._pipes[rank].recv()

    def last_word(self, rank: int) -> Any:
        """Its next answer, or `ABORTED`."""
        try:
            return self.answer(rank)
        except EOFError:
            self.processes[rank].join(timeout=5)
            return ABORTED if self.processes[rank].exitcode == -signal.SIGABRT else self.processes[rank].exitcode

    def survivor(self, task: Task, *, after: float) -> Any:
        """Two connected ranks do `task`, rank 1 is killed `after` seconds: the last word of rank 0."""
        for rank in range(2):
            self.send(rank, task)
        time.sleep(after)
        self.processes[1].kill()
        return self.last_word(0)

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.send(None)
        for process in self.processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()


@contextlib.contextmanager
def ranks(count: int, environment: Mapping[str, str] | None = None) -> Iterator[Ranks]:
    """`count` processes for the length of a block."""
    made = Ranks(count, environment)
    try:
        yield made
    finally:
        made.close()


def _serve(pipe: Connection) -> None:
    import tests.merge.exchange.rank_imports  # noqa: F401
    from merge_bench.merge.exchange.base import AbortFlag
    from merge_bench.merge.exchange.ucx import UcxExchange

    while (begin := pipe.recv()) is not None:
        rank, workers, settings = begin
        settings.pop("setup", lambda: None)()
        exchange = UcxExchange(rank, workers, abort=AbortFlag(), **settings)
        pipe.send(exchange.address)
        addresses = pipe.recv()
        answer: Any
        try:
            exchange.connect(addresses)
            pipe.send("connected")
            task, arguments = pipe.recv()
            answer = task(exchange, *arguments)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
            if type(error).__name__ != "RunFailed":
                answer += traceback.format_exc()
        pipe.send(answer)
        exchange.close()


def clock() -> float:
    """One clock for all processes of this machine."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)
