"""A forecast for people: the numbers with their intervals, the scaling table, the parameters, what is not known.

As panels, throughput and what the time goes to over the number of workers: forecasts for clusters that no measured run
covers are marked as extrapolated, hollow points in a hatched area.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import TextIO

from merge_bench.analysis.aggregate import PHASES
from merge_bench.forecast.document import Forecast, ForecastQuantity, ModelCheck, PredictDocument
from merge_bench.forecast.model import ModelParameter
from merge_bench.units import GIB, count_with_noun
from merge_bench.view.content import Column, PageBuilder, group_by_key
from merge_bench.view.plot import (
    GREY,
    Axis,
    BandMark,
    Chart,
    LineMark,
    MarkGroup,
    PointMarks,
    WhiskerMarks,
    size_tick_label,
    size_ticks,
    transpose_rows,
)
from merge_bench.view.terminal import print_page_at_exit
from merge_bench.view.text import NULL, format_gib, format_ms, format_number, format_row_count

_Rows = Sequence[tuple[Forecast, ForecastQuantity]]
"""Forecasts, each with the quantity that a panel shows, in the panel's unit."""


def print_forecast(document: PredictDocument, *, file: TextIO | None = None, width: int | None = None) -> None:
    """Print the document of ``predict`` on `file` (standard output)."""
    with print_page_at_exit(file, width) as page:
        page.add_heading("merge_bench · predict")
        _print_summary(page, document)
        page.add_heading("Scaling (forecasts; workers fill one host after the other)")
        page.add_table(*_scaling_columns(document.scaling))
        for sentence, alike in group_by_key(document.scaling, lambda row: row.unknown).items():
            if sentence:
                page.add_paragraph(f"{NULL}  {', '.join(str(row.workers) for row in alike)} workers: {sentence}", "dim")
        page.add_heading("Parameters")
        page.add_table(*_parameter_columns(document.parameters))
        page.add_heading("Model compared with the measurements it was fitted to")
        page.add_table(*_model_check_columns(document.checked))
        page.add_paragraphs("Assumptions and unknowns", document.notes)


def _print_summary(page: PageBuilder, document: PredictDocument) -> None:
    forecast = document.forecast
    what_if = [("What if", ", ".join(document.what_if))] if document.what_if else []
    parts = sorted((forecast.parts_seconds or {}).items(), key=lambda part: -part[1])
    whole = sum(seconds for _, seconds in parts)
    shares = ", ".join(f"{name} {100 * seconds / whole:.0f} %" for name, seconds in parts if seconds > 0.005 * whole)
    page.add_named_values(
        ("Forecast for", f"{count_with_noun(forecast.workers, 'worker')} on {count_with_noun(forecast.hosts, 'host')}"),
        ("Rows per chunk", format_row_count(document.rows_per_chunk)),
        ("Engine", document.engine),
        ("Config", document.config),
        *what_if,
        ("Wall-clock (ms)", _quantity_with_interval_text(forecast.wall_seconds, format_ms)),
        ("Throughput (GiB/s)", _quantity_with_interval_text(forecast.throughput_bytes_per_second, format_gib)),
        (
            "Bandwidth of a worker (GiB/s)",
            _quantity_with_interval_text(forecast.bandwidth_bytes_per_second, format_gib),
        ),
        ("Data processed (GiB)", format_gib(forecast.data_bytes)),
        ("Data sent between workers (GiB)", format_gib(forecast.crossing_bytes)),
        ("Data sent between hosts (GiB)", format_gib(forecast.between_hosts_bytes)),
        ("Limited by", forecast.limit or NULL),
        ("Shares of the time", shares),
    )


def _quantity_with_interval_text(quantity: ForecastQuantity | None, unit: Callable[[float | None], str]) -> str:
    if quantity is None:
        return NULL
    low, high = quantity.interval
    return f"{unit(quantity.value)} ({unit(low)} to {unit(high)})"


def _quantity_text(quantity: ForecastQuantity | None, unit: Callable[[float | None], str]) -> str:
    return NULL if quantity is None else unit(quantity.value)


def _scaling_columns(scaling: Sequence[Forecast]) -> list[Column]:
    def column(heading: str, of: Callable[[Forecast], str], *, text: bool = False) -> Column:
        return Column(heading, [of(row) for row in scaling], text=text)

    def phase(name: str) -> Callable[[Forecast], str]:
        return lambda row: format_ms(getattr(row.phases_seconds, name)) if row.phases_seconds else NULL

    measured = any(row.measured_wall_seconds is not None for row in scaling)
    return [
        column("Workers", lambda row: str(row.workers)),
        column("Hosts", lambda row: str(row.hosts)),
        column("Wall-clock\n(ms)", lambda row: _quantity_with_interval_text(row.wall_seconds, format_ms)),
        *([column("Measured\n(ms)", lambda row: format_ms(row.measured_wall_seconds))] if measured else []),
        column("Partition\n(ms)", phase("partition")),
        column("Exchange\n(ms)", phase("exchange")),
        column("Join\n(ms)", phase("join")),
        column("Throughput\n(GiB/s)", lambda row: _quantity_text(row.throughput_bytes_per_second, format_gib)),
        column("Bandwidth\n(GiB/s)", lambda row: _quantity_text(row.bandwidth_bytes_per_second, format_gib)),
        column("Limited by", lambda row: row.limit or NULL, text=True),
    ]


def _parameter_columns(parameters: Sequence[ModelParameter]) -> list[Column]:
    return [
        Column("Parameter", [each.name.replace("_", " ") for each in parameters], text=True),
        Column("Value", [_parameter_value_text(each.value, each.unit) for each in parameters]),
        Column("95 % interval", [_interval_text(each) for each in parameters]),
        Column("Unit", [_UNITS[each.unit][0] for each in parameters], text=True),
        Column("Source", [each.source for each in parameters], text=True),
        Column("By", [each.origin for each in parameters], text=True),
    ]


_UNITS: Mapping[str, tuple[str, float]] = {
    "B/s": ("GiB/s", 1 / 2**30),
    "s": ("ms", 1e3),
    "rows/s": ("Mrows/s", 1e-6),
    "": ("", 1.0),
}


def _parameter_value_text(value: float | None, unit: str) -> str:
    return "unlimited" if value is None else format_number(value * _UNITS[unit][1])


def _interval_text(parameter: ModelParameter) -> str:
    """A parameter's interval in the unit that is shown, as ``1.2 to 1.4``."""
    if parameter.interval is None:
        return NULL
    low, high = parameter.interval
    return f"{_parameter_value_text(low, parameter.unit)} to {_parameter_value_text(high, parameter.unit)}"


def _model_check_columns(checked: Sequence[ModelCheck]) -> list[Column]:
    return [
        Column("Result", [each.result for each in checked], text=True),
        Column("Workers", [str(each.workers) for each in checked]),
        Column("Hosts", [str(each.hosts) for each in checked]),
        Column("Rows per chunk", [format_row_count(each.rows_per_chunk) for each in checked]),
        Column("Measured\n(ms)", [format_ms(each.measured_wall_seconds) for each in checked]),
        Column("Model\n(ms)", [format_ms(each.model_wall_seconds) for each in checked]),
        Column("Error\n(%)", [NULL if each.error is None else f"{100 * each.error:+.1f}" for each in checked]),
    ]


def forecast_charts(document: PredictDocument) -> list[Chart]:
    """Make the charts of a forecast over the number of workers; forecasts that are partly unknown are left out."""
    rows = [row for row in document.scaling if row.unknown is None]
    within = [row.workers for row in takewhile(lambda row: _has_run_as_large(document, row), rows)]
    walls = {row.workers: row.measured_wall_seconds for row in rows if row.measured_wall_seconds}
    rates = {row.workers: (row.data_bytes or 0.0) / walls[row.workers] / GIB for row in rows if row.workers in walls}
    throughput = _quantity_chart(
        document,
        "throughput",
        "GiB/s",
        [
            (row, _scale_quantity(rate, 1 / GIB))
            for row in rows
            if (rate := row.throughput_bytes_per_second) is not None
        ],
        within,
        rates,
        {},
    )
    wall_clock = _quantity_chart(
        document,
        "wall-clock and its phases",
        "ms",
        [(row, _scale_quantity(row.wall_seconds, 1e3)) for row in rows if row.wall_seconds is not None],
        within,
        {workers: seconds * 1e3 for workers, seconds in walls.items()},
        {
            name: {row.workers: seconds * 1e3 for row in rows if (seconds := getattr(row.phases_seconds, name, 0.0))}
            for name in PHASES
        },
    )
    return [chart for chart in (throughput, wall_clock) if not chart.is_empty]


def _has_run_as_large(document: PredictDocument, row: Forecast) -> bool:
    """Whether a run has at least the workers, hosts and rows of a forecast, and no what-if changes the machine."""
    return not document.what_if and any(
        run.workers >= row.workers and run.hosts >= row.hosts and run.rows_per_chunk >= 0.999 * document.rows_per_chunk
        for run in document.checked
    )


def _scale_quantity(value: ForecastQuantity, factor: float) -> ForecastQuantity:
    low, high = value.interval
    return ForecastQuantity(value=value.value * factor, interval=(low * factor, high * factor))


def _quantity_chart(
    document: PredictDocument,
    what: str,
    unit: str,
    rows: _Rows,
    within: Sequence[int],
    measured: Mapping[int, float],
    phases: Mapping[str, Mapping[int, float]],
) -> Chart:
    """A chart of one quantity over the number of workers; `within`: the numbers that are not extrapolated.

    `measured`: measured values by number of workers; `phases`: likewise, of each part of a time; a rate has none.
    """
    counts = [row.workers for row in document.scaling if row.unknown is None]
    extrapolated = len(counts) > len(within)
    groups = [*_ideal_scaling_groups(rows, measured, grows=not phases), *_forecast_groups(rows, set(within), unit)]
    groups += [_point_group("measured", 1, measured, counts, unit, line=False)] if measured else []
    for index, (name, values) in enumerate(phases.items(), 2):
        groups += [_point_group(name, index, values, within, unit, line=True)] if values else []
    shown = [row.workers for row, _ in rows] or [1]
    ticks = {at: size_tick_label(at, "") for at in size_ticks(min(shown), max(shown), log=True, most_ticks=16)}
    return Chart(
        Axis("Workers", ticks, log=True, rule=within[-1] if within and extrapolated else None),
        Axis(f"{what.partition(' ')[0].capitalize()} ({unit})", log=True),
        tuple(groups),
        400,
        f"Forecast {what}: {document.config}, {document.rows_per_chunk:,.0f} rows per chunk",
        _chart_note(document, extrapolated=extrapolated, bordered=bool(within)),
    )


def _ideal_scaling_groups(rows: _Rows, measured: Mapping[int, float], *, grows: bool) -> Iterator[MarkGroup]:
    """A line for perfect scaling, from what was measured on the smallest cluster, or else its forecast.

    `grows`: whether the ideal quantity is proportional to the workers, or the same for any number.
    """
    if len(rows) > 1:
        (row, value), workers = rows[0], [row.workers for row, _ in rows]
        first_value = measured.get(row.workers, value.value)
        line = LineMark(workers, [first_value * count / row.workers if grows else first_value for count in workers])
        yield MarkGroup(GREY, (line,), f"ideal scaling from {count_with_noun(row.workers, 'worker')}")


def _forecast_groups(rows: _Rows, within: set[int], unit: str) -> Iterator[MarkGroup]:
    """The groups of forecasts with their intervals: those that a measured run covers, and extrapolated ones."""
    covered = [(row, value) for row, value in rows if row.workers in within]
    beyond = [(row, value) for row, value in rows if row.workers not in within]
    if covered:
        x, y, low, high = _point_columns(covered)
        bars, points = WhiskerMarks(x, low, high, upright=True), PointMarks(x, y, details=_hover_text(covered, unit))
        yield MarkGroup(0, (LineMark(x, y, dashed=True), bars, points), "forecast")
    if beyond:
        x, y, low, high = _point_columns([*covered[-1:], *beyond])
        first = len(x) - len(beyond)
        hollow = PointMarks(x[first:], y[first:], [True] * len(beyond), details=_hover_text(beyond, unit))
        band = BandMark(x, low, high, hatched=True)
        yield MarkGroup(0, (LineMark(x, y, dashed=True), band, *band.edge_lines, hollow), "forecast, extrapolated")


def _point_columns(rows: _Rows) -> Sequence[Sequence[float]]:
    """Four columns: numbers of workers, values, lower and upper ends of the intervals."""
    return transpose_rows([(row.workers, value.value, *value.interval) for row, value in rows], 4)


def _hover_text(rows: _Rows, unit: str) -> dict[str, list[str]]:
    return {
        "workers": [f"{row.workers} on {count_with_noun(row.hosts, 'host')}" for row, _ in rows],
        "value": [f"{value.value:,.6g} {unit}" for _, value in rows],
        "95 % interval": [f"{value.interval[0]:,.6g} to {value.interval[1]:,.6g} {unit}" for _, value in rows],
        "limit": [str(row.limit) for row, _ in rows],
    }


def _point_group(
    label: str, index: int, values: Mapping[int, float], filled: Sequence[int], unit: str, *, line: bool
) -> MarkGroup:
    """A group of points without intervals; `values`: by number of workers; `filled`: numbers with a filled point."""
    x, y = list(values), list(values.values())
    details = {"series": [label] * len(x), "workers": list(map(str, x)), "value": [f"{at:,.6g} {unit}" for at in y]}
    points = PointMarks(x, y, [at not in filled for at in x], details=details)
    return MarkGroup(index, (LineMark(x, y, dashed=True), points) if line else (points,), label)


def _chart_note(document: PredictDocument, *, extrapolated: bool, bordered: bool) -> str:
    text = "Dashed lines: forecasts; bars and hatched area: 95 % interval by resampling."
    if not extrapolated:
        return text
    largest = max(document.checked, key=lambda run: (run.workers, run.hosts, run.rows_per_chunk))
    measured = f"{count_with_noun(largest.workers, 'worker')} on {count_with_noun(largest.hosts, 'host')}"
    where = "right of the vertical line" if bordered else "everywhere"
    why = f"what if {', '.join(document.what_if)}" if document.what_if else f"the largest measured run has {measured}"
    return f"{text} Hollow, {where}: extrapolated ({why}); the interval leaves out the error of the model there."
