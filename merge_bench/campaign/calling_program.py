"""What a campaign has to know about the program that calls it: the command line, or a script or notebook."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from merge_bench.records.schema import GivenOptions

if TYPE_CHECKING:
    from merge_bench.host.other_load import Look


@dataclass(frozen=True)
class Caller:
    """The program that runs a campaign.

    Attributes
    ----------
    argv, options
        The command line and its options, which the records keep.
    signals
        Returns a context manager that turns signals into an orderly end of the campaign.
    surround
        Returns a context manager around the launches; its argument is the path of a log for what libraries print.
    look
        Ends a measurement of this host's load and returns the load, if the program has begun one (it takes half a
        second, in which plans can be made).
    """

    argv: Sequence[str] = ()
    options: GivenOptions | None = None
    signals: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
    surround: Callable[[Path], AbstractContextManager[object]] = contextlib.nullcontext
    look: Look | None = None


UNTOUCHED = Caller()
"""A calling program, such as a notebook, whose signal handlers and file descriptors stay unchanged."""
