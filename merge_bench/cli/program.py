"""The command line as the program that runs a campaign: it owns its process, so it handles signals and output."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from merge_bench.campaign.program import Program


@contextlib.contextmanager
def _surround(log: Path) -> Iterator[None]:
    from merge_bench.cluster import redirect, signals

    with signals.raising(), redirect.libraries(log):
        yield


def this_command() -> Program:
    """This command: its own arguments, signals that end it cleanly, library output in the log."""
    return Program(tuple(sys.argv), _surround)
