"""The options of a plan that readers of the records use: of a merge, a network measurement or tuning.

The records keep each plan as its command wrote it (`Run.options`). An option that a plan does not have is None here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec

from merge_bench.errors import Caution


class TableColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a table: `source` is its name in the files, `name` the one in the result, `type` Arrow's."""

    source: str | None = None
    name: str
    type: str | None = None
    nullable: bool | None = None


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """The left or the right table of Parquet files.

    `chunks`: of each worker the (file, row group) pairs, `chunk_rows` their rows together.
    """

    path: str | None = None
    rows: int | None = None
    files: list[str] = []
    columns: list[TableColumn] = []
    chunks: list[list[tuple[str, int]]] = []
    chunk_rows: list[int] = []


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What is merged. `name`: ``synthetic``, with `rows` to `zipf`, or ``tables``, with `keys` to `warnings`."""

    name: str | None = None
    rows: int | None = None
    fraction: float | None = None
    seed: int | None = None
    payload_columns: int | None = None
    zipf: float | None = None
    keys: list[str] | None = None
    left: Table | None = None
    right: Table | None = None
    warnings: list[Caution] | None = None


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `tune`. `space`: its digest; `budget`: launches and seconds, None without a limit."""

    strategy: str | None = None
    space: str | None = None
    values: list[str] = []
    metric: str | None = None
    threshold: float | None = None
    blocks: int | None = None
    confirm: int | None = None
    budget: list[float | None] = []


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The options that readers use; `probe`: the network measurement, None for merges."""

    rows_per_chunk: int | None = None
    workers: int | None = None
    iterations: int | None = None
    warmup: int | None = None
    launches: int | None = None
    engine: str | None = None
    exchange: str | None = None
    protocol: str | None = None
    verify: str | None = None
    timeout: float | None = None
    seed: int | None = None
    error_handling: bool | None = None
    message_bytes: int | None = None
    pipeline: bool | None = None
    link_rounds: int | None = None
    check_link: bool | None = None
    shuffle: str | None = None
    threads: int | None = None
    require_transport: list[str] | None = None
    workload: Workload | None = None
    tune: Tuning | None = None
    probe: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Plan:
        """Read a plan of a campaign line; an option with a value of another type counts as missing."""
        try:
            return msgspec.convert(options, cls)
        except msgspec.ValidationError:
            each = (cls._of_one(name, options[name]) for name in cls.__struct_fields__ if name in options)
            return cls(**{name: value for found in each for name, value in found.items()})

    @classmethod
    def _of_one(cls, name: str, value: object) -> dict[str, Any]:
        try:
            return {name: getattr(msgspec.convert({name: value}, cls), name)}
        except msgspec.ValidationError:
            return {}


PlanOptions: TypeAlias = Annotated[dict[str, Any], msgspec.Meta(extra_json_schema={"$ref": "#/$defs/Plan"})]
"""A plan in records and documents: everything that its command wrote. Readers use the fields of `Plan`."""
