"""Warnings and log lines on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from merge_bench.errors import Caution, visible, warn


def say_warnings(warnings: Iterable[Caution]) -> None:
    """Print each warning once, before the run; the report has it, too."""
    for caution in dict.fromkeys(warnings):
        warn(caution)


def say_log(tail: str | None) -> None:
    """Print the last lines of a process's log."""
    if tail:
        print("  the log's last lines:", file=sys.stderr)
        for line in tail.splitlines():
            print(f"  | {visible(line)}", file=sys.stderr)
