"""Makes the plan of a run and the settings of its cluster from its options, on the machine that starts it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from merge_bench.campaign.library_check import check_libraries
from merge_bench.campaign.machine_checks import Machine, check_engine, check_gpus, check_parts, check_transports
from merge_bench.campaign.run_options import AUTO, engine_of, option_needing_shuffle, protocol_of, refuse_no_pairs
from merge_bench.cluster import dask_settings
from merge_bench.cluster.base import ClusterSettings, LauncherKind
from merge_bench.cluster.dask_commands import open_port_warning, ucx_settings
from merge_bench.cluster.hosts import HostSpec, count_workers, place_workers
from merge_bench.cluster.launchers import choose_launcher, launchers, leftover_job_warning
from merge_bench.cluster.scheduler_client import count_running_workers
from merge_bench.config.files import open_regular
from merge_bench.config.options import RunOptions
from merge_bench.config.reader import ConfigFile
from merge_bench.config.trust import REMEDY, process_environment
from merge_bench.errors import Caution, UsageError
from merge_bench.host import network
from merge_bench.merge.engines.base import How
from merge_bench.merge.exchange import data_plane
from merge_bench.merge.plan import SHUFFLE, Distribution, Plan, check_fits, choose_distribution, side_bytes
from merge_bench.merge.workload.benchmarks import BENCHMARKS, Benchmark
from merge_bench.merge.workload.synthetic import SyntheticSpec
from merge_bench.merge.workload.tables import TableSpec, plan_tables

MESSAGE_BYTES = 32 << 20
MESSAGE_BYTES_ACROSS = 4 << 20  # with long messages, peers that share a link take turns, and the last one waits
SLOW_PIPELINE = Caution(
    "pipeline-on-one-host",
    "on a single host, a merge is usually slower with --pipeline on, because the same cores also have to move the data",
    "use --pipeline off",
)


@dataclass(frozen=True)
class PlannedRun:
    """A run that is ready to start: its plan and cluster settings, and the options and config they were made from."""

    options: RunOptions
    config: ConfigFile | None
    plan: Plan
    settings: ClusterSettings
    warnings: tuple[Caution, ...] = ()

    @property
    def launcher(self) -> LauncherKind:
        """The kind of launcher that starts the cluster."""
        return launchers()[self.settings.launcher]


def plan_run(options: RunOptions, config: ConfigFile | None, machine: Machine) -> PlannedRun:
    """Plan one run on `machine`; `options`: one element of what `run_options.runs_of` returns.

    Raises
    ------
    UsageError
        If this machine, its hosts, or the tables do not allow the run.
    GateNotMet
        If no required transport can be used on this machine.
    """
    launcher, hosts = choose_launcher(options, machine.environ)
    _refuse_other_users(options, hosts)
    existing = not launcher.owns_processes
    environment = {} if config is None else process_environment(config, trusted=options.trust_config)
    variables = {**machine.environ, **environment}
    gpus_seen = _gpus_seen(hosts, machine)
    engine, plane = engine_of(options, gpus=gpus_seen > 0), data_plane(options.exchange)
    check_engine(engine, variables, gpus_seen, here=launcher.starts_here)
    gpus, per_gpu = gpus_seen if engine.device_memory else 0, options.workers_per_gpu
    if gpus:  # an unknown host is assumed to be like this one; the launcher asks it later
        hosts = tuple(host if host.gpus is not None else replace(host, gpus=gpus, assumed=True) for host in hosts)
    workers = options.workers or _default_workers(options, launcher, hosts, gpus, machine)
    refuse_no_pairs(options, workers)
    others_connect = bool(hosts) or (launcher.starts_here and _reachable_from_others(options.interface))
    protocol = "tcp"
    if not (existing and options.protocol == AUTO):
        protocol = protocol_of(options, others_connect=others_connect)
    if not existing:
        dask_settings.check_allowed(protocol=protocol, dask_frames=not plane.by_workers)
    most_on_host = max((len(each.workers) for each in place_workers(hosts, workers, per_gpu)), default=workers)
    workload = _make_workload(options, workers, engine.name, generate=machine.looks)
    plan = Plan(
        workload=workload,
        workers=workers,
        iterations=options.timed_iterations,
        warmup=options.warmup,
        launches=options.launches,
        engine=engine.name,
        exchange=options.exchange,
        protocol=protocol,
        verify=options.verify,
        timeout=options.timeout,
        seed=options.seed,
        how=How(options.how),
        distribution=_choose_distribution(options, workload, workers),
        error_handling=options.error_handling == "peer",
        message_bytes=options.message_size or (MESSAGE_BYTES_ACROSS if len(hosts) > 1 else MESSAGE_BYTES),
        link_rounds=options.link_rounds,
        check_link=options.check_link,
        shuffle=options.shuffle,
        pipeline=options.pipeline == "on" and workers > 1,
        stores=options.stores,
        runtime_filter=options.runtime_filter == "on",
        threads=max(1, machine.cores // most_on_host),
        require_transport=options.require_transport,
        timeline=options.timeline if plane.timeline else "off",
        write_result=_new_result_folder(options),
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
    )
    if settings.ssh_config:
        open_regular(settings.ssh_config).close()  # ssh itself says little about a file that it cannot read
    if launcher.starts_here:
        check_gpus(workers, gpus, per_gpu)
        if gpus and (plane.endpoints or protocol == "ucx"):
            check_parts(workers, per_gpu)
        check_fits(plan, machine.memory, workers, socket.gethostname())
        check_libraries(environment, machine.environ)
        if plane.endpoints:
            check_transports(plan.require_transport, variables, workers)
    planned = PlannedRun(options, config, plan, settings)
    ports = () if existing else _port_warnings(planned, variables, others_connect=others_connect)
    return replace(planned, warnings=(*_plan_warnings(planned, machine), *ports))


def sends_gpu_memory(options: RunOptions, machine: Machine) -> bool:
    """Whether workers of this run (an element of what `run_options.runs_of` returns) send GPU memory with UCX.

    Raises
    ------
    UsageError
        If the engine does not support another option.
    """
    _, hosts = choose_launcher(options, machine.environ)
    over_ucx = data_plane(options.exchange).endpoints or options.protocol == "ucx"
    return over_ucx and engine_of(options, gpus=_gpus_seen(hosts, machine) > 0).device_memory


def _gpus_seen(hosts: Sequence[HostSpec], machine: Machine) -> int:
    """The GPUs of the host with the most, as far as the hosts file says; else those of this machine."""
    return max((host.gpus or 0 for host in hosts), default=0) or machine.gpus


def _plan_warnings(planned: PlannedRun, machine: Machine) -> tuple[Caution, ...]:
    """The warnings about the tables, the launcher and a pipeline on one host."""
    workload = planned.plan.workload
    warnings = list(workload.warnings) if isinstance(workload, TableSpec) else []
    if left := leftover_job_warning(planned.options, machine.environ):
        warnings.append(left)
    if planned.plan.pipeline and planned.launcher.starts_here:
        warnings.append(SLOW_PIPELINE)
    return tuple(warnings)


def _port_warnings(planned: PlannedRun, variables: Mapping[str, str], *, others_connect: bool) -> tuple[Caution, ...]:
    """The warnings for open ports of Dask and UCX that ask for no certificate."""
    plan, settings, warnings = planned.plan, planned.settings, list[Caution]()
    if plan.protocol != "tls":
        warnings.append(dask_port_warning(plan.protocol, everyone=not others_connect))
    if len(settings.hosts) < 2 and (plan.data_plane.ucx or plan.protocol == "ucx"):
        bound = planned.options.interface or ("its host" if settings.hosts else None)
        port = open_port_warning({**settings.ucx, **variables}, bound)
        warnings += [port] if port else []
    return tuple(warnings)


def dask_port_warning(protocol: str, *, everyone: bool) -> Caution:
    """The warning for Dask ports that ask for no certificate; `everyone`: whether the ports are on loopback."""
    who = "every user of this machine" if everyone else "anyone who can connect to them"
    return Caution(
        "dask-ports",
        f"the ports of scheduler and workers speak {protocol} and ask for no certificate: {who} can run code as you",
        "use --protocol tls, or have no other users there",
    )


def launcher_ucx_settings(options: RunOptions, variables: Mapping[str, str], *, hosts: int) -> dict[str, str]:
    """The UCX settings that the launcher adds to `variables` for these options, on this number of hosts."""
    return ucx_settings(
        variables,
        hosts=hosts,
        exchange=options.exchange,
        protocol=options.protocol,
        error_handling=options.error_handling == "peer",
    )


def _refuse_other_users(options: RunOptions, hosts: Sequence[HostSpec]) -> None:
    """Refuse a config that names hosts with another user, because this machine unpickles what their processes send."""
    user = next((host.name for host in hosts if "@" in host.name), None)
    if user and options.source("hosts").startswith("config") and not options.trust_config:
        where = options.source("hosts").removeprefix("config ")
        raise UsageError(f"{where}: MERGE_BENCH_HOSTS has a host with a user name, {user}@...; {REMEDY}")


def _reachable_from_others(interface: str | None) -> bool:
    """Whether other machines can reach ports on this machine's `interface`; None stands for loopback."""
    if interface is None:
        return False
    try:
        return not network.is_loopback(network.interface_address(interface))
    except LookupError as error:
        raise UsageError(f"--interface: {error}") from error


def _default_workers(
    options: RunOptions, launcher: LauncherKind, hosts: Sequence[HostSpec], gpus: int, machine: Machine
) -> int:
    """The number of workers if the option --workers is not given."""
    if not launcher.owns_processes:
        if not machine.looks:
            return 2
        return count_running_workers(options.scheduler_address, options.scheduler_file, options.start_timeout)
    if hosts:
        return count_workers(hosts, options.workers_per_gpu)
    return gpus * options.workers_per_gpu or min(2, machine.cores)


def _make_workload(options: RunOptions, workers: int, engine: str, *, generate: bool) -> SyntheticSpec | TableSpec:
    benchmark = BENCHMARKS.get(options.workload)
    if benchmark is not None and generate:
        return _question_tables(benchmark, options, workers, engine)
    if options.workload == "tables":
        assert options.left is not None
        assert options.right is not None
        keys = options.on or ()
        left_on, right_on = options.left_on or keys, options.right_on or keys
        return plan_tables(options.left, options.right, left_on, right_on, workers, engine, options.columns)
    return SyntheticSpec(
        rows=options.chunk * workers,
        fraction=options.frac_match,
        seed=options.seed,
        payload_columns=options.payload_columns,
        zipf=options.skew,
    )


def _question_tables(benchmark: Benchmark, options: RunOptions, workers: int, engine: str) -> TableSpec:
    """The tables of a benchmark's question, which are generated if they do not exist.

    There is no warning of few row groups: only tables with few rows have them, which the generator decides. The tables
    have no fingerprint: their paths name benchmark, size and version, and another release of Arrow writes other bytes.
    """
    question = benchmark.question(options.question or "")
    left, right = map(str, benchmark.make(options, (question.left, question.right)))
    spec = plan_tables(left, right, question.left_on, question.right_on, workers, engine, options.columns)
    left_side, right_side = (replace(side, fingerprint="") for side in (spec.left, spec.right))
    return replace(
        spec, left=left_side, right=right_side, warnings=(), benchmark=benchmark.name, question=question.name
    )


def _choose_distribution(options: RunOptions, workload: SyntheticSpec | TableSpec, workers: int) -> Distribution:
    if options.distribution == SHUFFLE:
        return Distribution()
    how, shuffle_option = How(options.how), option_needing_shuffle(options)
    if not data_plane(options.exchange).broadcast:
        shuffle_option = f"--exchange {options.exchange}"
    return choose_distribution(options.distribution, how, workers, side_bytes(workload, how), without=shuffle_option)


def _new_result_folder(options: RunOptions) -> str | None:
    if options.write_result is None:
        return None
    folder = Path(options.write_result).expanduser().absolute()
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"--write-result: the folder {folder} is not empty; name a new one")
    above = (path for path in (folder, *folder.parents) if os.path.lexists(path) and not path.is_dir())
    if blocking := next(above, None):
        raise UsageError(f"--write-result {folder}: {blocking} is not a folder; name a new one")
    return str(folder)
