"""The life of a cluster, guarded: every process that was started is ended on every way out, and signals are errors."""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from merge_bench.errors import RunFailed
from merge_bench.launch.base import Launcher


class Interrupted(RunFailed):
    """Ctrl-C, SIGTERM, or a lost terminal."""

    code = "interrupted"


def take_down(launcher: Launcher, client: Any, conversation: Any, *, well: bool) -> None:
    """End the conversation and the processes; after a failure the processes first: nothing waits for an answer."""
    if conversation is not None:
        conversation.watch.stop()
        if not well and not launcher.owns_processes:
            conversation.abort("the run is ending")
    if well and client is not None:
        client.close(timeout=1.0)
    launcher.stop()
    if not well and client is not None:
        with contextlib.suppress(Exception):
            client.close(timeout=1.0)


_interrupts: list[int] = []


def was_interrupted() -> bool:
    return bool(_interrupts)


@contextlib.contextmanager
def signals_raise() -> Iterator[None]:
    """Turn Ctrl-C, SIGTERM and a lost terminal into `Interrupted` in the main thread, once."""
    _interrupts.clear()

    def on_signal(number: int, frame: FrameType | None) -> None:
        _interrupts.append(number)
        if len(_interrupts) == 1:
            raise Interrupted(f"interrupted by {signal.Signals(number).name}")

    before = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            before[number] = signal.signal(number, on_signal)
    except ValueError:  # not the main thread: whoever runs us there deals with signals
        pass
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def signals_ignored() -> Iterator[None]:
    """While processes are being ended, a second Ctrl-C must not leave some of them behind."""
    before = {}
    with contextlib.suppress(ValueError):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            before[number] = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def quiet_libraries(logs: Path) -> Iterator[None]:
    """Send the client library's own log lines to a file: the terminal is for sentences."""
    handler = logging.FileHandler(logs / "client.log")
    import distributed  # noqa: F401  (it sets its loggers up when it is first imported)

    named = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "distributed"]
    loggers = [logging.getLogger(name) for name in ("distributed", "tornado", "asyncio", *named)]
    before = [(logger.propagate, list(logger.handlers)) for logger in loggers]
    for logger in loggers:
        logger.propagate = False
        logger.handlers = [handler]
    try:
        yield
    finally:
        for logger, (propagate, handlers) in zip(loggers, before, strict=True):
            logger.propagate, logger.handlers = propagate, handlers
        handler.close()
