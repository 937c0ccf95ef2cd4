"""What a campaign needs to know about the program that runs it."""

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
        Gives a context in which signals end a campaign in order.
    surround
        Gives a context for the time of the launches, from the path of a log for what libraries print.
    look
        A look at the load of this host, if one has begun: it takes half a second, in which plans can be made.
    """

    argv: Sequence[str] = ()
    options: GivenOptions | None = None
    signals: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
    surround: Callable[[Path], AbstractContextManager[object]] = contextlib.nullcontext
    look: Look | None = None


UNTOUCHED = Caller()
"""Another program: its signal handlers and file descriptors stay unchanged."""
