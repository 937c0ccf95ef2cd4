"""The options of a plan that readers of the records use: of a merge, a network measurement or tuning.

The records keep each plan as its command wrote it (`Run.options`). An option that a plan does not have is None here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from merge_bench.errors import Caution

Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]


class TableColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a table: `source` is its name in the files, `name` the one in the result, `type` Arrow's."""

    source: str | None = None
    name: str
    type: str | None = None
    nullable: bool | None = None


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """Files that are no part of a table: why (``hidden``, ``no data``), how many, and the first names."""

    reason: str
    count: int
    names: list[str] = []


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """The left or the right table of Parquet files.

    `chunks`: the (file, row group) pairs of each worker; `chunk_rows`: the sum of their rows. `fingerprint`: of the
    files' footers, sizes and partitions, equal for equal tables, wherever they lie.
    """

    path: str | None = None
    rows: Number | None = None
    files: list[str] = []
    columns: list[TableColumn] = []
    chunks: list[list[tuple[str, int]]] = []
    chunk_rows: list[Number] = []
    left_out: list[LeftOut] = []
    fingerprint: str | None = None


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What is merged. `name`: ``synthetic``, with `rows` to `zipf`, or ``tables``, with `keys` to `warnings`.

    `benchmark`: of which the tables are generated, such as ``h2o``, with its `question`.
    """

    name: str | None = None
    benchmark: str | None = None
    question: str | None = None
    rows: Number | None = None
    fraction: float | None = None
    seed: int | None = None
    payload_columns: Number | None = None
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
    blocks: Number | None = None
    confirm: Number | None = None
    budget: list[float | None] = []


class RecordedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The options that readers use; `probe`: the network measurement, None for merges."""

    rows_per_chunk: Number | None = None
    workers: Number | None = None
    iterations: Number | None = None
    warmup: Number | None = None
    launches: Number | None = None
    engine: str | None = None
    exchange: str | None = None
    how: str | None = None
    distribution: str | None = None
    broadcast_side: str | None = None
    distribution_reason: str | None = None
    protocol: str | None = None
    verify: str | None = None
    timeout: float | None = None
    seed: int | None = None
    error_handling: bool | None = None
    message_bytes: Number | None = None
    pipeline: bool | None = None
    stores: str | None = None
    runtime_filter: bool | None = None
    link_rounds: Number | None = None
    check_link: bool | None = None
    shuffle: str | None = None
    threads: Number | None = None
    require_transport: list[str] | None = None
    timeline: str | None = None
    write_result: str | None = None
    workload: Workload | None = None
    tune: Tuning | None = None
    probe: str | None = None

    @property
    def question(self) -> str:
        """``h2o q1``: the benchmark and its question; empty without one."""
        work = self.workload
        return " ".join(filter(None, (work.benchmark, work.question))) if work is not None else ""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> RecordedPlan:
        """Read a plan of a campaign line; an option whose value has another type counts as missing."""
        return _read_structure(cls, options)[0]


def is_tuning(plans: Sequence[RecordedPlan]) -> bool:
    """Whether these are the plans of a tuning."""
    return any(plan.tune is not None for plan in plans)


def without_table_names(plan: Mapping[str, Any]) -> dict[str, Any]:
    """A recorded plan without the names of its tables: plans of equal tables that have other names become equal.

    Tables of older records have no fingerprint, and keep their paths.
    """
    kept_plan, workload = dict(plan), plan.get("workload")
    if isinstance(workload, Mapping):
        kept_plan["workload"] = {name: value for name, value in workload.items() if name != "warnings"}
        for side in ("left", "right"):
            table = workload.get(side)
            if isinstance(table, Mapping) and table.get("fingerprint"):
                kept = {name: value for name, value in table.items() if name not in _NAMING_FIELDS}
                kept_plan["workload"][side] = kept
    return kept_plan


_NAMING_FIELDS = frozenset(("path", "files", "chunks", "left_out"))
_STRUCTURES: Mapping[str, type[msgspec.Struct]] = {"workload": Workload, "left": Table, "right": Table, "tune": Tuning}
_Structure = TypeVar("_Structure", bound=msgspec.Struct)


def unreadable_options(options: Mapping[str, Any]) -> dict[str, str]:
    """The options whose values `RecordedPlan.of` cannot read: names such as ``workload left rows``, values as JSON."""
    _, odd = _read_structure(RecordedPlan, options)
    return {name: msgspec.json.encode(value).decode() for name, value in odd.items()}


def _read_structure(kind: type[_Structure], options: Mapping[str, Any]) -> tuple[_Structure, dict[str, Any]]:
    """A structure of the options with the right types, and the other options by name."""
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(options, kind), {}
    values: dict[str, Any] = {}
    odd: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        value = options.get(field.name)
        if field.name in _STRUCTURES and isinstance(value, Mapping):
            values[field.name], inner = _read_structure(_STRUCTURES[field.name], value)
            odd |= {f"{field.name} {name}": each for name, each in inner.items()}
        elif value is not None:
            try:
                values[field.name] = msgspec.convert(value, field.type)
            except msgspec.ValidationError:
                odd[field.name] = value
    return kind(**values), odd


PlanOptions: TypeAlias = Annotated[dict[str, Any], msgspec.Meta(extra_json_schema={"$ref": "#/$defs/RecordedPlan"})]
"""A plan in records and documents, with all options that its command wrote."""
