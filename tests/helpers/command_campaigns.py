"""Writes campaigns of a command as a driver would, with numbers of one's choice.

The base case: ``./bench -n 2``, whose bandwidth is the main metric, beside its wall-clock. A launch that goes well has
its values and a check; one that fails has a failure, and its values only if the command ended by itself.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from merge_bench.host.description import Hardware, Ucx
from merge_bench.records import schema as s
from merge_bench.records.writer import CampaignWriter

WALL = {"name": "wall", "unit": "s", "better": "less"}
BUSBW = {"name": "busbw", "unit": "GB/s", "better": "more", "source": r"re:busbw: ([\d.]+)", "pick": "last"}
HOW = "exit status 0; re:PASSED"
HARDWARE = Hardware(kernel="6.8", cpu_model="Xeon")


@dataclass(frozen=True)
class CommandLaunch:
    """One run of the command; `values`: of its metrics besides the wall-clock; `failure`: a code if it failed."""

    config: str
    block: int
    wall: float
    values: Mapping[str, float] = field(default_factory=dict)
    failure: str | None = None


def command_plan(
    launches: int = 6, metrics: Sequence[Mapping[str, Any]] = (BUSBW, WALL), **changes: Any
) -> dict[str, Any]:
    """The plan of a campaign's first line; `changes`: fields of the command."""
    command = {
        "argv": ["./bench", "-n", "2"],
        "metrics": list(metrics),
        "checks": ["re:PASSED"],
        "expect_status": 0,
        "timeout": None,
        "shell": False,
    }
    return {"command": command | changes, "launches": launches}


def interleaved_runs(
    walls: Mapping[str, Sequence[float]],
    values: Mapping[str, Mapping[str, Sequence[float]]] | None = None,
    *,
    failures: Mapping[tuple[str, int], str] | None = None,
    order: random.Random | None = None,
) -> list[CommandLaunch]:
    """A launch of every config in every block; of each config the walls, and by metric the other values, by block.

    `failures`: the codes of launches that fail, by config and block; `order`: shuffles each block.
    """
    runs = []
    for block in range(len(next(iter(walls.values())))):
        names = list(walls)
        if order is not None:
            order.shuffle(names)
        for name in names:
            own = {metric: by_config[name][block] for metric, by_config in (values or {}).items()}
            runs.append(CommandLaunch(name, block, walls[name][block], own, (failures or {}).get((name, block))))
    return runs


def write_commands(
    results: Path,
    runs: Sequence[CommandLaunch],
    *,
    configs: Sequence[str] = (),
    plan: Mapping[str, Any] | None = None,
    variables: Mapping[str, dict[str, str]] | None = None,
    ucx: str = "1.21.0",
    end: int | None = 0,
) -> Path:
    """A campaign of these launches, its folder; `variables`: of configs, by default each its name as ``UCX_TLS``.

    `configs`: their names, the baseline first; by default in the order of their first launches.
    """
    names = list(configs or dict.fromkeys(run.config for run in runs))
    count = 1 + max(run.block for run in runs)
    own = {name: {"UCX_TLS": name} for name in names} | dict(variables or {})
    with CampaignWriter.create(results, names[0]) as writer:
        writer.write(
            s.CampaignLine(
                campaign_id=writer.campaign_id,
                argv=["exec"],
                version="0.1",
                configs=[s.Config(name=name, path=f"configs/{name}.cfg", variables=own[name]) for name in names],
                seed=7,
                plans=[dict(plan or command_plan(count))],
                runs=[s.RunKey(config=name, plan=0) for name in names],
            )
        )
        for index, run in enumerate(runs):
            write_run(writer, index, run, own[run.config], ucx)
        if end is not None:
            writer.write(s.CampaignEndLine(status=end))
    return writer.folder


def write_run(writer: CampaignWriter, index: int, run: CommandLaunch, variables: dict[str, str], ucx: str) -> None:
    """All lines of one launch."""
    host = s.Worker(
        rank=0,
        host="node0",
        pid=1000 + index,
        name="command",
        environment=variables,
        ucx=Ucx(version=ucx, origin="wheel"),
        hardware=HARDWARE,
    )
    writer.write(
        s.LaunchLine(
            launch=index,
            config=run.config,
            plan=0,
            block=run.block,
            cluster=s.Cluster(launcher="command", protocol=None),
            workers=[host],
            data_bytes=0,
            rows=0,
            startup_seconds=0.0,
        )
    )
    if run.failure not in ("command-timeout", "interrupted"):
        writer.write(s.IterationLine(launch=index, index=0, wall_seconds=run.wall, values=dict(run.values)))
    if run.failure is None:
        writer.write(s.VerificationLine(launch=index, after=0, ok=True, how=HOW))
    else:
        failed = s.FailureLine(launch=index, code=run.failure, message="the command ended with status 1", host="node0")
        writer.write(failed)
    writer.write(s.LaunchEndLine(launch=index, status=0 if run.failure is None else 3, seconds=run.wall + 0.1))
