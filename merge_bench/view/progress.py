"""Shows the progress of a run: on a terminal one line with a bar, elsewhere a line each half minute."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from merge_bench.campaign import ProgressDisplay
from merge_bench.errors import mark_unprintable
from merge_bench.units import format_duration, format_rate, format_seconds

_BAR_COLUMNS, _WIDE_COLUMNS = 16, 100
_SILENCE_SECONDS = 30.0
"""Seconds after which a log gets the next line."""


class _ElapsedTimeColumn(ProgressColumn):
    """A column with the time since the display began; the column of rich stops when a task is complete."""

    def render(self, task: Task) -> Text:
        now = task.get_time()
        return Text(str(timedelta(seconds=int(now - (task.start_time or now)))), style="progress.elapsed")


class TerminalProgress(ProgressDisplay):
    """Shows the current phase and the remaining time in a line on a terminal; on a wide one bar and speed, too."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._width, self._wide = clock, console.width, console.width >= _WIDE_COLUMNS
        self._started, self._text = clock(), ""
        self._bars = Bars(
            TextColumn("{task.description}"),
            *([BarColumn(bar_width=_BAR_COLUMNS)] if self._wide else []),
            _ElapsedTimeColumn(),
            TextColumn("{task.fields[detail]}"),
            console=console,
            get_time=clock,
            transient=True,
        )
        self._task = self._bars.add_task("", total=None, detail="")
        self._bars.start()

    def show_phase(self, text: str) -> None:
        self._started, self._text = self._clock(), mark_unprintable(text)
        self._update_line(completed=0, total=None, detail="")

    def show_iteration(self, index: int, total: int, wall_seconds: float, throughput: float | None) -> None:
        done = index + 1
        speed = f"  {format_seconds(wall_seconds)}  {format_rate(throughput)}" if self._wide else ""
        left = time_left_text(remaining_seconds(self._clock() - self._started, done, total), self.rest)
        self._update_line(completed=done, total=total, detail=f"{done:,}/{total:,}{speed}{left and f'  {left}'}")

    def _update_line(self, *, completed: int, total: int | None, detail: str) -> None:
        """Update the line and its bar; a text that is too long is cut."""
        room = self._width - len(detail) - len("0:00:00") - 3 - (_BAR_COLUMNS + 1) * self._wide
        text = self._text if len(self._text) <= room else f"{self._text[: room - 1]}…"
        self._bars.update(self._task, description=text, completed=completed, detail=detail)
        self._bars.tasks[0].total = total  # `update` takes None for no change

    def close(self) -> None:
        self._bars.stop()


class LogProgress(ProgressDisplay):
    """Writes the current phase and the remaining time to a log, a line each `silence_seconds`."""

    def __init__(
        self, stream: TextIO, silence_seconds: float = _SILENCE_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._clock = stream, clock
        self._began = self._started = clock()
        self._text, self._detail = "starting", ""
        self._closed = threading.Event()
        self._writer = threading.Thread(target=self._write_lines, args=(silence_seconds,), name="progress", daemon=True)
        self._writer.start()

    def show_phase(self, text: str) -> None:
        self._started, self._text, self._detail = self._clock(), text, ""

    def show_iteration(self, index: int, total: int, wall_seconds: float, throughput: float | None) -> None:
        done = index + 1
        left = time_left_text(remaining_seconds(self._clock() - self._started, done, total), self.rest)
        self._detail = f", {done:,} of {total:,} iterations{left and f', {left}'}"

    def close(self) -> None:
        self._closed.set()
        self._writer.join()

    def _write_lines(self, silence_seconds: float) -> None:
        while not self._closed.wait(silence_seconds):
            passed = timedelta(seconds=int(self._clock() - self._began))
            with contextlib.suppress(OSError, ValueError):  # a log that is full or closed ends no run
                print(f"merge_bench: {passed} {self._text}{self._detail}", file=self._stream, flush=True)


def time_left_text(launch_seconds: float, rest_seconds: float | None) -> str:
    """``3 minutes left``: of a launch, and of the launches after it, if that is known; empty if no time is left."""
    if rest_seconds is None:
        return f"{format_duration(launch_seconds)} left of this launch" if launch_seconds > 0 else ""
    seconds = launch_seconds + rest_seconds
    return f"{format_duration(seconds)} left" if seconds > 0 else ""


def remaining_seconds(elapsed: float, done: int, total: int) -> float:
    """The seconds that the other iterations will take, if `done` of `total` took `elapsed` seconds."""
    return elapsed / done * max(total - done, 0) if done > 0 else float("nan")


def make_progress(stream: TextIO, *, quiet: bool = False) -> ProgressDisplay:
    """Make the display of progress: on a terminal a line with a bar, or none if `quiet`; else lines of a log."""
    console = Console(file=stream, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        return LogProgress(stream)
    return ProgressDisplay() if quiet else TerminalProgress(console)
