"""Shows the progress of a run on a terminal: one line with a bar. A pipe gets nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from merge_bench.campaign.progress import Progress
from merge_bench.units import format_rate, format_seconds


class TerminalProgress(Progress):
    """A line with the current phase, and a bar with the remaining time as soon as iterations run."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TimeElapsedColumn(),
            TextColumn("{task.fields[detail]}"),
            console=console,
            transient=True,
        )
        self._task = self._bars.add_task("", total=None, detail="")
        self._bars.start()

    def phase(self, text: str) -> None:
        """Show `text` and restart the bar."""
        self._started = self._clock()
        self._bars.reset(self._task, description=text, total=None, detail="")

    def iteration(self, index: int, total: int, wall_seconds: float, throughput: float | None) -> None:
        """Show how many iterations are done, how fast the last one was, and how long the rest will take."""
        done = index + 1
        left = remaining_seconds(self._clock() - self._started, done, total)
        detail = (
            f"{done:,}/{total:,}  {format_seconds(wall_seconds)}  {format_rate(throughput)}"
            f"  {format_seconds(left)} left"
        )
        self._bars.update(self._task, completed=done, total=total, detail=detail)

    def close(self) -> None:
        """Remove the display from the terminal."""
        self._bars.stop()


def remaining_seconds(elapsed: float, done: int, total: int) -> float:
    """Seconds for the rest, if the first `done` of `total` iterations took `elapsed` seconds."""
    return elapsed / done * max(total - done, 0) if done > 0 else float("nan")


def progress_for(stream: TextIO, *, quiet: bool = False) -> Progress:
    """A display on `stream` if that is a terminal, or else one that shows nothing."""
    console = Console(file=stream, markup=False, highlight=False, emoji=False)
    return Progress() if quiet or not console.is_terminal else TerminalProgress(console)
