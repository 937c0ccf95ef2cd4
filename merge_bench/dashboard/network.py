"""What the Network tab shows, as plain data: panels over message size, and the rows behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from merge_bench import published
from merge_bench.dashboard.library import Loaded
from merge_bench.errors import MergeBenchError
from merge_bench.plot.network import panels_of
from merge_bench.plot.series import Panel
from merge_bench.plot.style import shown
from merge_bench.probe.kinds import measure_of, placed
from merge_bench.probe.rows import Row
from merge_bench.probe.stored import label_rows

MOST_ROWS = 20_000
NUMBERS = ("Median", "Least", "Most")
COLUMNS = (
    "Config", "Test", "Placement", "Message size (B)", "What", *NUMBERS, "Unit", "Lanes", "Protocol", "Launches",
    "From",
)  # fmt: skip
TERMS = {"Config": "Config", "Message size (B)": "Message size", "Lanes": "Lanes", "From": "Published"}


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
    columns = {
        "Config": [shown(row.config) for row in rows],
        "Test": [shown(row.test) for row in rows],
        "Placement": [shown(placed(row.placement)) for row in rows],
        "Message size (B)": [row.size for row in rows],
        "What": [measure.title for _, measure, _ in values],
        "Median": [value.median if value else None for _, _, value in values],
        "Least": [value.low if value else None for _, _, value in values],
        "Most": [value.high if value else None for _, _, value in values],
        "Unit": [measure.unit for _, measure, _ in values],
        "Lanes": [shown(", ".join(row.selected)) for row in rows],
        "Protocol": [shown(row.protocol or "") for row in rows],
        "Launches": [row.launches for row in rows],
        "From": [shown(row.source or "measured") for row in rows],
    }
    whole = ("Message size (B)", "Launches")
    kinds = {name: float if name in NUMBERS else int if name in whole else object for name in COLUMNS}
    return pd.DataFrame(columns, columns=list(COLUMNS)).astype(kinds)
