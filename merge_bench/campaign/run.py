"""A whole `run`: campaign folder, launches, failures, signals, report, exit status."""

from __future__ import annotations

import importlib.util
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from merge_bench.analysis.compare.judging import least_blocks
from merge_bench.campaign import make_plan, registry_options
from merge_bench.campaign.calling_program import UNTOUCHED, Caller
from merge_bench.campaign.campaign import config_line, make_campaign
from merge_bench.campaign.expected_time import ExpectedTime, merge_seconds
from merge_bench.campaign.launch import make_launch
from merge_bench.campaign.make_plan import Prepared
from merge_bench.campaign.planned_launches import Job, Sweep
from merge_bench.campaign.progress import Labelled, Progress
from merge_bench.campaign.questions import runs_of
from merge_bench.cluster.dask_commands import LOOPBACK, open_port
from merge_bench.cluster.launchers import choose, choose_kind, launchers, leftovers, make_launcher
from merge_bench.config.check import BRINGS_CODE, CheckResult, check_config
from merge_bench.config.conflicts import NO_DEVICE, Conflict
from merge_bench.config.installation import __version__, how_to_set_up
from merge_bench.config.old_names import translate_config
from merge_bench.config.options import BY_KEY, RunOptions
from merge_bench.config.reader import ConfigFile, read_config
from merge_bench.config.resolve import SWEPT, resolve
from merge_bench.config.shipped import find_config
from merge_bench.config.ucx_choice import use_ucx
from merge_bench.errors import Caution, GateNotMet, UsageError, warn
from merge_bench.host import network
from merge_bench.merge.plan import Plan
from merge_bench.merge.workload import BENCHMARKS
from merge_bench.merge.workload.tables import TableSpec
from merge_bench.records.campaign import Campaign
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.records.schema import CampaignLine
from merge_bench.records.writer import CampaignWriter
from merge_bench.units import format_count

WORTH_A_WARNING = ("deprecated", "module-absent", "no-effect", BRINGS_CODE)


Fixed: TypeAlias = Callable[[RunOptions], RunOptions]
"""Gives the options of a command that does not merge."""


def load(name: str | None, given: RunOptions, fixed: Fixed | None = None) -> tuple[Prepared, ConfigFile | None]:
    """Read the config `name`, settle the options and make the plan; raises `UsageError` for whatever is wrong.

    `given`: what the command line gave.
    """
    found, config = load_sweep(name, given, fixed)
    if len(found) > 1:
        several = ", ".join(f"--{key}" for key in SWEPT)
        raise UsageError(f"only `run` accepts several values of {several}; use one value of each")
    return found[0], config


def load_sweep(
    name: str | None, given: RunOptions, fixed: Fixed | None = None
) -> tuple[list[Prepared], ConfigFile | None]:
    """Like `load`, with a plan for every combination of the values that an option names."""
    config = None if name is None else read_config(find_config(name), os.environ)
    options = resolve(given, config, os.environ, registry_options.options())
    if fixed is not None:
        options = fixed(options)
    runs = _checked_runs(options)
    warnings = _choose_ucx(options)
    warnings += _check(config, options)
    found = [make_plan.prepare(each, config) for each in runs]
    _refuse_twins(runs, found)
    if fixed is None:
        for each in found:
            need_installed(each)
    return [replace(each, warnings=(*each.warnings, *warnings)) for each in found], config


def _refuse_twins(runs: Sequence[RunOptions], found: Sequence[Prepared]) -> None:
    """Refuse a sweep in which two values of an option mean the same, as `auto` and the engine that it chooses."""
    for (one, first), (other, second) in itertools.combinations(zip(runs, found, strict=True), 2):
        if first.plan == second.plan:
            key = next(key for key in SWEPT if getattr(one, key) != getattr(other, key))
            names = f"{getattr(one, key)} and {getattr(other, key)}"
            raise UsageError(f"--{key} {names} mean the same here ({getattr(first.plan, key)}); name only one of them")


def need_installed(prepared: Prepared) -> None:
    """Refuse to start workers here whose data plane, or the second measurement of their links, is not installed.

    Raises
    ------
    UsageError
        With what to type.
    """
    here = launchers()[prepared.settings.launcher].starts_here
    if here and prepared.plan.exchange == "ucx" and importlib.util.find_spec("ucxx") is None:
        raise UsageError(f"UCXX is not installed in this environment; run: {how_to_set_up()}")
    if here and prepared.plan.check_link:
        from merge_bench.cluster import ucx_perftest

        ucx_perftest.find()


def check_for_run(config: ConfigFile, ucx: str, *, trusted: bool = False, other_hosts: bool = False) -> CheckResult:
    """Check `config` as `run` does before it starts anything; options that it leaves out are those of the environment.

    Of tables only the footers are read, TPC-H's are not generated, and no running cluster is asked.

    `ucx`: the UCX that the workers will load, ``wheel`` or ``system``; `trusted`: the config may bring code;
    `other_hosts`: the config is for other hosts, so what only this machine lacks is a warning instead of an error.

    Raises
    ------
    UsageError
        If the value of an old name in the config cannot be translated.
    """
    interface = _named("interface", config) or LOOPBACK
    variables = {**os.environ, **config.environment}
    choices = RunOptions(
        exchange=_named("exchange", config),
        protocol=_named("protocol", config),
        error_handling=_named("error_handling", config),
    )
    own = make_plan.launcher_ucx(choices, variables, hosts=2 if other_hosts else 1)
    launcher = {"UCX_NET_DEVICES": network.net_devices(interface), **own}
    table = registry_options.options()
    result = check_config(config, os.environ, ucx=ucx, launcher=launcher, table=table, trusted=trusted)
    if not other_hosts and (port := open_port({**own, **variables}, interface)):
        opened = Conflict(port.code, ("UCX_TLS",), f"{port.message}; {port.remedy}.", "uct/tcp of UCX")
        result = replace(result, conflicts=(opened, *result.conflicts))
    if not result.options_are_valid:
        return result
    try:
        given = RunOptions().given(trust_config=True)  # code is among the errors already
        runs = _checked_runs(replace(resolve(given, config, os.environ, table), trust_config=trusted))
    except UsageError as error:
        return replace(result, ok=False, refusals=(str(error),))
    if left := leftovers(runs[0], os.environ):
        result = replace(result, warnings=(*result.warnings, f"{left.message}; {left.remedy}"))
    refusal = _refusal_here(runs, config)
    if not refusal:
        return result
    here = f"this machine cannot run this config: {refusal}"
    return (
        replace(result, warnings=(*result.warnings, here))
        if other_hosts
        else replace(result, ok=False, refusals=(f"{here} (for other hosts: --other-hosts)",))
    )


def _named(key: str, config: ConfigFile) -> str:
    """The text of an option in the config or else in the environment; its default if neither has it."""
    option = BY_KEY[key]
    named = translate_config(config).options.get(option.variable)
    text = named.value if named else os.environ.get(option.variable, "")
    return text.strip() or str(option.default or "")


def _checked_runs(options: RunOptions) -> list[RunOptions]:
    """The options of each run; raises `UsageError` if they can never work together."""
    runs = runs_of(options)
    for each in runs:
        make_plan.check_options(each)
    return runs


def _refusal_here(runs: Sequence[RunOptions], config: ConfigFile) -> str:
    """Why `run` would not start here; empty if nothing is in its way."""
    try:
        for each in runs:
            if choose_kind(each, os.environ).owns_processes:
                each = replace(each, workload="synthetic") if each.workload in BENCHMARKS else each
                need_installed(make_plan.prepare(each, config, count_rows=False))
    except (UsageError, GateNotMet) as error:
        return str(error)
    return ""


def _choose_ucx(options: RunOptions) -> list[Caution]:
    """Settle whose UCX this command loads; a running cluster has loaded its own."""
    if not choose_kind(options, os.environ).owns_processes:
        if options.ucx is not None:
            raise UsageError(
                "--ucx cannot be used with a running cluster, which has already loaded its UCX; omit --ucx"
            )
        return []
    choice = use_ucx(options.ucx)
    return [] if choice.warning is None else [choice.warning]


def _check(config: ConfigFile | None, options: RunOptions) -> list[Caution]:
    """What the installed UCX makes of config and environment: errors stop the run, all else is a warning in the report.

    Without a config, workers of a running cluster have nothing of this environment.
    """
    outside = choose_kind(options, os.environ).owns_processes and any(
        name.startswith(("UCX_", "UCXPY_")) for name in os.environ
    )
    if config is None and not outside:
        return []
    config = config or ConfigFile("environment", Path(), "", ())
    result = check_config(
        config,
        os.environ,
        ucx=os.environ.get("MERGE_BENCH_UCX", "auto"),
        launcher=_launcher_settings(options, {**os.environ, **config.environment}),
        options=options,
        table=registry_options.options(),
        trusted=options.trust_config,
    )
    if result.errors and not options.allow_unknown:
        raise UsageError("\n".join([*result.errors, "add --allow-unknown to continue anyway"]))
    warned = [Caution("config", sentence) for sentence in (*result.errors, *result.warnings)]
    absent = [name for conflict in result.conflicts if conflict.code == NO_DEVICE for name in conflict.settings]
    for each in result.variables:
        if each.source == "config" and each.state in WORTH_A_WARNING and each.message and each.name not in absent:
            where = f"{config.where(each.line)}: " if each.line else ""
            warned.append(Caution(f"config-{each.state}", f"{where}{each.name}={each.value}: {each.message}"))
    warned += [Caution(conflict.code, conflict.message, conflict.documented) for conflict in result.conflicts]
    return warned


def _launcher_settings(options: RunOptions, variables: Mapping[str, str]) -> dict[str, str]:
    """What the launcher will set, as far as it can be known before hosts are asked."""
    launcher, hosts = choose(options, os.environ)
    interface = options.interface or ""
    if not hosts:
        devices = {"UCX_NET_DEVICES": network.net_devices(interface or LOOPBACK)} if launcher.starts_here else {}
    else:
        devices = {"UCX_NET_DEVICES": interface} if interface else {}
    found = make_plan.launcher_ucx(options, variables, hosts=len(hosts)) if launcher.owns_processes else {}
    return {**devices, **found}


def dry_run(sweep: Sweep) -> str:
    """The exact commands that a launch would start, one a line, under the host's name; of several runs each, then
    how long they take and the order of their launches.
    """
    lines, jobs, named = [], sweep.jobs(), sweep.named()
    for (config, index), prepared in sweep.prepared.items():
        plan = prepared.plan
        if len(jobs) > 1:
            size = f"{_size(plan)} per chunk" if plan.rows_per_chunk is not None else _size(plan)
            names = f"{config}/{index}" + (f" ({name})" if (name := named[config, index]) != config else "")
            lines.append(f"## {names}: {_workers(plan)}{size}, {plan.launches} launches")
        for command in make_launcher(prepared.settings).commands(plan, prepared.settings):
            lines.append(f"# {command.role} on {command.host}")
            lines.append(command.shown())
    if len(jobs) > 1:
        lines.append(f"## {expected_time(sweep).sentence(jobs)}")
        lines += [f"## {short}"] if (short := too_few_blocks(sweep)) else []
        for block, members in itertools.groupby(jobs, lambda job: job.block):
            lines.append(f"## block {block}: " + " ".join(f"{job.config}/{job.plan}" for job in members))
    return "\n".join(lines) if lines else "# no process would be started: the cluster is already running"


def load_all(given: RunOptions) -> Sweep:
    """Every config of ``--config`` or ``--configs`` with every plan; one run of each config and plan."""
    sweep = Sweep()
    for name in given.configs or (given.config,):
        found, config = load_sweep(name, given)
        sweep.add(found, config_line(found[0], config))
        if found[0].plan.write_result and len(sweep.jobs()) > 1:
            raise UsageError(
                "--write-result writes the merged table of one launch; use one config, one value of each option, and"
                " omit --launches"
            )
    return sweep


def run(
    sweep: Sweep, progress: Progress, *, fresh: bool = False, extend: Path | None = None, caller: Caller = UNTOUCHED,
    wait_for_quiet: float | None = None, say_time: bool = True,
) -> tuple[Path, int]:  # fmt: skip
    """Make every launch of the sweep; returns the campaign's folder and the exit status.

    What is measured is on the disk as soon as it is measured. Whatever happens, every process that was started is gone
    when this returns. An interrupted campaign of the same sweep is resumed, unless `fresh`; `extend`: a campaign to add
    launches to. `wait_for_quiet`: as of `make_campaign`; `say_time`: print how long several launches take.
    """

    jobs = sweep.jobs()
    if say_time and (short := too_few_blocks(sweep)):
        warn(Caution("few-blocks", short))

    expected = expected_time(sweep)

    def launch(job: Job, writer: CampaignWriter, index: int) -> int:
        shown = progress
        if len(jobs) > 1:
            shown = Labelled(progress, label(job, jobs), expected.total(jobs[jobs.index(job) + 1 :]))
        return launch_merge(job, writer, shown, index)

    name = "-".join(config.name for config in sweep.configs)
    return make_campaign(
        sweep.results, name, sweep.head(), jobs, launch, resume=not fresh, extend=extend, caller=caller,
        wait_for_quiet=wait_for_quiet, expected=expected if say_time and len(jobs) > 1 else None,
    )  # fmt: skip


def expected_time(sweep: Sweep) -> ExpectedTime:
    """How long the launches of a sweep take."""
    return ExpectedTime(sweep.results, sweep.plans, merge_seconds)


def too_few_blocks(sweep: Sweep) -> str | None:
    """How many blocks it takes to show a difference between the configs of a sweep, if it has fewer."""
    head = sweep.head()
    line = CampaignLine(
        campaign_id="", argv=[], version=__version__, configs=list(head.configs), seed=head.seed,
        plans=list(head.plans), runs=list(head.runs),
    )  # fmt: skip
    plans = tuple(map(RecordedPlan.of, sweep.plans))
    least = least_blocks(Campaign(Path(), line, plans, (), truncated=False, skipped={}))
    blocks = sweep.first.plan.launches
    if blocks >= least:
        return None
    made = f"{blocks} blocks" if blocks > 1 else "1 block"
    what = f"{len(sweep.labels)} configs" if len(sweep.configs) > 1 else ", ".join(sweep.labels)
    return f"{made} cannot show a difference between {what}; use --blocks {least} or more"


def label(job: Job, jobs: Sequence[Job]) -> str:
    """How the display names a launch of several: ``1 of 12: default, 1,000,000 rows, 2 workers``.

    Only the records number launches by themselves, from 0, also those that failed and are made again.
    """
    plan = job.prepared.plan
    return f"{jobs.index(job) + 1} of {len(jobs)}: {job.label}{_size(plan)}, {_workers(plan)}"


def _size(plan: Plan) -> str:
    """``, 1,000,000 rows`` or ``, h2o q1``; empty for tables of files."""
    if plan.rows_per_chunk is not None:
        return f", {format_count(plan.rows_per_chunk)} rows"
    work = plan.workload
    return f", {work.benchmark} {work.question}" if isinstance(work, TableSpec) and work.benchmark else ""


def _workers(plan: Plan) -> str:
    return f"{plan.workers} worker{'s' if plan.workers > 1 else ''}"


def launch_merge(job: Job, writer: CampaignWriter, progress: Progress, launch: int) -> int:
    """Make one launch and merge in it, with all that belongs to it; gives the exit status."""
    from merge_bench.campaign.measure_launch import measure

    return make_launch(job, writer, progress, launch, measure)
