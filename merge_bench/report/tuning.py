"""The outcome of `tune` for people: single settings, combination, ablation, confirmation, what was left out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from merge_bench.record.schema import TuneLine
from merge_bench.report.layout import NULL, Column, Page, close_page, number, open_page
from merge_bench.tune.pruning import Pruned
from merge_bench.tune.result import Result


def print_tuning(
    result: Result, *, sizes: Sequence[str], metric: str, pruned: Sequence[Pruned] = (), remarks: Sequence[str] = (),
    file: TextIO | None = None,
) -> None:  # fmt: skip
    """Print it on `file` (standard output); `sizes`: what each plan is called; `remarks`: said at the end."""
    stream = file or sys.stdout
    page = open_page(stream)
    write_tuning(page, result, sizes=sizes, metric=metric)
    if pruned:
        page.heading("Not tried")
        page.table(
            [
                Column("Value", [each.value.id for each in pruned], text=True),
                Column("Why", [each.reason for each in pruned], text=True),
            ]
        )
    for remark in remarks:
        page.line(remark)
    close_page(page, stream)


def write_tuning(page: Page, result: Result, *, sizes: Sequence[str], metric: str) -> None:
    """The outcome and every step that led to it."""
    _heading(page, result, sizes, metric)
    _steps(page, f"Single settings against {result.baseline}", result.singles)
    if result.twin is not None:
        page.line(f"Noise: {result.twin.reason} ({_interval(result.twin)}).", "dim")
    _steps(page, "Combined, the strongest first; each against the same without it", result.combined)
    _steps(page, "Taken out again; each against the same without it", result.ablated)
    _steps(page, "Confirmed on fresh launches", result.confirmed, sizes=sizes)
    if result.interactions:
        page.heading("Settings that gain alone and lose together")
        for line in result.interactions:
            page.line(f"{line.setting} with {line.against}: {_ratio(line)} {_interval(line)}")


def _heading(page: Page, result: Result, sizes: Sequence[str], metric: str) -> None:
    page.heading(result.outcome)
    if result.winner is not None:
        for line in result.confirmation:
            page.line(
                f"{metric} at {sizes[line.plan]}: {_ratio(line)} × {result.baseline} {_interval(line)}, {line.reason}"
            )


def _steps(page: Page, title: str, lines: Sequence[TuneLine], *, sizes: Sequence[str] | None = None) -> None:
    if not lines:
        return
    page.heading(title)
    page.table(
        [
            Column("Setting", [line.setting or line.config for line in lines], text=True),
            Column("At", [sizes[line.plan] if sizes else "" for line in lines], text=True),
            Column("Speed-up", [_ratio(line) for line in lines]),
            Column("Interval", [_interval(line) for line in lines], text=True),
            Column("Blocks", [str(line.launches) for line in lines]),
            Column("Decision", [line.decision for line in lines], text=True),
            Column("Why", [line.reason for line in lines], text=True),
        ]
    )


def _ratio(line: TuneLine) -> str:
    return number(line.ratio) if line.ratio is None or line.ratio < 1 else f"{line.ratio:.3f}"


def _interval(line: TuneLine) -> str:
    if line.low is None or line.high is None:
        return NULL
    return f"{line.low:.3f} to {line.high:.3f}"
