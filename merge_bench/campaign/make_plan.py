"""Makes the plan of each run and the settings of its cluster from options, and refuses those that cannot work."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from merge_bench.campaign.machine_checks import (
    MachineResources,
    check_engine,
    check_gpu_count,
    check_library_variables,
    check_mig_parts,
    check_transports,
)
from merge_bench.cluster import scheduler_client
from merge_bench.cluster.base import ClusterSettings, LauncherKind
from merge_bench.cluster.dask_commands import default_ucx_settings, open_port_warning
from merge_bench.cluster.hosts import HostSpec, default_worker_count, place_workers
from merge_bench.cluster.launchers import (
    ChosenLauncher,
    choose_launcher_kind,
    launchers_by_name,
    unreachable_batch_job_warning,
)
from merge_bench.cluster.scheduler_client import count_running_workers
from merge_bench.config import allowed_transports
from merge_bench.config.files import check_output_folder, open_regular_file, without_parent_steps
from merge_bench.config.option import DEFAULT
from merge_bench.config.options import RunOptions
from merge_bench.config.reader import ConfigFile
from merge_bench.config.ucx_choice import UcxChoice, ucx_selection_variables
from merge_bench.config.variables import REMEDY, process_environment_variables
from merge_bench.errors import UsageError, WarningMessage
from merge_bench.host import network
from merge_bench.merge import engines
from merge_bench.merge.distribution import (
    BROADCAST,
    SHUFFLE,
    RowDistribution,
    check_broadcast_possible,
    choose_distribution,
    table_bytes_by_side,
)
from merge_bench.merge.engines import EngineDescription
from merge_bench.merge.engines.base import JoinKind
from merge_bench.merge.exchange import find_data_plane, format_plane_names
from merge_bench.merge.plan import Plan, check_memory_fits
from merge_bench.merge.workload import (
    KEY,
    SyntheticSpec,
    benchmark_workload_names,
    import_benchmark,
    resizable_workload_names,
)
from merge_bench.merge.workload.benchmarks import Benchmark
from merge_bench.merge.workload.tables import TableSpec, plan_tables

AUTO = "auto"
SWEPT = ("chunk", "workers", "question", "engine", "exchange", "shuffle", "ucx")
"""The options of which several values make a sweep, those of the tables first: runs of the same tables are in a row."""
MESSAGE_BYTES = 32 << 20
MESSAGE_BYTES_ACROSS = 4 << 20  # with long messages, peers that share a link take turns, and the last one waits
SLOW_PIPELINE = WarningMessage(
    "pipeline-on-one-host",
    "on a single host, a merge is usually slower with --pipeline on, because the same cores also have to move the data",
    "use --pipeline off",
)


def options_of_each_run(options: RunOptions, environ: Mapping[str, str]) -> list[RunOptions]:
    """Make the options of each run, one for each combination of swept values; raises UsageError if they clash."""
    if options.rows is not None and options.workload not in resizable_workload_names():
        sized = " or ".join(resizable_workload_names())
        raise UsageError(f"--rows needs --workload {sized}; the size of synthetic tables is set with --chunk")
    benchmark: Benchmark | None = import_benchmark(options.workload)
    if benchmark is not None:
        named = options.several.get("question", (options.question,) if options.question else ())
        options = options.with_sourced_values({"question": benchmark.choose_questions(named)}, {})
    elif options.question is not None:
        raise UsageError(f"--question needs --workload {' or '.join(benchmark_workload_names())}")
    swept = {key: options.several[key] for key in SWEPT if key in options.several}
    if "chunk" in swept and options.workload != "synthetic":
        raise UsageError("--chunk cannot be used with real tables, whose size is fixed; omit --chunk")
    exchanges = swept.get("exchange", (options.exchange,))
    if "shuffle" in swept and not any(find_data_plane(name).shuffles for name in exchanges):
        shuffling = format_plane_names(lambda plane: plane.shuffles)
        raise UsageError(f"several values of --shuffle need --exchange {shuffling}; no other has a shuffle method")
    runs = []
    for combination in itertools.product(*swept.values()):
        run = options.with_sourced_values(dict(zip(swept, combination, strict=True)), {})
        if "shuffle" in swept and not find_data_plane(run.exchange).shuffles and run.shuffle != swept["shuffle"][0]:
            continue
        if benchmark is not None and (how := benchmark.find_question(run.question or "").how) is not None:
            if options.value_source("how") != DEFAULT:
                cannot = f"--how cannot be used with --workload {benchmark.name}"
                raise UsageError(f"{cannot}, whose questions define it; omit --how")
            run = replace(run, how=how)
        runs.append(run)
    for run in runs:
        _refuse_impossible_options(run, environ)
    return runs


def _refuse_impossible_options(options: RunOptions, environ: Mapping[str, str]) -> None:
    launcher = choose_launcher_kind(options, environ)
    if (
        not launcher.owns_processes
        and options.interface
        and not options.value_source("interface").startswith("environment")
    ):
        cannot = "--interface cannot be used with a running cluster"
        raise UsageError(f"{cannot}, whose interface is fixed; omit --interface")
    refuse_launches_of_running_cluster(launcher.name, options.launches)
    if launcher.owns_processes and not launcher.starts_here:
        choose_dask_protocol(options, reachable_by_others=True)
    if options.workload == "synthetic":
        _refuse_keys_of_synthetic_tables(options)
    if options.engine != AUTO:
        choose_engine(options, has_gpus=False)
    _refuse_unsupported_by_data_plane(options)
    how = JoinKind(options.how)
    if options.runtime_filter == "on" and how.keeps_unmatched_left and how.keeps_unmatched_right:
        keeps = f"--how {how.value} keeps those of both tables; use --runtime-filter off"
        raise UsageError(f"--runtime-filter on drops rows that have no match, and {keeps}")
    if options.distribution == BROADCAST:
        check_broadcast_possible(how)
        if without := option_needing_shuffle(options):
            raise UsageError(f"{without} cannot be used with --distribution broadcast; omit it, or use a shuffle")
    for word, hint in allowed_transports.find_unknown_transports(",".join(options.require_transport)).items():
        raise UsageError(f"--require-transport {word}: no release of UCX has such a transport{hint}")
    if options.workers is not None:
        _refuse_transport_check_of_one_worker(options, options.workers)
    if options.write_result is not None and options.verify == "off":
        raise UsageError("--write-result writes a table that was verified; omit --verify off")


def _refuse_keys_of_synthetic_tables(options: RunOptions) -> None:
    if options.columns:
        raise UsageError("--columns cannot be used with synthetic tables; --payload-columns sets how many they have")
    keys = options.on or options.left_on
    if keys and tuple(keys) != (KEY,):
        names = ("--on", "--on") if options.on else ("--left-on", "--left-on and --right-on")
        cannot = f"{names[0]} {','.join(keys)} cannot be used with synthetic tables"
        raise UsageError(f"{cannot}, whose key column is always {KEY!r}; omit {names[1]}")


def _refuse_unsupported_by_data_plane(options: RunOptions) -> None:
    plane = find_data_plane(options.exchange)
    if not plane.supports_join(options.how):
        others, joins = format_plane_names(lambda other: other.supports_join(options.how)), ", ".join(dict(plane.joins))
        use = f"use --how {joins} or --exchange {others}"
        raise UsageError(f"--exchange {plane.name} does not support --how {options.how}; {use}")
    if options.pipeline == "on" and not plane.pipeline:
        others = format_plane_names(lambda other: other.pipeline)
        raise UsageError(f"--pipeline on needs --exchange {others}, not {plane.name}; use --pipeline off")
    if options.runtime_filter == "on" and not plane.runtime_filter:
        raise UsageError(f"--exchange {plane.name} has no runtime filter; use --runtime-filter off")
    if options.timeline == "on" and not plane.timeline:
        others = format_plane_names(lambda other: other.timeline)
        raise UsageError(f"--timeline on needs --exchange {others}; use --timeline auto")
    if options.distribution == BROADCAST and not plane.broadcast:
        raise UsageError(f"--exchange {plane.name} sends no table whole; use --distribution shuffle")
    if options.require_transport and not plane.endpoints:
        others, has = format_plane_names(lambda other: other.endpoints), f"--exchange {plane.name} has"
        raise UsageError(f"--require-transport needs --exchange {others}; {has} no UCX endpoints between workers")


def refuse_launches_of_running_cluster(launcher: str, launches: int) -> None:
    """Raise UsageError if the launcher uses a cluster that is already running, and more than one launch is wanted."""
    if launches > 1 and not launchers_by_name()[launcher].owns_processes:
        raise UsageError("with a running cluster, use one config and one size, and omit --launches")


def _refuse_transport_check_of_one_worker(options: RunOptions, workers: int) -> None:
    if options.require_transport and workers < 2:
        what = "needs at least two workers, because it checks pairs of workers"
        raise UsageError(f"--require-transport {what}; use --workers 2 or more")


def choose_dask_protocol(options: RunOptions, *, reachable_by_others: bool) -> str:
    """Choose the protocol of Dask's messages: tls, unless another one or --insecure is given.

    `reachable_by_others`: whether other machines can reach the ports. If not, `auto` means tcp for a data plane that
    sends the rows in Dask's messages, which would measure the encryption. Raises UsageError if other machines could
    connect to ports that ask for no certificate.
    """
    if options.protocol == AUTO and scheduler_client.dask_requires_encryption():
        return "tls"
    if options.protocol == AUTO:
        open_anyway = (
            options.insecure if reachable_by_others else not find_data_plane(options.exchange).workers_exchange_rows
        )
        return "tcp" if open_anyway else "tls"
    if reachable_by_others and options.protocol != "tls" and not options.insecure:
        what = f"--protocol {options.protocol} is not encrypted: anyone able to connect can run code here"
        raise UsageError(f"{what}; use --protocol tls, or add --insecure on a trusted network")
    return options.protocol


def choose_engine(options: RunOptions, *, has_gpus: bool) -> EngineDescription:
    """Choose the join engine that the options name; for ``auto``, depending on `has_gpus`.

    Raises UsageError if the engine does not work with the other options.
    """
    dask = not find_data_plane(options.exchange).workers_exchange_rows
    engine = (
        engines.choose_auto_engine(has_gpus=has_gpus, needs_dask=dask)
        if options.engine == AUTO
        else engines.describe_engine(options.engine)
    )
    if dask and engine.dask_backend is None:
        others = " or ".join(other.name for other in engines.engine_descriptions() if other.dask_backend is not None)
        what = f"--exchange {options.exchange} does not support --engine {engine.name}"
        raise UsageError(f"{what}; use --engine {others}")
    if options.pipeline == "on" and not engine.in_parts:
        raise UsageError(f"--engine {engine.name} cannot overlap phases; use --pipeline off")
    if (only := find_data_plane(options.exchange).engines) and engine.name not in only:
        raise UsageError(f"--exchange {options.exchange} needs --engine {' or '.join(only)}, not {engine.name}")
    if options.runtime_filter == "on" and engine.device_memory:
        raise UsageError(f"--engine {engine.name} has no runtime filter; use --runtime-filter off")
    return engine


def option_needing_shuffle(options: RunOptions) -> str | None:
    """The option that needs a shuffle of both tables, as on the command line; None if no option does.

    A broadcast has hardly anything to overlap: no row can be joined before all of the small table has arrived. A
    runtime filter saves the partition and exchange of rows, and a broadcast has neither for the large table.
    """
    values = {"--pipeline on": options.pipeline, "--runtime-filter on": options.runtime_filter}
    return next((option for option, value in values.items() if value == "on"), None)


@dataclass(frozen=True)
class PlannedRun:
    """A run that is ready to start: its plan and cluster settings, and the options and config they were made from."""

    options: RunOptions
    config: ConfigFile | None
    plan: Plan
    settings: ClusterSettings
    warnings: tuple[WarningMessage, ...] = ()

    @property
    def launcher(self) -> LauncherKind:
        return launchers_by_name()[self.settings.launcher]


def plan_run(
    options: RunOptions,
    config: ConfigFile | None,
    machine: MachineResources,
    chosen_launcher: ChosenLauncher,
    ucx: UcxChoice | None = None,
) -> PlannedRun:
    """Plan one run on `machine`: returns its plan, the settings of its cluster, and warnings.

    `options`: of this run, from `options_of_each_run`; `chosen_launcher`: its launcher and hosts; `ucx`: the UCX that
    its processes load, None for that of the environment. Raises UsageError if this machine, its hosts, or the tables do
    not allow the run; GateNotMet if no required transport can be used on this machine.
    """
    launcher, hosts = chosen_launcher
    user = next((host.name for host in hosts if "@" in host.name), None)
    if user and options.value_source("hosts").startswith("config") and not options.trust_config:
        # This machine unpickles what the processes of that user send.
        where = options.value_source("hosts").removeprefix("config ")
        raise UsageError(f"{where}: MERGE_BENCH_HOSTS has a host with a user name, {user}@...; {REMEDY}")
    existing = not launcher.owns_processes
    environment = {} if config is None else process_environment_variables(config, trusted=options.trust_config)
    variables = {**machine.environ, **environment}
    if ucx is not None:
        variables |= ucx_selection_variables(ucx.origin, variables)
    gpus_seen = _most_gpus_of_a_host(hosts, machine)
    engine, plane = choose_engine(options, has_gpus=gpus_seen > 0), find_data_plane(options.exchange)
    check_engine(engine, variables, gpus_seen, workers_are_here=launcher.starts_here)
    gpus, per_gpu = gpus_seen if engine.device_memory else 0, options.workers_per_gpu
    if gpus:  # an unknown host is assumed to be like this one; the launcher asks it later
        hosts = tuple(host if host.gpus is not None else replace(host, gpus=gpus, assumed=True) for host in hosts)
    workers = options.workers or _default_worker_count(options, launcher, hosts, gpus, machine)
    _refuse_transport_check_of_one_worker(options, workers)
    reachable_by_others = bool(hosts) or (launcher.starts_here and _is_reachable_from_other_hosts(options.interface))
    protocol = "tcp"
    if not (existing and options.protocol == AUTO):
        protocol = choose_dask_protocol(options, reachable_by_others=reachable_by_others)
    if not existing:
        scheduler_client.check_dask_configuration(
            protocol=protocol, uses_dask_dataframes=not plane.workers_exchange_rows
        )
    most_on_host = max((len(each.workers) for each in place_workers(hosts, workers, per_gpu)), default=workers)
    workload = _make_workload(options, workers, engine.name, generate_tables=machine.looks)
    plan = Plan(
        workload=workload,
        workers=workers,
        iterations=options.timed_iteration_count,
        warmup=options.warmup,
        launches=options.launches,
        engine=engine.name,
        exchange=options.exchange,
        protocol=protocol,
        verify=options.verify,
        timeout=options.timeout,
        seed=options.seed,
        how=JoinKind(options.how),
        distribution=_choose_distribution(options, workload, workers),
        error_handling=options.error_handling == "peer",
        message_bytes=options.message_size or (MESSAGE_BYTES_ACROSS if len(hosts) > 1 else MESSAGE_BYTES),
        link_rounds=options.link_rounds,
        check_link=options.check_link,
        pipeline=options.pipeline == "on" and workers > 1,
        stores="lines" if options.partition_writes == "streaming" else options.partition_writes,  # as records name it
        runtime_filter=options.runtime_filter == "on",
        threads=max(1, machine.cores // most_on_host),
        require_transport=options.require_transport,
        timeline=options.timeline if plane.timeline else "off",
        write_result=_checked_result_folder(options, workers_are_here=launcher.starts_here),
        ucx=None if ucx is None else ucx.display_name,
        **options.worker_option_values(),
    )
    settings = ClusterSettings(
        environment=environment,
        results=Path(options.results),
        gpus=gpus,
        workers_per_gpu=per_gpu,
        rmm_pool_bytes=options.rmm_pool_size,
        interface=None if existing else options.interface,
        launcher=launcher.name,
        hosts=hosts,
        ssh_config=options.ssh_config,
        scheduler_address=options.scheduler_address,
        scheduler_file=options.scheduler_file,
        counted=workers if existing and options.workers is None else None,
        start_timeout=options.start_timeout,
        dask_dashboard=options.dask_dashboard,
        sources=options.sources,
        ucx={} if existing else launcher_ucx_settings(options, variables, hosts=len(hosts)),
        ucx_origin=None if ucx is None else ucx.origin,
    )
    if settings.ssh_config:
        open_regular_file(settings.ssh_config).close()  # ssh itself says little about a file that it cannot read
    if launcher.starts_here:
        check_gpu_count(workers, gpus, per_gpu)
        if gpus and (plane.endpoints or protocol == "ucx"):
            check_mig_parts(workers, per_gpu)
        check_memory_fits(plan, machine.memory, workers, socket.gethostname())
        check_library_variables(environment, machine.environ)
        if plane.endpoints:
            check_transports(plan.require_transport, variables, workers)
    planned_run = PlannedRun(options, config, plan, settings)
    warnings = _plan_warnings(planned_run, machine, variables, reachable_by_others=reachable_by_others)
    return replace(planned_run, warnings=tuple(warnings))


def sends_gpu_memory(options: RunOptions, hosts: Sequence[HostSpec], machine: MachineResources) -> bool:
    """Whether the workers of the run with these options, on `hosts`, send GPU memory with UCX."""
    over_ucx = find_data_plane(options.exchange).endpoints or options.protocol == "ucx"
    return over_ucx and choose_engine(options, has_gpus=_most_gpus_of_a_host(hosts, machine) > 0).device_memory


def _most_gpus_of_a_host(hosts: Sequence[HostSpec], machine: MachineResources) -> int:
    """The largest number of GPUs of a host in the hosts file; this machine's number if the file names none."""
    return max((host.gpus or 0 for host in hosts), default=0) or machine.gpus


def _plan_warnings(
    planned_run: PlannedRun, machine: MachineResources, variables: Mapping[str, str], *, reachable_by_others: bool
) -> Iterator[WarningMessage]:
    """Warnings about the tables, the launcher, a pipeline on one host, and open ports that ask for no certificate."""
    plan, settings, options = planned_run.plan, planned_run.settings, planned_run.options
    if isinstance(plan.workload, TableSpec):
        yield from plan.workload.warnings
    if left := unreachable_batch_job_warning(options, machine.environ):
        yield left
    if plan.pipeline and planned_run.launcher.starts_here:
        yield SLOW_PIPELINE
    if planned_run.launcher.owns_processes and plan.protocol != "tls":
        who = "anyone who can connect to them" if reachable_by_others else "every user of this machine"
        what = f"the ports of scheduler and workers speak {plan.protocol} and ask for no certificate"
        remedy = "use --protocol tls, or have no other users there"
        yield WarningMessage("dask-ports", f"{what}: {who} can run code as you", remedy)
    uses_ucx = plan.data_plane.ucx or plan.protocol == "ucx"
    if planned_run.launcher.owns_processes and len(settings.hosts) < 2 and uses_ucx:
        bound = options.interface or ("its host" if settings.hosts else None)
        if port := open_port_warning({**settings.ucx, **variables}, bound):
            yield port


def launcher_ucx_settings(options: RunOptions, variables: Mapping[str, str], *, hosts: int) -> dict[str, str]:
    """The UCX settings that the launcher adds to `variables` for these options, on this number of hosts."""
    handling, protocol = options.error_handling == "peer", options.protocol
    return default_ucx_settings(
        variables, hosts=hosts, exchange=options.exchange, protocol=protocol, error_handling=handling
    )


def _is_reachable_from_other_hosts(interface: str | None) -> bool:
    """Whether other machines can reach ports on this machine's `interface`; None stands for loopback."""
    if interface is None:
        return False
    try:
        return not network.is_loopback_address(network.interface_ipv4_address(interface))
    except LookupError as error:
        raise UsageError(f"--interface: {error}") from error


def _default_worker_count(
    options: RunOptions, launcher: LauncherKind, hosts: Sequence[HostSpec], gpus: int, machine: MachineResources
) -> int:
    if not launcher.owns_processes:
        if not machine.looks:
            return 2
        return count_running_workers(options.scheduler_address, options.scheduler_file, options.start_timeout)
    if hosts:
        return default_worker_count(hosts, options.workers_per_gpu)
    return gpus * options.workers_per_gpu or min(2, machine.cores)


def _make_workload(
    options: RunOptions, workers: int, engine: str, *, generate_tables: bool
) -> SyntheticSpec | TableSpec:
    benchmark: Benchmark | None = import_benchmark(options.workload)
    if benchmark is not None and generate_tables:
        return benchmark.plan_question(options.question or "", options, workers, engine)
    if options.workload == "tables":
        assert options.left is not None
        assert options.right is not None
        keys = options.on or ()
        left_on, right_on = options.left_on or keys, options.right_on or keys
        return plan_tables(options.left, options.right, left_on, right_on, workers, engine, options.columns)
    rows, fraction, columns = options.chunk * workers, options.frac_match, options.payload_columns
    return SyntheticSpec(rows=rows, fraction=fraction, seed=options.seed, payload_columns=columns, zipf=options.skew)


def _choose_distribution(options: RunOptions, workload: SyntheticSpec | TableSpec, workers: int) -> RowDistribution:
    is_default = "distribution" not in options.sources
    if options.distribution == SHUFFLE or (is_default and isinstance(workload, SyntheticSpec)):
        return RowDistribution()  # what is generated measures the network
    how, shuffle_option = JoinKind(options.how), option_needing_shuffle(options)
    if not find_data_plane(options.exchange).broadcast:
        shuffle_option = f"--exchange {options.exchange}"
    return choose_distribution(
        options.distribution,
        how,
        workers,
        lambda: table_bytes_by_side(workload, how),
        incompatible_option=shuffle_option,
    )


def _checked_result_folder(options: RunOptions, *, workers_are_here: bool) -> str | None:
    """The folder of ``--write-result``; raises UsageError if it has files, or workers on this host cannot write it."""
    if options.write_result is None:
        return None
    folder = without_parent_steps(Path(options.write_result).expanduser().absolute())
    with contextlib.suppress(PermissionError):  # then it is refused below, if workers on this host write it
        if folder.is_dir() and any(folder.iterdir()):
            raise UsageError(f"--write-result: the folder {folder} is not empty; name a new one")
    above = (path for path in (folder, *folder.parents) if os.path.lexists(path) and not path.is_dir())
    if blocking := next(above, None):
        raise UsageError(f"--write-result {folder}: {blocking} is not a folder; name a new one")
    if workers_are_here:
        check_output_folder("--write-result", folder)
    return str(folder)
