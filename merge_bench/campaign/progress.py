"""The progress that a campaign reports while it runs; `merge_bench.view.progress` displays it."""

from __future__ import annotations


class Progress:
    """What the driver reports while it works. This class shows nothing: for ``--json`` on a terminal and for tests.

    `rest`: seconds that the launches after this one take; None: unknown.
    """

    rest: float | None = 0.0

    def phase(self, text: str) -> None:
        """Show the current phase: launching, generating, connecting, warm-up, iterations, link limit."""

    def iteration(self, index: int, total: int, wall_seconds: float, throughput: float | None) -> None:
        """Show that timed iteration `index` (from 0) of `total` is done; `throughput` in bytes per second."""

    def close(self) -> None:
        """Clear the display; again is harmless."""


class Labelled(Progress):
    """What `progress` shows, with a label before each phase that names the launch; `rest` as in `Progress`."""

    def __init__(self, progress: Progress, label: str, rest: float | None = None) -> None:
        self._progress, self._label = progress, label
        progress.rest = rest

    def phase(self, text: str) -> None:
        """Show label and `text`."""
        self._progress.phase(f"{self._label}: {text}")

    def iteration(self, index: int, total: int, wall_seconds: float, throughput: float | None) -> None:
        """Show it without the label."""
        self._progress.iteration(index, total, wall_seconds, throughput)

    def close(self) -> None:
        """Clear the display."""
        self._progress.close()
