"""What a campaign leaves to the program that it runs in."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path


def _leave_alone(log: Path) -> AbstractContextManager[None]:
    return contextlib.nullcontext()


@dataclass(frozen=True)
class Program:
    """The program that runs a campaign.

    Attributes
    ----------
    argv
        The command line that the records keep.
    surround
        Gives a context for the time of the launches, from the path of a log for what libraries print.
    """

    argv: Sequence[str] = ()
    surround: Callable[[Path], AbstractContextManager[None]] = _leave_alone


UNTOUCHED = Program()
"""A program of somebody else: its signal handlers and file descriptors stay as they are."""
