"""What the Network tab shows, as plain data: panels over message size, and the rows behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from merge_bench.analysis import published
from merge_bench.errors import MergeBenchError
from merge_bench.probe.shared.kinds import measure_of, placed
from merge_bench.probe.shared.stored import label_rows
from merge_bench.records.probe_rows import Row
from merge_bench.view.dashboard.frames import frame_of
from merge_bench.view.dashboard.library import Loaded
from merge_bench.view.plot.network import panels_of
from merge_bench.view.plot.series import Panel

MOST_ROWS = 20_000


@dataclass(frozen=True)
class Drawn:
    """Panels, the table of rows, and what could not be shown."""

    panels: tuple[Panel, ...] = ()
    frame: pd.DataFrame | None = None
    problems: tuple[str, ...] = ()


def drawn(loaded: Sequence[Loaded], datasets: Sequence[str]) -> Drawn:
    """The rows of `loaded` and of published `datasets`, in the same panels where they measure the same."""
    problems = [f"{one.entry.folder.name}: {one.problem}" for one in loaded if one.problem]
    rows: list[Row] = []
    try:
        rows += label_rows([one.campaign for one in loaded if one.campaign is not None])
    except MergeBenchError as reason:
        problems.append(str(reason))
    for name in datasets:
        rows += published.network_rows(name)
    if len(rows) > MOST_ROWS:
        problems.append(f"Only the first {MOST_ROWS:,} of {len(rows):,} rows are shown.")
        rows = rows[:MOST_ROWS]
    return Drawn(panels_of(rows), frame(rows), tuple(problems))


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """A row each: what its test measures, in the unit that people read it in."""
    values = [(row, measure_of(row), measure_of(row).of(row)) for row in rows]
    columns: dict[str, list[Any]] = {
        "Config": [row.config for row in rows],
        "Test": [row.test for row in rows],
        "Placement": [placed(row.placement) for row in rows],
        "Message size (B)": [row.size for row in rows],
        "What": [measure.title for _, measure, _ in values],
        "Median": [value.median if value else None for _, _, value in values],
        "Least": [value.low if value else None for _, _, value in values],
        "Most": [value.high if value else None for _, _, value in values],
        "Unit": [measure.unit for _, measure, _ in values],
        "Lanes": [", ".join(row.selected) for row in rows],
        "Protocol": [row.protocol or "" for row in rows],
        "Launches": [row.launches for row in rows],
        "From": [row.source or "measured" for row in rows],
    }
    return frame_of(columns, numbers=("Median", "Least", "Most"), whole=("Message size (B)", "Launches"))
