"""Options and plans as a command line would make them, without a command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from merge_bench.campaign.machine_checks import MachineResources
from merge_bench.campaign.make_plan import PlannedRun, options_of_each_run, plan_run
from merge_bench.cluster.launchers import choose_launcher
from merge_bench.config.options import RunOptions, resolve_options
from merge_bench.config.reader import ConfigFile
from merge_bench.merge.plan import Plan
from merge_bench.merge.workload import SyntheticSpec


def given(**values: Any) -> RunOptions:
    """What a command line with these parsed values gives; a tuple is several values of an option."""
    return RunOptions().with_given_values(**values)


def settled(
    values: Mapping[str, Any], config: ConfigFile | None = None, environ: Mapping[str, str] | None = None
) -> RunOptions:
    """The same, completed by a config and an environment."""
    return resolve_options(given(**values), config, environ or {})


def prepared(
    environ: Mapping[str, str] | None = None, machine: MachineResources | None = None, **values: Any
) -> list[PlannedRun]:
    """The plan of each run that these options make on a machine, by default this one."""
    machine = machine or MachineResources()
    options = settled(values, None, environ)
    runs = options_of_each_run(options, machine.environ)
    chosen = choose_launcher(options, machine.environ)
    return [plan_run(run, None, machine, chosen) for run in runs]


def plan_of(machine: MachineResources | None = None, **values: Any) -> Plan:
    """The plan of the only run."""
    (only,) = prepared(machine=machine, **values)
    return only.plan


def plan_of_two() -> Plan:
    """A small merge of two workers, for what only passes a plan on."""
    return Plan(
        SyntheticSpec(1000, 0.3, 0),
        2,
        iterations=1,
        warmup=0,
        launches=1,
        engine="native",
        exchange="ucx",
        protocol="tcp",
        verify="ends",
        timeout=15.0,
        seed=0,
    )
