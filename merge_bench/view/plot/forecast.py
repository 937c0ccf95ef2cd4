"""A forecast's scaling as panels: throughput, and what the time goes to, over the number of workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from merge_bench.analysis.documents.predict import Forecast, PredictDocument, Quantity
from merge_bench.units import GIB
from merge_bench.view.plot.marks import Chart
from merge_bench.view.plot.series import Series, panel

_PHASES = ("partition", "exchange", "join")
_SPREAD = "95 % interval by resampling"


def panels_of(document: PredictDocument) -> list[Chart]:
    """The panels of a document of `predict` that have anything to show; rows that are partly unknown are left out."""
    rows = [row for row in document.scaling if row.unknown is None]
    throughput = [
        _interval(rows, [row.throughput_bytes_per_second for row in rows], 1 / GIB),
        *_points("measured", 1, rows, map(_measured_throughput, rows)),
    ]
    seconds = [
        _interval(rows, [row.wall_seconds for row in rows], 1e3),
        *_points("measured", 1, rows, ((row.measured_wall_seconds or 0.0) * 1e3 for row in rows)),
    ]
    for index, phase in enumerate(_PHASES, 2):
        found = (float(getattr(row.phases_seconds, phase, 0.0)) * 1e3 for row in rows)
        seconds += _points(phase, index, rows, found, forecast=True)
    panels = [_panel("Throughput", "GiB/s", throughput), _panel("Wall-clock and its phases", "ms", seconds)]
    return [each for each in panels if not each.empty]


def _panel(title: str, unit: str, series: Sequence[Series]) -> Chart:
    return panel(
        series, title=title, x_title="Workers", y_title=f"{title.split(' and ')[0]} ({unit})", x_unit="", y_unit=unit,
        spread=_SPREAD, log=True, counted="workers",
    )  # fmt: skip


def _measured_throughput(row: Forecast) -> float:
    """GiB/s; 0 where nothing was measured."""
    return (row.data_bytes or 0.0) / row.measured_wall_seconds / GIB if row.measured_wall_seconds else 0.0


def _interval(rows: Sequence[Forecast], quantities: Sequence[Quantity | None], factor: float) -> Series:
    found = [(row, one) for row, one in zip(rows, quantities, strict=True) if one is not None]
    points = tuple(
        (float(row.workers), one.value * factor, one.interval[0] * factor, one.interval[1] * factor)
        for row, one in found
    )
    details = {"hosts": tuple(str(row.hosts) for row, _ in found), "limit": tuple(str(row.limit) for row, _ in found)}
    return Series("forecast", 0, points, details=details, forecast=True)


def _points(
    label: str, index: int, rows: Sequence[Forecast], values: Iterable[float], *, forecast: bool = False
) -> list[Series]:
    """A series without intervals, of the rows where it is above 0; none where there is no such row."""
    found = [(float(row.workers), one, one, one) for row, one in zip(rows, values, strict=True) if one > 0]
    return [Series(label, index, tuple(found), forecast=forecast)] if found else []
