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
    """Print the document of ``predict`` as text and tables on `file` (standard output)."""
    with print_page_at_exit(file, width) as page:
        page.add_heading("merge_bench · predict")
        _write_forecast_summary(page, document)
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


def _write_forecast_summary(page: PageBuilder, document: PredictDocument) -> None:
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


def _quantity_with_interval_text(quantity: ForecastQuantity | None, format_value: Callable[[float | None], str]) -> str:
    if quantity is None:
        return NULL
    low, high = quantity.interval
    return f"{format_value(quantity.value)} ({format_value(low)} to {format_value(high)})"


def _quantity_text(quantity: ForecastQuantity | None, format_value: Callable[[float | None], str]) -> str:
    return NULL if quantity is None else format_value(quantity.value)


def _scaling_columns(forecasts: Sequence[Forecast]) -> list[Column]:
    def scaling_column(heading: str, text_of_forecast: Callable[[Forecast], str], *, is_text: bool = False) -> Column:
        return Column(heading, [text_of_forecast(row) for row in forecasts], text=is_text)

    def phase_text_function(phase: str) -> Callable[[Forecast], str]:
        return lambda row: format_ms(getattr(row.phases_seconds, phase)) if row.phases_seconds else NULL

    measured = any(row.measured_wall_seconds is not None for row in forecasts)
    return [
        scaling_column("Workers", lambda row: str(row.workers)),
        scaling_column("Hosts", lambda row: str(row.hosts)),
        scaling_column("Wall-clock\n(ms)", lambda row: _quantity_with_interval_text(row.wall_seconds, format_ms)),
        *([scaling_column("Measured\n(ms)", lambda row: format_ms(row.measured_wall_seconds))] if measured else []),
        scaling_column("Partition\n(ms)", phase_text_function("partition")),
        scaling_column("Exchange\n(ms)", phase_text_function("exchange")),
        scaling_column("Join\n(ms)", phase_text_function("join")),
        scaling_column("Throughput\n(GiB/s)", lambda row: _quantity_text(row.throughput_bytes_per_second, format_gib)),
        scaling_column("Bandwidth\n(GiB/s)", lambda row: _quantity_text(row.bandwidth_bytes_per_second, format_gib)),
        scaling_column("Limited by", lambda row: row.limit or NULL, is_text=True),
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
    """The interval of a parameter in the unit that is shown, as text: ``1.2 to 1.4``."""
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
    """Make charts of forecast throughput and times over the number of workers, without partly unknown forecasts."""
    rows = [row for row in document.scaling if row.unknown is None]
    within = [row.workers for row in takewhile(lambda row: _is_forecast_within_measured(document, row), rows)]
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


def _is_forecast_within_measured(document: PredictDocument, forecast: Forecast) -> bool:
    """Whether a measured run has at least the workers, hosts and rows of a forecast, and no what-if is given."""
    return not document.what_if and any(
        run.workers >= forecast.workers
        and run.hosts >= forecast.hosts
        and run.rows_per_chunk >= 0.999 * document.rows_per_chunk
        for run in document.checked
    )


def _scale_quantity(quantity: ForecastQuantity, factor: float) -> ForecastQuantity:
    low, high = quantity.interval
    return ForecastQuantity(value=quantity.value * factor, interval=(low * factor, high * factor))


def _quantity_chart(
    document: PredictDocument,
    quantity_name: str,
    unit: str,
    forecasts: _Rows,
    covered_workers: Sequence[int],
    measured_values: Mapping[int, float],
    phase_values: Mapping[str, Mapping[int, float]],
) -> Chart:
    """Make the chart of one forecast quantity over the number of workers, with its measured values.

    `covered_workers`: numbers of workers that are not extrapolated. `measured_values`: by number of workers.
    `phase_values`: likewise, for each part of a time; a rate has none.
    """
    counts = [row.workers for row in document.scaling if row.unknown is None]
    extrapolated = len(counts) > len(covered_workers)
    groups = [
        *_ideal_scaling_groups(forecasts, measured_values, is_proportional=not phase_values),
        *_forecast_mark_groups(forecasts, set(covered_workers), unit),
    ]
    groups += (
        [_workers_mark_group("measured", 1, measured_values, counts, unit, with_line=False)] if measured_values else []
    )
    for index, (name, values) in enumerate(phase_values.items(), 2):
        groups += [_workers_mark_group(name, index, values, covered_workers, unit, with_line=True)] if values else []
    shown = [row.workers for row, _ in forecasts] or [1]
    ticks = {at: size_tick_label(at, "") for at in size_ticks(min(shown), max(shown), log=True, most_ticks=16)}
    return Chart(
        Axis("Workers", ticks, log=True, rule=covered_workers[-1] if covered_workers and extrapolated else None),
        Axis(f"{quantity_name.partition(' ')[0].capitalize()} ({unit})", log=True),
        tuple(groups),
        400,
        f"Forecast {quantity_name}: {document.config}, {document.rows_per_chunk:,.0f} rows per chunk",
        _chart_note(document, extrapolated=extrapolated, has_border=bool(covered_workers)),
    )


def _ideal_scaling_groups(
    forecasts: _Rows, measured_values: Mapping[int, float], *, is_proportional: bool
) -> Iterator[MarkGroup]:
    """Yield the line of perfect scaling from the smallest cluster: from its measured value, else from its forecast.

    `is_proportional`: whether the ideal quantity is proportional to the workers, or the same for any number.
    """
    if len(forecasts) > 1:
        (row, value), workers = forecasts[0], [row.workers for row, _ in forecasts]
        first_value = measured_values.get(row.workers, value.value)
        line = LineMark(
            workers, [first_value * count / row.workers if is_proportional else first_value for count in workers]
        )
        yield MarkGroup(GREY, (line,), f"ideal scaling from {count_with_noun(row.workers, 'worker')}")


def _forecast_mark_groups(forecasts: _Rows, covered_workers: set[int], unit: str) -> Iterator[MarkGroup]:
    """Yield chart marks of forecasts with their intervals: those that a measured run covers, then extrapolated ones."""
    covered = [(row, value) for row, value in forecasts if row.workers in covered_workers]
    beyond = [(row, value) for row, value in forecasts if row.workers not in covered_workers]
    if covered:
        x, y, low, high = _interval_chart_columns(covered)
        bars, points = WhiskerMarks(x, low, high, upright=True), PointMarks(x, y, details=_hover_details(covered, unit))
        yield MarkGroup(0, (LineMark(x, y, dashed=True), bars, points), "forecast")
    if beyond:
        x, y, low, high = _interval_chart_columns([*covered[-1:], *beyond])
        first = len(x) - len(beyond)
        hollow = PointMarks(x[first:], y[first:], [True] * len(beyond), details=_hover_details(beyond, unit))
        band = BandMark(x, low, high, hatched=True)
        yield MarkGroup(0, (LineMark(x, y, dashed=True), band, *band.edge_lines, hollow), "forecast, extrapolated")


def _interval_chart_columns(rows: _Rows) -> Sequence[Sequence[float]]:
    """Return four columns of a chart: numbers of workers, values, lower and upper ends of the intervals."""
    return transpose_rows([(row.workers, value.value, *value.interval) for row, value in rows], 4)


def _hover_details(rows: _Rows, unit: str) -> dict[str, list[str]]:
    return {
        "workers": [f"{row.workers} on {count_with_noun(row.hosts, 'host')}" for row, _ in rows],
        "value": [f"{value.value:,.6g} {unit}" for _, value in rows],
        "95 % interval": [f"{value.interval[0]:,.6g} to {value.interval[1]:,.6g} {unit}" for _, value in rows],
        "limit": [str(row.limit) for row, _ in rows],
    }


def _workers_mark_group(
    label: str,
    color_index: int,
    values_by_workers: Mapping[int, float],
    filled_workers: Sequence[int],
    unit: str,
    *,
    with_line: bool,
) -> MarkGroup:
    """Make chart marks of values by number of workers, without intervals.

    `filled_workers`: numbers of workers with a filled point; others are hollow. `with_line`: whether a line joins the
    points.
    """
    x, y = list(values_by_workers), list(values_by_workers.values())
    details = {"series": [label] * len(x), "workers": list(map(str, x)), "value": [f"{at:,.6g} {unit}" for at in y]}
    points = PointMarks(x, y, [at not in filled_workers for at in x], details=details)
    return MarkGroup(color_index, (LineMark(x, y, dashed=True), points) if with_line else (points,), label)


def _chart_note(document: PredictDocument, *, extrapolated: bool, has_border: bool) -> str:
    text = "Dashed lines: forecasts; bars and hatched area: 95 % interval for the median of a launch."
    if not extrapolated:
        return text
    largest = max(document.checked, key=lambda run: (run.workers, run.hosts, run.rows_per_chunk))
    measured = f"{count_with_noun(largest.workers, 'worker')} on {count_with_noun(largest.hosts, 'host')}"
    where = "right of the vertical line" if has_border else "everywhere"
    why = f"what if {', '.join(document.what_if)}" if document.what_if else f"the largest measured run has {measured}"
    return f"{text} Hollow, {where}: extrapolated ({why}); the interval has the error of the model in its validation."
