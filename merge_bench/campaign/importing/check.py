"""Checks that quantities which a report of cudf-merge prints in several ways agree; a damaged text contradicts itself.

Each frame has an int64 key and an int64 payload, so a row of both frames has 32 bytes. Sources of the relations:
``cudf-merge.py`` of https://github.com/hpcac/2022-APAC-HPC-AI and ``ucxx/benchmarks/cudf_merge.py``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from merge_bench.analysis.statistics import harmonic_mean
from merge_bench.campaign.importing.printed import Printed
from merge_bench.units import format_bytes, format_count, format_rate, format_seconds

if TYPE_CHECKING:
    from merge_bench.campaign.importing.text import Report

ROW_BYTES = 32


class Contradiction(Exception):
    """Two numbers that do not go together; `line` is where one of them stands."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.line = line


def data_bytes(workers: int, rows_per_chunk: int) -> int:
    """Bytes of both frames of all workers."""
    return workers * rows_per_chunk * ROW_BYTES


def workers(named: int, rows_per_chunk: int, of_iteration: Printed, *, of_server: bool) -> int:
    """How many workers there were: those named, if the data are theirs.

    `of_server`: the text names devices. On several hosts a server prints its own, and the data tell the number.

    Raises
    ------
    Contradiction
        If the data per iteration are of no whole number of workers.
    """
    expected = data_bytes(named, rows_per_chunk)
    if of_iteration.fits(expected, expected):
        return named
    one = data_bytes(1, rows_per_chunk)
    found = round(of_iteration.value / one)
    alone = of_iteration.resolution < one
    if of_server and alone and found > named and of_iteration.fits(found * one, found * one):
        return found
    raise Contradiction(
        of_iteration.line,
        f"the data processed per iteration do not match {named} × {format_count(rows_per_chunk)} rows of {ROW_BYTES} "
        f"bytes ({format_bytes(expected)})",
    )


def longest(total: Printed, of_iteration: int) -> int:
    """The most iterations that the rounded total leaves room for."""
    return math.floor(total.high / of_iteration * (1 + 1e-12))


def length(found: int, total: Printed, of_iteration: int, asked: int | None) -> None:
    """Check that no iteration is missing.

    Raises
    ------
    Contradiction
        If the total, or ``--iter`` of the command line, is of another number of iterations.
    """
    if asked is not None and asked != found:
        raise Contradiction(
            total.line, f"the text has {found} iterations, but --iter requested {asked}; the text is truncated"
        )
    if not total.fits(found * of_iteration, found * of_iteration):
        meant = total.value / of_iteration
        raise Contradiction(
            total.line,
            f"the total matches about {meant:.0f} iterations, but the text has {found}; it is truncated or damaged",
        )


def figures(report: Report) -> None:
    """Check every rate against its bytes and seconds, and the headline against the iterations.

    Raises
    ------
    Contradiction
        At the first that does not fit.
    """
    for index, iteration in enumerate(report.iterations):
        _rate(f"iteration {index}", report.data_bytes, iteration.wall, iteration.throughput)
    _rate("the run", report.data_bytes * len(report.iterations), report.wall, report.throughput)
    least = math.fsum(iteration.wall.low for iteration in report.iterations)
    if least > report.wall.high * (1 + 1e-9):
        whole = format_seconds(report.wall.value)
        raise Contradiction(
            report.wall.line, f"the iterations took {format_seconds(least)}, longer than the run ({whole})"
        )
    rates = [iteration.bandwidth for iteration in report.iterations]
    low, high = (harmonic_mean([getattr(rate, end) for rate in rates]) for end in ("low", "high"))
    # Every iteration sends the same bytes, so the bandwidth of all is the harmonic mean of theirs.
    if not report.bandwidth.fits(low, high):
        raise Contradiction(
            report.bandwidth.line,
            f"the bandwidth of the run ({format_rate(report.bandwidth.value)}) is not the harmonic mean of its "
            f"iterations ({format_rate(harmonic_mean([rate.value for rate in rates]))})",
        )


def _rate(what: str, data: int, wall: Printed, throughput: Printed) -> None:
    fastest = data / wall.low if wall.low > 0 else math.inf
    if not throughput.fits(data / wall.high, fastest):
        raise Contradiction(
            throughput.line,
            f"the throughput of {what} ({format_rate(throughput.value)}) is not its data ÷ its wall-clock "
            f"({format_rate(data / wall.value if wall.value else None)})",
        )
