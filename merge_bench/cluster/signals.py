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
    code = "interrupted"


def ending_signals() -> tuple[signal.Signals, ...]:
    """The signals that end this process, without SIGHUP if that is ignored: ``nohup`` wants it so."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM) if ignored else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def received() -> bool:
    """Whether one of `ending_signals` came since `raising` was entered."""
    return bool(_received)


def _on_signal(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    if len(_received) == 1:
        check()


def check() -> None:
    """Raise `Interrupted` if a signal came. Every loop that waits calls this.

    The first `Interrupted` can get lost: some libraries catch every exception while they are imported.
    """
    if not _deferring and (interrupted := interruption()) is not None:
        raise interrupted


def interruption() -> Interrupted | None:
    """The error for the signal that came since `raising` was entered; None if none came."""
    return Interrupted(f"interrupted by {signal.Signals(_received[0]).name}") if _received else None


@contextlib.contextmanager
def raising() -> Iterator[None]:
    """Turn the first of `ending_signals` that comes into `Interrupted` in the main thread, and ignore later ones.

    Inside another such block, this does nothing.
    """
    if signal.getsignal(signal.SIGINT) is _on_signal:
        yield
        return
    _received.clear()
    before = {}
    try:
        for number in ending_signals():
            before[number] = signal.signal(number, _on_signal)
    except ValueError:  # not the main thread: the program that calls this package handles signals
        pass
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _received.clear()


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Raise `Interrupted` only at the end of the block, so that the block is never left half done."""
    before = len(_received)
    with ignored():
        yield
    if before == 0:
        check()


@contextlib.contextmanager
def ignored(value: bool = True) -> Iterator[None]:
    """Raise no `Interrupted` inside the block: a second signal must not stop the ending of processes.

    `received` still reports the signal. `value`: False lets a signal raise again (see `interruptible`).
    """
    global _deferring
    outer, _deferring = _deferring, value
    try:
        yield
    finally:
        _deferring = outer


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let a signal end this part of a block of `ignored`, also a signal that came before this part.

    Code that enters `ignored` first is thus never interrupted before it reaches what it must do at the end.
    """
    with ignored(False):
        check()
        yield
