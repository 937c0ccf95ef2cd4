"""The document of ``predict --json``; `docs/reference/records.md` describes every key."""

from __future__ import annotations

from typing import Literal

import msgspec

from merge_bench.analysis.documents import Failure

SCHEMA = 1


class Quantity(msgspec.Struct, frozen=True, kw_only=True):
    """A value and its 95 % interval by resampling."""

    value: float
    interval: tuple[float, float]


class ForecastPhases(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of the slowest worker in each phase; `hidden`: of them behind another one."""

    partition: float
    exchange: float
    join: float
    hidden: float


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """One size of cluster. If a parameter is not known, the numbers are null and `unknown` says why."""

    workers: int
    hosts: int
    workers_per_host: int
    wall_seconds: Quantity | None = None
    throughput_bytes_per_second: Quantity | None = None
    bandwidth_bytes_per_second: Quantity | None = None
    data_bytes: float | None = None
    crossing_bytes: float | None = None
    between_hosts_bytes: float | None = None
    message_bytes: float | None = None
    phases_seconds: ForecastPhases | None = None
    parts_seconds: dict[str, float] | None = None
    limit: str | None = None
    measured_wall_seconds: float | None = None
    unknown: str | None = None


class ModelParameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of the model; `value` null: nothing limits it. `source`: ``measured``, ``given`` or ``assumed``."""

    name: str
    what: str
    unit: str
    value: float | None
    interval: tuple[float, float] | None
    source: str
    origin: str


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A measured run and the model's value for it; `error`: relative error of the wall-clock."""

    result: str
    workers: int
    hosts: int
    rows_per_chunk: float
    measured_wall_seconds: float
    model_wall_seconds: float | None
    error: float | None
    measured_bandwidth_bytes_per_second: float | None
    model_bandwidth_bytes_per_second: float | None


class PredictDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The requested forecast, forecasts for 1, 2, 4, … workers up to it, their basis, and what is not known."""

    document_version: Literal[1] = 1
    schema: int = SCHEMA
    results: list[str]
    engine: str
    config: str
    rows_per_chunk: float
    row_bytes: float
    what_if: list[str]
    forecast: Forecast
    scaling: list[Forecast]
    parameters: list[ModelParameter]
    checked: list[Checked]
    notes: list[str]
    error: Failure | None = None
