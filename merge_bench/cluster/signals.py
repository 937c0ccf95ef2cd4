"""Ctrl-C, SIGTERM and a closed terminal end a run in order, so that nothing is left behind."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from merge_bench.errors import RunFailed

_received: list[int] = []
_deferring = False


class Interrupted(RunFailed):
    """The error that ends a run after Ctrl-C or another ending signal."""

    code = "interrupted"


def termination_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end this process, without SIGHUP if the process ignores it, as under ``nohup``."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM) if ignored else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _record_termination_signal(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    if len(_received) == 1:
        raise_if_interrupted()


def raise_if_interrupted() -> None:
    """Raise `Interrupted` if an ending signal came. Every loop that waits calls this.

    The first `Interrupted` can get lost: some libraries catch every exception while they are imported.
    """
    if not _deferring and (interrupted := pending_interruption()) is not None:
        raise interrupted


def pending_interruption() -> Interrupted | None:
    """Return the error for the ending signal that came since `raise_on_signals` began; None if none came."""
    return Interrupted(f"interrupted by {signal.Signals(_received[0]).name}") if _received else None


@contextlib.contextmanager
def raise_on_signals() -> Iterator[None]:
    """Raise `Interrupted` in the main thread when the first ending signal comes, and ignore later ones.

    Inside another such block, this does nothing.
    """
    if signal.getsignal(signal.SIGINT) is _record_termination_signal:
        yield
        return
    _received.clear()
    before = {}
    try:
        for number in termination_signals():
            before[number] = signal.signal(number, _record_termination_signal)
    except ValueError:  # not the main thread: the program that calls this package handles signals
        pass
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _received.clear()


@contextlib.contextmanager
def defer_interruption() -> Iterator[None]:
    """Delay an `Interrupted` to the end of the block, so that the block is never left half done."""
    before = len(_received)
    with ignore_signals():
        yield
    if before == 0:
        raise_if_interrupted()


@contextlib.contextmanager
def ignore_signals(enabled: bool = True) -> Iterator[None]:
    """Raise no `Interrupted` inside the block, so that a second signal cannot stop the ending of processes.

    `pending_interruption` still reports the signal. `enabled`: False lets a signal raise again (see
    `allow_interruption`).
    """
    global _deferring
    outer, _deferring = _deferring, enabled
    try:
        yield
    finally:
        _deferring = outer


@contextlib.contextmanager
def allow_interruption() -> Iterator[None]:
    """Let a signal raise `Interrupted` in a part of a block of `ignore_signals`, also one that came before this part.

    Code that enters `ignore_signals` first is thus never interrupted before it reaches what it must do at the end.
    """
    with ignore_signals(False):
        raise_if_interrupted()
        yield
