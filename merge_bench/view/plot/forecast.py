"""A forecast's scaling as panels: throughput, and what the time goes to, over the number of workers.

Forecasts for clusters that no measured run covers are marked as extrapolated: hollow points in a hatched area.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile

from merge_bench.analysis.documents.predict import Forecast, PredictDocument, Quantity
from merge_bench.units import GIB, plural
from merge_bench.view.plot.marks import Axis, Band, Chart, Group, Line, Picture, Points, Whiskers
from merge_bench.view.plot.style import GREY, size_ticks, tick_label

_PHASES = ("partition", "exchange", "join")


def panels_of(document: PredictDocument) -> list[Chart]:
    """The panels of a document of `predict` that have anything to show; rows that are partly unknown are left out."""
    rows = [row for row in document.scaling if row.unknown is None]
    inside = len(list(takewhile(lambda row: _measured_as_large(document, row), rows)))
    known = {row.workers: row.measured_wall_seconds for row in rows if row.measured_wall_seconds}
    rates = {row.workers: (row.data_bytes or 0.0) / known[row.workers] / GIB for row in rows if row.workers in known}
    walls = {workers: seconds * 1e3 for workers, seconds in known.items()}
    phases = {name: {row.workers: value for row in rows if (value := _phase(row, name))} for name in _PHASES}
    panels = [
        _panel(document, rows, inside, "throughput", "GiB/s", lambda row: _in(row.throughput_bytes_per_second, 1 / GIB),
               rates, {}, ideal=lambda first, factor: first * factor),
        _panel(document, rows, inside, "wall-clock and its phases", "ms", lambda row: _in(row.wall_seconds, 1e3),
               walls, phases, ideal=lambda first, _: first),
    ]  # fmt: skip
    return [each for each in panels if not each.empty]


def _measured_as_large(document: PredictDocument, row: Forecast) -> bool:
    """Whether a run was measured that is at least as large in each way, on a machine that was not changed."""
    return not document.what_if and any(
        run.workers >= row.workers and run.hosts >= row.hosts and run.rows_per_chunk >= 0.999 * document.rows_per_chunk
        for run in document.checked
    )


def _panel(
    document: PredictDocument, rows: Sequence[Forecast], inside: int, what: str, unit: str,
    quantity: Callable[[Forecast], Quantity | None], measured: Mapping[int, float],
    phases: Mapping[str, Mapping[int, float]], *, ideal: Callable[[float, float], float],
) -> Chart:  # fmt: skip
    """A panel of `quantity`, in `unit`; the first `inside` of `rows` are not extrapolated."""
    found = [(row, value) for row in rows if (value := quantity(row)) is not None]
    within = [row.workers for row in rows[:inside]]
    beyond = [row.workers for row in rows[inside:]]
    counts = [row.workers for row, _ in found] or [1]
    groups = [*_ideal(found, measured, ideal), *_forecasts(found, set(within), unit)]
    groups += [_points("measured", 1, measured, (), unit, line=False)] if measured else []
    for index, (name, values) in enumerate(phases.items(), 2):
        groups += [_points(name, index, values, beyond, unit, line=True)] if values else []
    ticks = {at: tick_label(at, "") for at in size_ticks(min(counts), max(counts), log=True, most=16)}
    picture = Picture(
        Axis("Workers", ticks, log=True, rule=within[-1] if within and beyond else None),
        Axis(f"{what.partition(' ')[0].capitalize()} ({unit})", log=True),
        tuple(groups),
        height=400,
    )
    title = f"Forecast {what}: {document.config}, {document.rows_per_chunk:,.0f} rows per chunk"
    return Chart(title, picture, _note(document, extrapolated=bool(beyond), bordered=bool(within and beyond)))


def _ideal(
    found: Sequence[tuple[Forecast, Quantity]], measured: Mapping[int, float], ideal: Callable[[float, float], float]
) -> Iterator[Group]:
    """What perfect scaling of the smallest cluster would be: of what was measured there, or else of its forecast."""
    if len(found) > 1:
        (row, value), workers = found[0], [row.workers for row, _ in found]
        first = measured.get(row.workers, value.value)
        line = Line(workers, [ideal(first, count / row.workers) for count in workers])
        yield Group(GREY, (line,), f"ideal scaling from {plural(row.workers, 'worker')}")


def _forecasts(found: Sequence[tuple[Forecast, Quantity]], within: set[int], unit: str) -> Iterator[Group]:
    """Forecasts with their intervals: those that a measured run covers, and extrapolated ones."""
    first = [each for each in found if each[0].workers in within]
    beyond = [each for each in found if each[0].workers not in within]
    if first:
        x, y, low, high = _columns(first)
        bars, points = Whiskers(x, low, high, upright=True, alpha=0.5), Points(x, y, details=_details(first, unit))
        yield Group(0, (Line(x, y, dashed=True), bars, points), "forecast")
    if beyond:
        x, y, low, high = _columns([*first[-1:], *beyond])
        hollow = Points(*_columns(beyond)[:2], [True] * len(beyond), details=_details(beyond, unit))
        yield Group(0, (Line(x, y, dashed=True), Band(x, low, high, hatched=True), hollow), "forecast, extrapolated")


def _columns(found: Sequence[tuple[Forecast, Quantity]]) -> tuple[list[float], list[float], list[float], list[float]]:
    """Workers, values, and the ends of the intervals."""
    values = [value for _, value in found]
    low, high = [value.interval[0] for value in values], [value.interval[1] for value in values]
    return [float(row.workers) for row, _ in found], [value.value for value in values], low, high


def _details(found: Sequence[tuple[Forecast, Quantity]], unit: str) -> dict[str, list[str]]:
    return {
        "workers": [f"{row.workers} on {plural(row.hosts, 'host')}" for row, _ in found],
        "value": [f"{value.value:,.6g} {unit}" for _, value in found],
        "95 % interval": [f"{value.interval[0]:,.6g} to {value.interval[1]:,.6g} {unit}" for _, value in found],
        "limit": [str(row.limit) for row, _ in found],
    }


def _points(
    label: str, index: int, values: Mapping[int, float], hollow: Sequence[int], unit: str, *, line: bool
) -> Group:
    """Values by the number of workers, without intervals."""
    x, y = list(values), list(values.values())
    details = {"series": [label] * len(x), "workers": list(map(str, x)), "value": [f"{at:,.6g} {unit}" for at in y]}
    points = Points(x, y, [at in hollow for at in x], details=details)
    return Group(index, (Line(x, y, dashed=True), points) if line else (points,), label)


def _note(document: PredictDocument, *, extrapolated: bool, bordered: bool) -> str:
    text = "Dashed lines: forecasts; bars and hatched area: 95 % interval by resampling."
    if not extrapolated:
        return text
    largest = max(document.checked, key=lambda run: (run.workers, run.hosts, run.rows_per_chunk))
    measured = f"{plural(largest.workers, 'worker')} on {plural(largest.hosts, 'host')}"
    where = "right of the vertical line" if bordered else "everywhere"
    why = f"what if {', '.join(document.what_if)}" if document.what_if else f"the largest measured run has {measured}"
    return f"{text} Hollow, {where}: extrapolated ({why}); the interval leaves out the error of the model there."


def _in(value: Quantity | None, factor: float) -> Quantity | None:
    """`value` in another unit."""
    if value is None:
        return None
    return Quantity(value=value.value * factor, interval=(value.interval[0] * factor, value.interval[1] * factor))


def _phase(row: Forecast, name: str) -> float:
    """Milliseconds; 0 where not known."""
    return float(getattr(row.phases_seconds, name, 0.0)) * 1e3
