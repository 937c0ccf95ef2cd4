"""A forecast for people: the numbers with their intervals, the scaling table, the parameters, what is not known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from merge_bench.forecast.documents import Checked, Forecast, ModelParameter, PredictDocument, Quantity
from merge_bench.units import plural
from merge_bench.view.content import Column, Page, grouped
from merge_bench.view.terminal import page_on
from merge_bench.view.text import NULL, gib, ms, number, rows


def print_forecast(document: PredictDocument, *, file: TextIO | None = None, width: int | None = None) -> None:
    """Print the document of ``predict`` on `file` (standard output)."""
    with page_on(file, width) as page:
        page.heading("merge_bench · predict")
        _print_summary(page, document)
        page.heading("Scaling (forecasts; workers fill one host after the other)")
        page.table(*_scaling_columns(document.scaling))
        _print_unknown(page, document.scaling)
        page.heading("Parameters")
        page.table(*_parameter_columns(document.parameters))
        page.heading("Model compared with the measurements it was fitted to")
        page.table(*_checked_columns(document.checked))
        page.paragraphs("Assumptions and unknowns", document.notes)


def _print_summary(page: Page, document: PredictDocument) -> None:
    forecast = document.forecast
    what_if = [("What if", ", ".join(document.what_if))] if document.what_if else []
    parts = sorted((forecast.parts_seconds or {}).items(), key=lambda part: -part[1])
    whole = sum(seconds for _, seconds in parts)
    shares = ", ".join(f"{name} {100 * seconds / whole:.0f} %" for name, seconds in parts if seconds > 0.005 * whole)
    page.pairs(
        ("Forecast for", f"{plural(forecast.workers, 'worker')} on {plural(forecast.hosts, 'host')}"),
        ("Rows per chunk", rows(document.rows_per_chunk)),
        ("Engine", document.engine),
        ("Config", document.config),
        *what_if,
        ("Wall-clock (ms)", _with_interval(forecast.wall_seconds, ms)),
        ("Throughput (GiB/s)", _with_interval(forecast.throughput_bytes_per_second, gib)),
        ("Bandwidth of a worker (GiB/s)", _with_interval(forecast.bandwidth_bytes_per_second, gib)),
        ("Data processed (GiB)", gib(forecast.data_bytes)),
        ("Data sent between workers (GiB)", gib(forecast.crossing_bytes)),
        ("Data sent between hosts (GiB)", gib(forecast.between_hosts_bytes)),
        ("Limited by", forecast.limit or NULL),
        ("Shares of the time", shares),
    )


def _with_interval(quantity: Quantity | None, unit: Callable[[float | None], str]) -> str:
    if quantity is None:
        return NULL
    low, high = quantity.interval
    return f"{unit(quantity.value)} ({unit(low)} to {unit(high)})"


def _value_text(quantity: Quantity | None, unit: Callable[[float | None], str]) -> str:
    return NULL if quantity is None else unit(quantity.value)


def _scaling_columns(scaling: Sequence[Forecast]) -> list[Column]:
    def column(heading: str, of: Callable[[Forecast], str], *, text: bool = False) -> Column:
        return Column(heading, [of(row) for row in scaling], text=text)

    def phase(name: str) -> Callable[[Forecast], str]:
        return lambda row: ms(getattr(row.phases_seconds, name)) if row.phases_seconds else NULL

    measured = any(row.measured_wall_seconds is not None for row in scaling)
    return [
        column("Workers", lambda row: str(row.workers)),
        column("Hosts", lambda row: str(row.hosts)),
        column("Wall-clock\n(ms)", lambda row: _with_interval(row.wall_seconds, ms)),
        *([column("Measured\n(ms)", lambda row: ms(row.measured_wall_seconds))] if measured else []),
        column("Partition\n(ms)", phase("partition")),
        column("Exchange\n(ms)", phase("exchange")),
        column("Join\n(ms)", phase("join")),
        column("Throughput\n(GiB/s)", lambda row: _value_text(row.throughput_bytes_per_second, gib)),
        column("Bandwidth\n(GiB/s)", lambda row: _value_text(row.bandwidth_bytes_per_second, gib)),
        column("Limited by", lambda row: row.limit or NULL, text=True),
    ]


def _print_unknown(page: Page, scaling: Sequence[Forecast]) -> None:
    for sentence, alike in grouped(scaling, lambda row: row.unknown).items():
        if sentence:
            page.line(f"{NULL}  {', '.join(str(row.workers) for row in alike)} workers: {sentence}", "dim")


def _parameter_columns(parameters: Sequence[ModelParameter]) -> list[Column]:
    return [
        Column("Parameter", [each.name.replace("_", " ") for each in parameters], text=True),
        Column("Value", [_value_in_unit(each.value, each.unit) for each in parameters]),
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


def _value_in_unit(value: float | None, unit: str) -> str:
    return "unlimited" if value is None else number(value * _UNITS[unit][1])


def _interval_text(parameter: ModelParameter) -> str:
    """A parameter's interval in the unit that is shown, as ``1.2 to 1.4``."""
    if parameter.interval is None:
        return NULL
    low, high = parameter.interval
    return f"{_value_in_unit(low, parameter.unit)} to {_value_in_unit(high, parameter.unit)}"


def _checked_columns(checked: Sequence[Checked]) -> list[Column]:
    return [
        Column("Result", [each.result for each in checked], text=True),
        Column("Workers", [str(each.workers) for each in checked]),
        Column("Hosts", [str(each.hosts) for each in checked]),
        Column("Rows per chunk", [rows(each.rows_per_chunk) for each in checked]),
        Column("Measured\n(ms)", [ms(each.measured_wall_seconds) for each in checked]),
        Column("Model\n(ms)", [ms(each.model_wall_seconds) for each in checked]),
        Column("Error\n(%)", [NULL if each.error is None else f"{100 * each.error:+.1f}" for each in checked]),
    ]
