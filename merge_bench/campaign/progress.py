"""The progress that a campaign reports while it runs; `merge_bench.view.progress` displays it."""

from __future__ import annotations


class Progress:
    """Receives the progress of a campaign and shows nothing; subclasses show it.

    `rest`: the seconds that the launches after this one will take; None: unknown.
    """

    rest: float | None = 0.0

    def phase(self, text: str) -> None:
        """Show the current phase: launching, generating, connecting, warm-up, iterations, link limit."""

    def iteration(self, index: int, total: int, wall_seconds: float, throughput: float | None) -> None:
        """Show that timed iteration `index` (from 0) of `total` has ended; `throughput` in bytes per second."""

    def close(self) -> None:
        """Clear the display; a second call does nothing."""


class Labelled(Progress):
    """Shows the same as `progress`, with the launch's label before each phase; `rest` as in `Progress`."""

    def __init__(self, progress: Progress, label: str, rest: float | None = None) -> None:
        self._progress, self._label = progress, label
        progress.rest = rest

    def phase(self, text: str) -> None:
        """Show the label and the current phase."""
        self._progress.phase(f"{self._label}: {text}")

    def iteration(self, index: int, total: int, wall_seconds: float, throughput: float | None) -> None:
        """Show that a timed iteration has ended, without the label."""
        self._progress.iteration(index, total, wall_seconds, throughput)

    def close(self) -> None:
        """Clear the display."""
        self._progress.close()
