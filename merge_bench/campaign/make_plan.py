"""Makes the plan and the cluster settings from the resolved options, and refuses what cannot work."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from merge_bench.campaign import choose_distribution, require_transport
from merge_bench.campaign.count_tables import count_tables
from merge_bench.campaign.library_check import check_libraries
from merge_bench.campaign.questions import plan_question
from merge_bench.cluster import dask_settings
from merge_bench.cluster.base import ClusterSettings
from merge_bench.cluster.dask_commands import open_port, ucx_settings
from merge_bench.cluster.hosts import HostSpec, count_workers, place
from merge_bench.cluster.launchers import choose, choose_kind, launchers, leftovers
from merge_bench.cluster.scheduler_client import count_running
from merge_bench.config.files import open_regular
from merge_bench.config.installation import how_to_set_up
from merge_bench.config.options import RunOptions
from merge_bench.config.reader import ConfigFile
from merge_bench.config.trust import REMEDY, process_environment
from merge_bench.errors import Caution, UsageError
from merge_bench.host import gpu, network
from merge_bench.host.memory import available_bytes, usable_cores
from merge_bench.merge import engines
from merge_bench.merge.engines import Description
from merge_bench.merge.engines.base import DASK_JOINS, How
from merge_bench.merge.plan import Plan, check_fits
from merge_bench.merge.workload import BENCHMARKS
from merge_bench.merge.workload.synthetic import KEY, SyntheticSpec
from merge_bench.merge.workload.tables import TableSpec

MESSAGE_BYTES = 32 << 20
MESSAGE_BYTES_ACROSS = 4 << 20  # with long messages, peers that share a link take turns, and the last one waits
SLOW_PIPELINE = Caution(
    "pipeline-on-one-host",
    "on a single host, a merge is usually slower with --pipeline on, because the same cores also have to move the data",
    "use --pipeline off",
)


@dataclass(frozen=True)
class Prepared:
    """What a run needs to begin."""

    plan: Plan
    settings: ClusterSettings
    options: RunOptions
    warnings: tuple[Caution, ...] = ()


def check_options(options: RunOptions) -> None:
    """Refuse options that never work together; nothing about hosts, tables or a running cluster is looked up.

    Raises
    ------
    UsageError
        One sentence naming the option that is wrong.
    """
    launcher = choose_kind(options, os.environ)
    if not launcher.owns_processes and options.interface and not options.source("interface").startswith("environment"):
        raise UsageError(
            "--interface cannot be used with a running cluster, whose interface is fixed; omit --interface"
        )
    refuse_more_launches(launcher.name, options.launches)
    if launcher.owns_processes and not launcher.starts_here:
        _protocol(options, others_connect=True)
    if options.workload == "synthetic":
        _check_synthetic_keys(options)
    engine = _engine(options, gpu.gpu_count(), here=False)
    _how(options)
    _pipeline(options, engine)
    _runtime_filter(options, engine)
    _timeline(options)
    choose_distribution.check(options)
    _required(options, options.workers or 2)


def prepare(options: RunOptions, config: ConfigFile | None, *, count_rows: bool = True) -> Prepared:
    """Check the options, which passed `check_options`, against this machine, and make the plan.

    `count_rows`: whether to count the result's rows of real tables, for which their keys are read.

    Raises
    ------
    UsageError
        One sentence naming the option that is wrong.
    """
    launcher, hosts = choose(options, os.environ)
    _refuse_other_users(options, hosts)
    existing = not launcher.owns_processes
    environment = {} if config is None else process_environment(config, trusted=options.trust_config)
    seen = max((host.gpus or 0 for host in hosts), default=0) or gpu.gpu_count()
    engine, exchange = _engine(options, seen, here=launcher.starts_here), options.exchange
    gpus = seen if engine.device_memory else 0
    if engine.device_memory:
        _check_order({**os.environ, **environment})
    if gpus:  # an unknown host is assumed to be like this one; the launcher asks it later
        hosts = tuple(host if host.gpus is not None else replace(host, gpus=gpus, assumed=True) for host in hosts)
    workers = _workers(options, gpus, hosts, existing=existing)
    others_connect = bool(hosts) or (launcher.starts_here and _leaves_loopback(options.interface))
    protocol = "tcp" if existing and options.protocol == "auto" else _protocol(options, others_connect=others_connect)
    if not existing:
        dask_settings.check(protocol=protocol, dask_frames=exchange == "dask")
    per_gpu = options.workers_per_gpu
    most = max((len(each.workers) for each in place(hosts, workers, per_gpu)), default=workers)
    workload = _workload(options, workers, engine.name)
    distribution = choose_distribution.choose(options, workload, workers)
    warnings = workload.warnings if isinstance(workload, TableSpec) else ()
    if left := leftovers(options, os.environ):
        warnings += (left,)
    plan = Plan(
        workload=workload,
        workers=workers,
        iterations=options.timed_iterations,
        warmup=options.warmup,
        launches=options.launches,
        engine=engine.name,
        exchange=exchange,
        protocol=protocol,
        verify=options.verify,
        timeout=options.timeout,
        seed=options.seed,
        how=How(options.how),
        distribution=distribution,
        rows_per_chunk=options.chunk if isinstance(workload, SyntheticSpec) else None,
        error_handling=options.error_handling == "peer",
        message_bytes=options.message_size or (MESSAGE_BYTES_ACROSS if len(hosts) > 1 else MESSAGE_BYTES),
        link_rounds=options.link_rounds,
        check_link=options.check_link,
        shuffle=options.shuffle,
        pipeline=_pipeline(options, engine) and workers > 1,
        stores=options.stores,
        runtime_filter=_runtime_filter(options, engine),
        threads=max(1, usable_cores() // most),
        require_transport=_required(options, workers),
        timeline=_timeline(options),
        write_result=_result_folder(options),
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
        ucx={} if existing else launcher_ucx(options, {**os.environ, **environment}, hosts=len(hosts)),
    )
    if settings.ssh_config:
        open_regular(settings.ssh_config).close()  # ssh itself says little about a file that it cannot read
    if launcher.starts_here:
        _check_gpus(workers, gpus, per_gpu)
        check_fits(plan, available_bytes(), workers, socket.gethostname())
        check_libraries(environment, os.environ)
        if exchange == "ucx":
            require_transport.check_machine(plan.require_transport, {**os.environ, **environment}, workers)
    if count_rows and isinstance(workload, TableSpec):
        warnings = (*count_tables(workload, workers, How(options.how), distribution.sent), *warnings)
    if plan.pipeline and launcher.starts_here:
        warnings += (SLOW_PIPELINE,)
    if not existing and protocol != "tls":
        warnings += (open_dask_port(protocol, everyone=not others_connect),)
    if not existing and len(hosts) < 2 and "ucx" in (exchange, protocol):
        port = open_port(
            {**settings.ucx, **os.environ, **environment}, options.interface or ("its host" if hosts else None)
        )
        warnings += (port,) if port else ()
    return Prepared(plan, settings, options, warnings)


def open_dask_port(protocol: str, *, everyone: bool) -> Caution:
    """The warning for ports of Dask that ask for no certificate; `everyone`: they are on loopback."""
    who = "every user of this machine" if everyone else "anyone who can connect to them"
    return Caution(
        "dask-ports",
        f"the ports of scheduler and workers speak {protocol} and ask for no certificate: {who} can run code as you",
        "use --protocol tls, or have no other users there",
    )


def launcher_ucx(options: RunOptions, variables: Mapping[str, str], *, hosts: int) -> dict[str, str]:
    """`ucx_settings` for these options."""
    return ucx_settings(
        variables, hosts=hosts, exchange=options.exchange, protocol=options.protocol,
        error_handling=options.error_handling == "peer",
    )  # fmt: skip


def _refuse_other_users(options: RunOptions, hosts: Sequence[HostSpec]) -> None:
    """Refuse hosts of another user that a config names: this machine unpickles what processes there send."""
    user = next((host.name for host in hosts if "@" in host.name), None)
    if user and options.source("hosts").startswith("config") and not options.trust_config:
        where = options.source("hosts").removeprefix("config ")
        raise UsageError(f"{where}: MERGE_BENCH_HOSTS has a host with a user name, {user}@...; {REMEDY}")


def _check_gpus(workers: int, gpus: int, per_gpu: int) -> None:
    if gpus and workers > gpus * per_gpu:
        raise UsageError(
            f"--workers {workers} with --workers-per-gpu {per_gpu} needs {-(-workers // per_gpu)} GPUs, but only"
            f" {gpus} can be used; use --workers-per-gpu {-(-workers // gpus)} to share GPUs"
        )


def _check_order(environ: Mapping[str, str]) -> None:
    for name, order in gpu.IN_ORDER.items():
        if environ.get(name, order) != order:
            raise UsageError(
                f"with {name}={environ[name]}, GPU numbers differ from those of nvidia-smi; unset it, or set it to"
                f" {order}"
            )


def refuse_more_launches(launcher: str, launches: int) -> None:
    """A running cluster cannot be launched again.

    Raises
    ------
    UsageError
        If it would have to be.
    """
    if launches > 1 and not launchers()[launcher].owns_processes:
        raise UsageError(
            "with a running cluster, use one config and one size, and omit --launches, --blocks and --repetitions"
        )


def _leaves_loopback(interface: str | None) -> bool:
    """Whether what binds to this machine's `interface` can be reached from others; None stands for loopback."""
    if interface is None:
        return False
    try:
        return not network.is_loopback(network.address(interface))
    except LookupError as error:
        raise UsageError(f"--interface: {error}") from error


def _protocol(options: RunOptions, *, others_connect: bool) -> str:
    """The protocol of Dask's messages: encrypted, unless another one or --insecure is given.

    `others_connect`: other machines can reach the ports. On loopback Dask's own exchange is the exception of `auto`:
    it sends the rows in these messages, and would measure the encryption.
    """
    asked = options.protocol
    if asked == "auto" and dask_settings.requires_encryption():
        return "tls"
    if asked == "auto":
        open_anyway = options.insecure if others_connect else options.exchange == "dask"
        return "tcp" if open_anyway else "tls"
    if others_connect and asked != "tls" and not options.insecure:
        raise UsageError(
            f"--protocol {asked} is not encrypted: anyone able to connect can run code here; use --protocol tls, or"
            " add --insecure on a trusted network"
        )
    return asked


def _engine(options: RunOptions, gpus: int, *, here: bool) -> Description:
    """The engine. Workers on other machines check for a GPU and its libraries themselves, once they are up."""
    name, dask = options.engine, options.exchange == "dask"
    if name == "auto":
        return engines.automatic(gpus=gpus > 0, dask=dask)
    engine = engines.describe(name)
    if dask and engine.dask_backend is None:
        able = (each.name for each in engines.descriptions() if each.dask_backend is not None)
        raise UsageError(f"--exchange dask does not support --engine {name}; use --engine {' or '.join(able)}")
    if engine.device_memory and here and not gpus:
        raise UsageError(
            f"--engine {name}, --memory cuda and --backend nccl need an NVIDIA GPU, but none is visible on this host"
        )
    if engine.device_memory and here and engine.missing is not None:
        raise UsageError(
            f"--engine {name}, --memory cuda and --backend nccl each need the package {engine.missing}; run:"
            f" {how_to_set_up('cu13')}, or with a CUDA 12 driver: {how_to_set_up('cu12')}"
        )
    return engine


def _how(options: RunOptions) -> None:
    how = How(options.how)
    if options.exchange == "dask" and how not in DASK_JOINS:
        able = ", ".join(each.value for each in DASK_JOINS)
        raise UsageError(f"--exchange dask does not support --how {how.value}; use --how {able} or --exchange ucx")
    if options.runtime_filter != "off" and how.keeps_left and how.keeps_right:
        raise UsageError(
            f"--runtime-filter on drops rows that have no match, and --how {how.value} keeps those of both tables; use"
            " --runtime-filter off"
        )


def _pipeline(options: RunOptions, engine: Description) -> bool:
    if options.pipeline == "off":
        return False
    if options.exchange == "dask":
        raise UsageError(
            "--pipeline on needs --exchange ucx; with --exchange dask, Dask schedules the steps of the merge"
        )
    if not engine.in_parts:
        raise UsageError(f"--engine {engine.name} cannot overlap phases; use --pipeline off")
    return True


def _runtime_filter(options: RunOptions, engine: Description) -> bool:
    if options.runtime_filter == "off":
        return False
    if options.exchange == "dask":
        raise UsageError("--exchange dask has no runtime filter; use --runtime-filter off")
    if engine.device_memory:
        raise UsageError(f"--engine {engine.name} has no runtime filter; use --runtime-filter off")
    return True


def _timeline(options: RunOptions) -> str:
    asked = options.timeline
    if options.exchange == "dask":
        if asked == "on":
            raise UsageError("--timeline on needs --exchange ucx; Dask schedules the steps of --exchange dask")
        return "off"
    return asked


def _result_folder(options: RunOptions) -> str | None:
    if options.write_result is None:
        return None
    if options.verify == "off":
        raise UsageError("--write-result writes a table that was verified; omit --verify off")
    folder = Path(options.write_result).expanduser().absolute()
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"--write-result: the folder {folder} is not empty; name a new one")
    above = (each for each in (folder, *folder.parents) if os.path.lexists(each) and not each.is_dir())
    if blocking := next(above, None):
        raise UsageError(f"--write-result {folder}: {blocking} is not a folder; name a new one")
    return str(folder)


def _workers(options: RunOptions, gpus: int, hosts: Sequence[HostSpec], *, existing: bool) -> int:
    if options.workers is not None:
        return options.workers
    if existing:
        return count_running(options.scheduler_address, options.scheduler_file, options.start_timeout)
    if hosts:
        return count_workers(hosts, options.workers_per_gpu)
    return gpus * options.workers_per_gpu or min(2, usable_cores())


def _required(options: RunOptions, workers: int) -> tuple[str, ...]:
    names = options.require_transport
    require_transport.check_names(names)
    if names and options.exchange != "ucx":
        raise UsageError(
            "--require-transport needs --exchange ucx; --exchange dask has no UCX endpoints between workers"
        )
    if names and workers < 2:
        raise UsageError(
            "--require-transport needs at least two workers, because it checks pairs of workers; use --workers 2 or"
            " more"
        )
    return names


def _check_synthetic_keys(options: RunOptions) -> None:
    if options.columns:
        raise UsageError("--columns cannot be used with synthetic tables; --payload-columns sets how many they have")
    keys = options.on or options.left_on
    if keys and tuple(keys) != (KEY,):
        option = "--on" if options.on else "--left-on"
        raise UsageError(
            f"{option} {','.join(keys)} cannot be used with synthetic tables, whose key column is always"
            f" {KEY!r}; omit {'--on' if options.on else '--left-on and --right-on'}"
        )


def _workload(options: RunOptions, workers: int, engine: str) -> SyntheticSpec | TableSpec:
    if options.workload == "synthetic":
        return SyntheticSpec(
            rows=options.chunk * workers,
            fraction=options.frac_match,
            seed=options.seed,
            payload_columns=options.payload_columns,
            zipf=options.skew,
        )
    from merge_bench.merge.workload.tables import plan_tables

    benchmark = BENCHMARKS.get(options.workload)
    if benchmark is None:
        keys = options.on or ()
        left_on, right_on = options.left_on or keys, options.right_on or keys
        assert options.left is not None
        assert options.right is not None
        return plan_tables(options.left, options.right, left_on, right_on, workers, engine, options.columns)
    return plan_question(benchmark, options, workers, engine)
