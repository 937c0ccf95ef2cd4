"""Warnings and log lines on standard error."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def say_warnings(warnings: Sequence[tuple[str, str, str | None]]) -> None:
    """What is known to be wrong is told before the run, and again in its report."""
    for code, message, remedy in warnings:
        print(f"merge_bench: warning: {code}: {message}", file=sys.stderr)
        if remedy:
            print(f"  → {remedy}", file=sys.stderr)


def say_log(tail: str | None) -> None:
    """Print the last lines of a process's log."""
    if tail:
        print("  the log's last lines:", file=sys.stderr)
        for line in tail.splitlines():
            print(f"  | {line}", file=sys.stderr)
