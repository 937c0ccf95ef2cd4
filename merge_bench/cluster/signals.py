"""Ctrl-C, SIGTERM and a lost terminal: ends that leave nothing behind."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from merge_bench.errors import RunFailed

_received: list[int] = []
_deferring = False


class Interrupted(RunFailed):
    """The run was told to end."""

    code = "interrupted"


def ends() -> tuple[signal.Signals, ...]:
    """The signals that tell this process to end. A lost terminal that is ignored is none: ``nohup`` asked for that."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM) if ignored else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def received() -> bool:
    """Whether a signal came since `raising` was entered."""
    return bool(_received)


def _on_signal(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    if len(_received) == 1 and not _deferring:
        raise Interrupted(f"interrupted by {signal.Signals(number).name}")


def check() -> None:
    """Raise `Interrupted` again if its first time was lost: some libraries catch everything while they are imported.

    Every loop that waits calls it.
    """
    if _received and not _deferring:
        raise Interrupted(f"interrupted by {signal.Signals(_received[0]).name}")


@contextlib.contextmanager
def raising() -> Iterator[None]:
    """Turn the first of these signals into `Interrupted` in the main thread; later ones change nothing."""
    _received.clear()
    before = {}
    try:
        for number in ends():
            before[number] = signal.signal(number, _on_signal)
    except ValueError:  # not the main thread: whoever runs us there deals with signals
        pass
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _received.clear()


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Hold `Interrupted` back until the end of the block, so that what it does is never left half done."""
    global _deferring
    outer, before = _deferring, len(_received)
    _deferring = True
    try:
        yield
    finally:
        _deferring = outer
    if before == 0:
        check()


@contextlib.contextmanager
def ignored() -> Iterator[None]:
    """While processes are being ended, a further signal must not leave some of them behind. `received` still tells."""
    global _deferring
    outer, _deferring = _deferring, True
    try:
        yield
    finally:
        _deferring = outer


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Inside `ignored`: the part that a signal may end, also one that came before it.

    So that whoever enters `ignored` first has no moment in which `Interrupted` passes by what must be done at the end.
    """
    global _deferring
    outer, _deferring = _deferring, False
    try:
        check()
        yield
    finally:
        _deferring = outer
