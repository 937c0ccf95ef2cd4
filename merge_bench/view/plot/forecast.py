"""A forecast's scaling as panels: throughput, and what the time goes to, over the number of workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from merge_bench.units import GIB
from merge_bench.view.plot.series import Panel, Series

Row = Mapping[str, Any]
_PHASES = ("partition", "exchange", "join")
_SPREAD = "95 % interval by resampling"


def panels_of(document: Mapping[str, Any]) -> list[Panel]:
    """The panels of a document of `predict`; rows of which something is not known are left out."""
    rows = [row for row in document["scaling"] if row["unknown"] is None]
    measured = [row for row in rows if row["measured_wall_seconds"]]
    walls = [row for row in rows if row["wall_seconds"] is not None]
    throughput = [
        _interval("forecast", 0, walls, lambda row: row["throughput_bytes_per_second"], 1 / GIB),
        *_points("measured", 1, measured, lambda row: row["data_bytes"] / row["measured_wall_seconds"] / GIB),
    ]
    seconds = [
        _interval("forecast", 0, walls, lambda row: row["wall_seconds"], 1e3),
        *_points("measured", 1, measured, lambda row: row["measured_wall_seconds"] * 1e3),
        *(series for index, phase in enumerate(_PHASES, 2) for series in _phase(phase, index, rows)),
    ]
    return [
        _panel("Throughput", "GiB/s", throughput),
        _panel("Wall-clock and its phases", "ms", seconds),
    ]


def _panel(title: str, unit: str, series: Sequence[Series]) -> Panel:
    return Panel(
        title=title, x_title="Workers", y_title=f"{title.split(' and ')[0]} ({unit})", x_unit="", y_unit=unit,
        spread=_SPREAD, log=True, series=tuple(series), counted="workers",
    )  # fmt: skip


def _interval(label: str, index: int, rows: Sequence[Row], of: Callable[[Row], Row], factor: float) -> Series:
    return Series(
        label=label,
        index=index,
        x=tuple(float(row["workers"]) for row in rows),
        y=tuple(of(row)["value"] * factor for row in rows),
        low=tuple(of(row)["interval"][0] * factor for row in rows),
        high=tuple(of(row)["interval"][1] * factor for row in rows),
        doubtful=(False,) * len(rows),
        details={name: tuple(str(row[name]) for row in rows) for name in ("hosts", "limit")},
        forecast=True,
    )


def _phase(name: str, index: int, rows: Sequence[Row]) -> list[Series]:
    return _points(name, index, rows, lambda row: row["phases_seconds"][name] * 1e3, forecast=True)


def _points(
    label: str, index: int, rows: Sequence[Row], of: Callable[[Row], float], *, forecast: bool = False
) -> list[Series]:
    """A series without intervals, of the rows where it is above 0; none where there is no such row."""
    found = [(float(row["workers"]), value) for row in rows if (value := of(row)) > 0]
    if not found:
        return []
    x, y = tuple(each for each, _ in found), tuple(value for _, value in found)
    return [Series(label=label, index=index, x=x, y=y, low=y, high=y, doubtful=(False,) * len(x), forecast=forecast)]
