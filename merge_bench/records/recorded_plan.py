"""The plans in a campaign's records, as far as readers use them.

The records keep each plan as its command wrote it. An option that a plan does not have is None here.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from merge_bench.errors import WarningMessage
from merge_bench.records import schema as s


class TableColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a table: `source` is its name in the files, `name` the one in the result, `type` Arrow's."""

    source: str | None = None
    name: str
    type: str | None = None
    nullable: bool | None = None


class UnusedFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Files in a table's folder that are no part of the table: why (``hidden``, ``no data``), how many, first names."""

    reason: str
    count: int
    names: list[str] = []


class RecordedTable(msgspec.Struct, frozen=True, kw_only=True):
    """The left or the right table of Parquet files, as a recorded plan describes it.

    `chunks`: the (file, row group) pairs of each worker; `chunk_rows`: the sum of their rows. `fingerprint`: of the
    files' footers, sizes and partitions, equal for equal tables, wherever they lie.
    """

    path: str | None = None
    rows: s.Count | None = None
    files: list[str] = []
    columns: list[TableColumn] = []
    chunks: list[list[tuple[str, int]]] = []
    chunk_rows: list[s.Count] = []
    left_out: list[UnusedFiles] = []
    fingerprint: str | None = None


class RecordedWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """The tables that are merged, as a recorded plan describes them.

    `name`: ``synthetic``, with `rows` to `zipf`, or ``tables``, with `keys` to `warnings`. `benchmark`: of which the
    tables are generated, such as ``h2o``, with its `question`.
    """

    name: str | None = None
    benchmark: str | None = None
    question: str | None = None
    rows: s.Count | None = None
    fraction: float | None = None
    seed: int | None = None
    payload_columns: s.Count | None = None
    zipf: float | None = None
    keys: list[str] | None = None
    left: RecordedTable | None = None
    right: RecordedTable | None = None
    warnings: list[WarningMessage] | None = None


class RecordedTuning(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `tune` in a recorded plan.

    `space`: the digest of the tuning space; `budget`: launches and seconds, None without a limit.
    """

    strategy: str | None = None
    space: str | None = None
    values: list[str] = []
    metric: str | None = None
    threshold: float | None = None
    blocks: s.Count | None = None
    confirm: s.Count | None = None
    budget: list[float | None] = []


WALL = "wall"
"""The metric that every launch of a command has: its wall-clock in seconds."""


class CommandMetric(msgspec.Struct, frozen=True, kw_only=True):
    """A number that is measured of a command in each launch; ``wall`` is its wall-clock.

    `better`: ``more`` or ``less``. `source`: where it is found, as it was typed: ``re:Bandwidth: (\\S+)``; None for
    the wall-clock. `pick`: which of several matches counts: ``last``, ``median``, ``min`` or ``max``.
    """

    name: str
    unit: str | None = None
    better: str = "less"
    source: str | None = None
    pick: str = "last"


class CommandPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The command that `exec` measures. Its first metric is the main one, which gates and short lists use.

    `argv`: its words as they were typed, with their placeholders. `metric_file`: the file that metrics are read from;
    None: what it prints. `checks`: what decides that a launch is right, besides `expect_status`. `timeout`: seconds,
    None without a limit. `shell`: whether a shell reads the command. `lanes`: whether it runs once more in the first
    launch of each config, so that UCX logs its lanes.
    """

    argv: list[str] = []
    metrics: list[CommandMetric] = []
    metric_file: str | None = None
    checks: list[str] = []
    expect_status: int = 0
    timeout: float | None = None
    shell: bool = False
    lanes: bool = False

    @property
    def shell_line(self) -> str:
        """The measured command as one line for a shell."""
        return self.argv[0] if self.shell and self.argv else shlex.join(self.argv)

    @property
    def main_metric(self) -> CommandMetric:
        """The command's first metric, which decides; its wall-clock if the record has none."""
        return self.metrics[0] if self.metrics else CommandMetric(name=WALL, unit="s")


class RecordedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a recorded plan that readers use; None for an option that the record does not have.

    `probe`: the network measurement, `command`: the command that is measured; both None for merges.
    """

    rows_per_chunk: s.Count | None = None
    workers: s.Count | None = None
    iterations: s.Count | None = None
    warmup: s.Count | None = None
    launches: s.Count | None = None
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
    message_bytes: s.Count | None = None
    pipeline: bool | None = None
    stores: str | None = None
    runtime_filter: bool | None = None
    link_rounds: s.Count | None = None
    check_link: bool | None = None
    shuffle: str | None = None
    threads: s.Count | None = None
    require_transport: list[str] | None = None
    timeline: str | None = None
    write_result: str | None = None
    workload: RecordedWorkload | None = None
    tune: RecordedTuning | None = None
    probe: str | None = None
    command: CommandPlan | None = None
    ucx: str | None = None

    @property
    def question(self) -> str:
        """The benchmark and its question, such as ``h2o q1``; empty without one."""
        work = self.workload
        return " ".join(filter(None, (work.benchmark, work.question))) if work is not None else ""

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> RecordedPlan:
        """Read a plan of a campaign line; an option whose value has an unexpected type counts as missing."""
        return _read_recorded_structure(cls, options)[0]


def is_tuning(plans: Sequence[RecordedPlan]) -> bool:
    """Whether a campaign with these plans is a tuning."""
    return any(plan.tune is not None for plan in plans)


def remove_table_names(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded plan without the names of its tables, so that plans of equal tables become equal.

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
_STRUCTURES: Mapping[str, type[msgspec.Struct]] = {
    "workload": RecordedWorkload,
    "left": RecordedTable,
    "right": RecordedTable,
    "tune": RecordedTuning,
    "command": CommandPlan,
}
_Structure = TypeVar("_Structure", bound=msgspec.Struct)


def find_unreadable_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the recorded options of an unexpected type: names such as ``workload left rows``, and values as JSON."""
    _, odd = _read_recorded_structure(RecordedPlan, options)
    return {name: msgspec.json.encode(value).decode() for name, value in odd.items()}


def _read_recorded_structure(
    structure_type: type[_Structure], options: Mapping[str, Any]
) -> tuple[_Structure, dict[str, Any]]:
    """Read options into a structure; returns it, and by name the options whose types are not those of its fields."""
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(options, structure_type), {}
    values: dict[str, Any] = {}
    odd: dict[str, Any] = {}
    for field in msgspec.structs.fields(structure_type):
        value = options.get(field.name)
        if field.name in _STRUCTURES and isinstance(value, Mapping):
            values[field.name], inner = _read_recorded_structure(_STRUCTURES[field.name], value)
            odd |= {f"{field.name} {name}": each for name, each in inner.items()}
        elif value is not None:
            try:
                values[field.name] = msgspec.convert(value, field.type)
            except msgspec.ValidationError:
                odd[field.name] = value
    return structure_type(**values), odd
