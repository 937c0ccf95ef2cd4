"""The settings and the machine of a run, the differences of two runs, and whether the two can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from merge_bench.records.campaign import Campaign, Run
from merge_bench.records.plan import Plan, Table
from merge_bench.records.schema import Worker

Facts = Mapping[str, Mapping[str, str]]
"""What is known of a run: kind → name → value as text. A kind of which nothing was recorded is not there."""

CONFIG, UCX_SETTING, UCX = "config", "UCX setting", "UCX"
PROBLEM, OPTION, MACHINE, PACKAGE, PROGRAM = "problem", "option", "machine", "package", "program"
ENVIRONMENT = "environment"

_PROBLEM = ("rows_per_chunk", "workers")
_NO_PROBLEM = frozenset(("seed", "rows", "warnings"))  # rows: those of a chunk, on all workers
_NO_OPTIONS = frozenset((*_PROBLEM, "workload", "hosts", "launches", "timeout"))
_BEFORE = {"pipeline": False}  # the value of options that older plans do not have
_CHANGING = frozenset(("available_bytes", "interfaces"))
OF_A_PROCESS = ("MERGE_BENCH_PARENT", "UCX_DYNAMIC_TL_PROGRESS_FACTOR")  # its parent; what UCX measures at its start

MUST_AGREE = ((PROBLEM, None), (MACHINE, "hosts"), (MACHINE, "cpu_model"), (MACHINE, "gpus"), (UCX, "version"))
"""Kinds, and names in them (None: all), that runs to be compared must have alike..."""

MUST_AGREE_APART = ((OPTION, "engine"), (OPTION, "exchange"))
"""...and these too, if nobody put the two into one campaign."""


@dataclass(frozen=True)
class Difference:
    """One thing in which two runs differ; ``None``: that run does not have it."""

    kind: str
    name: str
    baseline: str | None
    candidate: str | None


def facts_of(campaign: Campaign, run: Run) -> Facts:
    """Everything about `run` that may explain a difference; values that vary within it stand with `` / `` between."""
    lines = [launch.line for launch in run.launches if launch.line is not None]
    workers = [worker for line in lines for worker in line.workers]
    found: dict[str, dict[str, str]] = {
        CONFIG: dict(run.config.variables),
        UCX_SETTING: gathered(worker.ucx.config for worker in workers),
        UCX: gathered({"version": worker.ucx.version, "origin": worker.ucx.origin} for worker in workers),
        PROBLEM: problem(run.plan),
        OPTION: {name: _shown(value) for name, value in {**_BEFORE, **run.options}.items() if name not in _NO_OPTIONS},
        MACHINE: _machine(workers),
        PACKAGE: gathered(worker.versions for worker in workers),
        ENVIRONMENT: gathered(worker.environment for worker in workers),
        PROGRAM: _program(campaign),
    }
    for name in OF_A_PROCESS:
        found[ENVIRONMENT].pop(name, None)
        found[UCX_SETTING].pop(name, None)
    return {kind: values for kind, values in found.items() if values or kind in (CONFIG, OPTION)}


def problem(plan: Plan) -> dict[str, str]:
    """What is to be merged, by how many workers; the seed of made-up tables makes no other problem."""
    found: dict[str, object] = {"rows_per_chunk": plan.rows_per_chunk, "workers": plan.workers}
    if plan.workload is not None:
        of_workload = msgspec.structs.asdict(plan.workload).items()
        found |= {f"workload {name}": value for name, value in of_workload if name not in _NO_PROBLEM}
    return {
        name: _table(value) if isinstance(value, Table) else _shown(value)
        for name, value in found.items()
        if value is not None
    }


def differences(baseline: Facts, candidate: Facts) -> tuple[Difference, ...]:
    """In what two runs differ, of the kinds that are known of both; what says the same again is said once."""
    found: dict[tuple[str, str | None, str | None], Difference] = {}
    for kind in baseline:
        if kind not in candidate:
            continue
        old, new = baseline[kind], candidate[kind]
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                each = Difference(kind, name, old.get(name), new.get(name))
                found.setdefault((name, each.baseline, each.candidate), each)
    return tuple(found.values())


def unknown(facts: Facts) -> tuple[str, ...]:
    """What the records do not tell of a run, as those of another program's output do not."""
    names = {MACHINE: "machine", UCX: "UCX", UCX_SETTING: "UCX settings", PACKAGE: "packages"}
    return tuple(name for kind, name in names.items() if kind not in facts)


def incomparable(baseline: Facts, candidate: Facts, *, one_campaign: bool) -> tuple[Difference, ...]:
    """The known differences that make a ratio of the two meaningless."""
    rules = MUST_AGREE if one_campaign else (*MUST_AGREE, *MUST_AGREE_APART)
    return tuple(
        each
        for each in differences(baseline, candidate)
        if each.baseline is not None
        and each.candidate is not None
        and any(each.kind == kind and name in (None, each.name) for kind, name in rules)
    )


def same_problem(one: Run, other: Run) -> bool:
    """Whether nothing that is known of both problems differs."""
    old, new = problem(one.plan), problem(other.plan)
    return all(old[name] == new[name] for name in old.keys() & new.keys())


def gathered(mappings: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Name → value; values that differ between workers or launches one after the other."""
    values: dict[str, dict[str, None]] = {}
    for mapping in mappings:
        for name, value in mapping.items():
            if value is not None:
                values.setdefault(name, {})[_shown(value)] = None
    return {name: " / ".join(sorted(each)) for name, each in values.items()}


def _machine(workers: Iterable[Worker]) -> dict[str, str]:
    known = list(workers)
    plain = (msgspec.to_builtins(worker.hardware) for worker in known)
    found = gathered({name: value for name, value in each.items() if name not in _CHANGING} for each in plain)
    hosts = ", ".join(sorted({worker.host for worker in known}))
    return found | ({"hosts": hosts} if hosts else {})


def _program(campaign: Campaign) -> dict[str, str]:
    if campaign.head.imported_from is not None:  # the commit is that of the import
        return {}
    git = campaign.head.git
    commit = ((git and git.commit) or "")[:12]
    changed = ", with local changes" if git and git.dirty else ""
    return {"merge_bench": campaign.head.version} | ({"commit": commit + changed} if commit else {})


def _table(table: Table) -> str:
    """A table of files: how its row groups are dealt out follows from the workers."""
    columns = ", ".join(column.name for column in table.columns)
    return f"{table.path}, {_shown(table.rows)} rows of {columns}"


def _shown(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_shown, value)) or "none"
    return str(value)
