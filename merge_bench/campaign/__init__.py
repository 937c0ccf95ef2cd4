"""The driver: plans launches from options, makes and records them in order, resumes and imports campaigns.

Here is what a campaign has to know about the program that calls it, and the progress that it reports to that program;
and the options of `run` with the values that are members of a registry, whose folders `config` must not import.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from merge_bench.cluster import launchers
from merge_bench.config.option import Option
from merge_bench.config.options import OPTIONS
from merge_bench.merge import engines, exchange, workload

if TYPE_CHECKING:
    from merge_bench.host.other_load import FinishMeasurement
    from merge_bench.records.schema import GivenOptions


@dataclass(frozen=True)
class Caller:
    """The program that runs a campaign.

    `argv`, `options`: the command line and its options, which the records keep. `signals`: returns a context manager
    that turns signals into an orderly end of the campaign. `surround`: returns a context manager around the launches;
    its argument is the path of a log for what libraries print. `look`: ends a measurement of this host's load and
    returns the load, if the program has begun one (it takes half a second, in which plans can be made).
    """

    argv: Sequence[str] = ()
    options: GivenOptions | None = None
    signals: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
    surround: Callable[[Path], AbstractContextManager[object]] = contextlib.nullcontext
    look: FinishMeasurement | None = None


UNTOUCHED = Caller()
"""A calling program, such as a notebook, whose signal handlers and file descriptors stay unchanged."""


class Progress:
    """Receives the progress of a campaign; shows nothing, as its subclasses do.

    `rest`: the seconds that the launches after this one will take; None: unknown.
    """

    rest: float | None = 0.0

    def show_phase(self, text: str) -> None:
        """Show the current phase: launching, generating, connecting, warm-up, iterations, link limit."""

    def show_iteration(self, index: int, total: int, wall_seconds: float, throughput: float | None) -> None:
        """Show that timed iteration `index`, from 0, of `total` has ended; `throughput` in bytes per second."""

    def close(self) -> None:
        """Clear the display; a second call does nothing."""


class LabelledProgress(Progress):
    """Shows progress with another `Progress`, and the launch's label before each phase."""

    def __init__(self, progress: Progress, label: str, rest: float | None = None) -> None:
        self._progress, self._label = progress, label
        progress.rest = rest

    def show_phase(self, text: str) -> None:
        self._progress.show_phase(f"{self._label}: {text}")

    def show_iteration(self, index: int, total: int, wall_seconds: float, throughput: float | None) -> None:
        self._progress.show_iteration(index, total, wall_seconds, throughput)

    def close(self) -> None:
        self._progress.close()


@functools.cache
def options_of_run() -> tuple[Option, ...]:
    """Every option of `run`, with the allowed values and help of its registry."""
    return tuple(map(add_registry_values, OPTIONS))


def add_registry_values(option: Option) -> Option:
    """Add the allowed values and help of its registry to an option; options without registry stay unchanged."""
    if option.key == "engine":
        return option.with_values(engines.engine_choices(), engines.engine_option_help())
    if option.key == "exchange":
        return option.with_values([plane.name for plane in exchange.data_planes()], exchange.exchange_option_help())
    if option.key == "launcher":
        return option.with_values(launchers.choices(), launchers.help_text())
    if option.key == "workload":
        return option.with_values(workload.workload_choices(), workload.workload_option_help())
    if option.key == "question":
        return replace(option, help=workload.question_option_help())
    if option.key == "rows":
        return replace(option, help=workload.rows_option_help())
    return option
