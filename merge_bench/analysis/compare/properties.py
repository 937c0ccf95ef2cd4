"""The settings and the machine of a run, the differences of two runs, and whether the two can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from merge_bench.config.options import RunOptions
from merge_bench.records.campaign import JOB, Campaign, Run
from merge_bench.records.recorded_plan import Table
from merge_bench.records.schema import Worker

_V = TypeVar("_V")
Properties = Mapping[str, Mapping[str, str]]
"""The properties of a run: kind → name → value as text. A kind of which nothing was recorded is missing."""

CONFIG, UCX_SETTING, UCX = "config", "UCX setting", "UCX"
PROBLEM, OPTION, MACHINE, PACKAGE, PROGRAM = "problem", "option", "machine", "package", "program"
ENVIRONMENT = "environment"

_PATH, _CONTENT = " path", " content"  # of a table; content: the fingerprint

SIZE = ("rows_per_chunk", "workers")
"""The options that every problem has."""

_NO_PROBLEM = frozenset(("seed", "rows", "warnings"))  # rows: those of a chunk, on all workers
_NO_OPTIONS = {*SIZE, "how", "workload", "hosts", "launches", "timeout", "distribution_reason", "write_result"}
_BEFORE = {
    **RunOptions().for_workers(),
    "distribution": "shuffle",
    "pipeline": False,
    "stores": "plain",
    "runtime_filter": False,
    "timeline": "auto",
}
"""The value of options that older plans do not have."""
_CHANGING = frozenset(("available_bytes", "interfaces"))
OF_A_PROCESS = ("MERGE_BENCH_PARENT", JOB, "UCX_DYNAMIC_TL_PROGRESS_FACTOR")
"""Variables of a single process, no settings: its parent, the service's job, and what UCX measures at its start."""

MUST_AGREE = (
    (PROBLEM, None),
    *((MACHINE, name) for name in ("hosts", "cpu_model", "cpu_id", "gpus")),
    (UCX, "version"),
)
"""Kinds, and names in them (None: all), that must be the same in runs that are compared..."""

MUST_AGREE_APART = ((OPTION, "engine"), (OPTION, "exchange"))
"""...and these too, if the two are of different campaigns."""


@dataclass(frozen=True)
class Difference:
    """One thing in which two runs differ; ``None``: that run does not have it."""

    kind: str
    name: str
    baseline_value: str | None
    candidate_value: str | None


def properties_of(campaign: Campaign, run: Run) -> Properties:
    """Everything about `run` that may explain a difference; values that vary within it are joined by `` / ``."""
    lines = [launch.line for launch in run.launches if launch.line is not None]
    workers = [worker for line in lines for worker in line.workers]
    properties: dict[str, dict[str, str]] = {
        CONFIG: dict(run.config.variables),
        UCX_SETTING: joined_values(worker.ucx.config for worker in workers),
        UCX: joined_values({"version": worker.ucx.version, "origin": worker.ucx.origin} for worker in workers),
        PROBLEM: problem(run),
        OPTION: {name: as_text(value) for name, value in {**_BEFORE, **run.options}.items() if name not in _NO_OPTIONS},
        MACHINE: _machine_properties(workers),
        PACKAGE: joined_values(worker.versions for worker in workers),
        ENVIRONMENT: joined_values(worker.environment for worker in workers),
        PROGRAM: _program_properties(campaign),
    }
    for name in OF_A_PROCESS:
        properties[ENVIRONMENT].pop(name, None)
        properties[UCX_SETTING].pop(name, None)
    return {kind: values for kind, values in properties.items() if values or kind in (CONFIG, OPTION)}


def problem(run: Run) -> dict[str, str]:
    """The values that say what is merged, by how many workers; the seed of synthetic tables does not matter.

    A value of an unexpected type is equal only to the same value.
    """
    return {name: as_text(value) for name, value in problem_values(run).items()}


def problem_values(run: Run) -> dict[str, object]:
    """The values of `problem`, with numbers as numbers."""
    plan = run.plan
    values: dict[str, object] = {name: getattr(plan, name) for name in SIZE}
    if plan.workload is not None:
        of_workload = msgspec.structs.asdict(plan.workload).items()
        values |= {f"workload {name}": value for name, value in of_workload if name not in _NO_PROBLEM}
    if plan.how not in (None, "inner"):
        values |= {"how": plan.how}
    for name, text in run.unreadable_options.items():
        if _belongs_to_problem(name):
            values["workload name" if name == "workload" else name] = f"unreadable: {text}"
    for name in [name for name, value in values.items() if isinstance(value, Table)]:
        values |= _table_values(name, values[name])
    return {name: value for name, value in values.items() if value is not None}


def _belongs_to_problem(name: str) -> bool:
    """Whether an option, such as ``workload left rows``, decides what is merged."""
    match name.split():
        case ["workload", field]:
            return field not in _NO_PROBLEM
        case ["workload", _, field]:
            return field in ("path", "rows", "columns", "fingerprint")  # as in `_table_values`
    return name in (*SIZE, "how", "workload")


def differences(baseline: Properties, candidate: Properties) -> tuple[Difference, ...]:
    """The differences of two runs, in kinds known of both; the same name and values in two kinds count once."""
    different: dict[tuple[str, str | None, str | None], Difference] = {}
    for kind in (kind for kind in baseline if kind in candidate):
        before, after = baseline[kind], candidate[kind]
        if kind == PROBLEM:
            before, after = distinguishing_values(before, after), distinguishing_values(after, before)
        for name in sorted({*before, *after}):
            old, new = before.get(name), after.get(name)
            if old != new:
                different.setdefault((name, old, new), Difference(kind, name, old, new))
    return tuple(different.values())


def same_problem(run: Run, other: Run) -> bool:
    """Whether two runs merge the same problem, as far as the records of both say."""
    old, new = problem(run), problem(other)
    old, new = distinguishing_values(old, new), distinguishing_values(new, old)
    return all(old[name] == new[name] for name in old.keys() & new.keys())


def joined_values(mappings: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """By name, the values of all mappings as text; where they differ, they are joined by `` / ``."""
    values: dict[str, dict[str, None]] = {}
    for mapping in mappings:
        for name, value in mapping.items():
            if value is not None:
                values.setdefault(name, {})[as_text(value)] = None
    return {name: " / ".join(sorted(each)) for name, each in values.items()}


def _machine_properties(workers: Sequence[Worker]) -> dict[str, str]:
    plain = (msgspec.to_builtins(worker.hardware) for worker in workers)
    properties = joined_values({name: value for name, value in each.items() if name not in _CHANGING} for each in plain)
    properties |= joined_values({"stores in use": worker.stores.way} for worker in workers if worker.stores is not None)
    hosts = ", ".join(sorted({worker.host for worker in workers}))
    return properties | ({"hosts": hosts} if hosts else {})


def _program_properties(campaign: Campaign) -> dict[str, str]:
    if campaign.head.imported_from is not None:  # the commit is that of the import
        return {}
    git = campaign.head.git
    commit = ((git and git.commit) or "")[:12]
    changed = ", with local changes" if git and git.dirty else ""
    return {"merge_bench": campaign.head.version} | ({"commit": commit + changed} if commit else {})


def _table_values(name: str, table: Any) -> dict[str, object]:
    """What identifies a table of files: rows and columns, path, fingerprint; not which worker reads what."""
    columns = ", ".join(column.name for column in table.columns)
    return {
        name: f"{as_text(table.rows)} rows of {columns}",
        name + _PATH: as_text(table.path),
        name + _CONTENT: table.fingerprint,
    }


def distinguishing_values(values: Mapping[str, _V], other: Mapping[str, object]) -> dict[str, _V]:
    """Those `values` of a problem that tell it from the `other` problem.

    Tables are told by what they contain, and by their paths only if one of the two results did not record that.
    """
    both = {name.removesuffix(_CONTENT) for name in values.keys() & other.keys() if name.endswith(_CONTENT)}
    return {
        name: value
        for name, value in values.items()
        if not name.endswith((_PATH, _CONTENT)) or name.endswith(_CONTENT) == (name.rpartition(" ")[0] in both)
    }


def as_text(value: object) -> str:
    """A value of a plan or of a machine as text."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(as_text, value)) or "none"
    return str(value)
