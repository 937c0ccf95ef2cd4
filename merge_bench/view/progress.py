"""Shows the progress of a run on a terminal: one line with a bar. A pipe gets nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from merge_bench.campaign.progress import Progress
from merge_bench.errors import visible
from merge_bench.units import format_rate, format_seconds

_BAR, _WIDE = 16, 100


class _Clock(ProgressColumn):
    """The time since the display began: rich's own column stands still once a task is complete."""

    def render(self, task: Task) -> Text:
        """``0:01:52``."""
        now = task.get_time()
        return Text(str(timedelta(seconds=int(now - (task.start_time or now)))), style="progress.elapsed")


class TerminalProgress(Progress):
    """A line with the current phase, and a bar with the remaining time as soon as iterations run.

    Below 100 columns bar and speed are left out.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._width, self._wide = clock, console.width, console.width >= _WIDE
        self._started, self._text = clock(), ""
        self._bars = Bars(
            TextColumn("{task.description}"),
            *([BarColumn(bar_width=_BAR)] if self._wide else []),
            _Clock(),
            TextColumn("{task.fields[detail]}"),
            console=console,
            transient=True,
        )
        self._task = self._bars.add_task("", total=None, detail="")
        self._bars.start()

    def phase(self, text: str) -> None:
        """Show `text` and restart the bar; the clock goes on."""
        self._started, self._text = self._clock(), visible(text)
        self._show(completed=0, total=None, detail="")

    def iteration(self, index: int, total: int, wall_seconds: float, throughput: float | None) -> None:
        """Show how many iterations are done, how fast the last one was, and how long the rest will take."""
        done = index + 1
        left = remaining_seconds(self._clock() - self._started, done, total)
        speed = f"  {format_seconds(wall_seconds)}  {format_rate(throughput)}" if self._wide else ""
        rest = f"  {format_seconds(left)} left" if done < total else ""
        self._show(completed=done, total=total, detail=f"{done:,}/{total:,}{speed}{rest}")

    def _show(self, *, completed: int, total: int | None, detail: str) -> None:
        """One line: of a text that is too long, the beginning, which names launch and config."""
        room = self._width - len(detail) - len("0:00:00") - 3 - (_BAR + 1) * self._wide
        text = self._text if len(self._text) <= room else f"{self._text[: room - 1]}…"
        self._bars.update(self._task, description=text, completed=completed, detail=detail)
        self._bars.tasks[0].total = total  # `update` takes None for no change

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
