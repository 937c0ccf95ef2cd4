"""Command lines and environment of Dask's processes, the same for every launcher.

The environment is the config's variables, and those that a fair measurement needs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from merge_bench.cluster.base import SCHEDULER_FILE, START_DASK, ClusterSettings, ProcessCommand
from merge_bench.config.allowed_transports import (
    REGISTER_NO_MEMORY,
    UCX_PORTS,
    find_allowed_transports,
    includes_peer_shared_memory,
    shared_memory_handles_errors,
)
from merge_bench.config.ucx_info import find_installed_ucx
from merge_bench.errors import WarningMessage
from merge_bench.host.gpu import IN_ORDER
from merge_bench.host.pinning import WorkerPin
from merge_bench.merge.exchange import find_data_plane

if TYPE_CHECKING:
    from merge_bench.merge.plan import Plan

DASK = (sys.executable, "-P", "-m", "dask")
SCHEDULER = (*START_DASK, "dask_scheduler")
WORKER = (*START_DASK, "dask_worker")
PRELOAD = "merge_bench.cluster.preload"
DASHBOARD_ROUTES = ["distributed.http.statics", "distributed.http.scheduler.info"]
"""What the pages of Dask's dashboard need besides themselves: only routes that read."""
SCHEDULER_ROUTES = "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES"
# These keep Dask's own background work from disturbing the measurement.
DASK_VARIABLES = {
    "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "False",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    # Dask's HTTP servers cannot be turned off, but without routes they serve no page: one can retire workers.
    SCHEDULER_ROUTES: "[]",
    "DASK_DISTRIBUTED__WORKER__HTTP__ROUTES": "[]",
    "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "False",
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
    "DASK_DISTRIBUTED__SCHEDULER__ACTIVE_MEMORY_MANAGER__START": "False",
    # By default every event loop checks 50 times a second whether it is late, and takes a core from the measurement.
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__ADMIN__TICK__LIMIT": "1h",
    "DASK_DISTRIBUTED__P2P__STORAGE__DISK": "False",
}
THREAD_COUNTS = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS"),
    *("POLARS_MAX_THREADS", "RAYON_NUM_THREADS"),
)
LOOPBACK = "lo"
OPEN_PORT = "ucx-port"
# Only these variables of the driver's environment reach other hosts: UCX's settings, and which libraries are loaded.
FORWARDED_PREFIXES = ("UCX_", "UCXPY_", "UCXX_")
FORWARDED = ("LD_LIBRARY_PATH", "RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY", "MERGE_BENCH_UCX")


@dataclass(frozen=True)
class ProcessLocation:
    """Where Dask's processes run: a host, its scratch folder, an interface to bind to, and its RDMA ports."""

    host: str
    scratch: str
    interface: str
    address: str
    rdma_ports: tuple[str, ...] = ()

    def common_dask_options(self, plan: Plan, *, serve_dashboard: bool = False) -> tuple[str, ...]:
        """Return the options of every Dask process: how it finds the scheduler, and the interface it binds to.

        Dask serves HTTP even with --no-dashboard; it must do so on the same interface only.
        """
        bind = ("--interface", self.interface) if plan.protocol == "ucx" else ("--host", self.address)
        ca, cert, key = (f"{self.scratch}/{name}.pem" for name in ("ca", "cert", "key"))
        tls = ("--tls-ca-file", ca, "--tls-cert", cert, "--tls-key", key) if plan.protocol == "tls" else ()
        scheduler = ("--scheduler-file", f"{self.scratch}/{SCHEDULER_FILE}", "--protocol", plan.protocol)
        served = ("--dashboard" if serve_dashboard else "--no-dashboard", "--dashboard-address", f"{self.address}:0")
        return (*scheduler, *bind, *tls, *served, "--preload", PRELOAD)


def dask_process_commands(
    plan: Plan,
    settings: ClusterSettings,
    location: ProcessLocation,
    pins_by_worker: Mapping[int, WorkerPin],
    config_variables: Mapping[str, str],
    inherited_variables: Mapping[str, str],
    threads_per_worker: int | str,
) -> list[ProcessCommand]:
    """Return the commands of the workers in `pins_by_worker`, after the scheduler's command if worker 0 is among them.

    `pins_by_worker`: the cores and GPU of each worker, by its number. `inherited_variables`: the environment that the
    processes inherit.
    """

    def make_environment(rdma_ports: Sequence[str]) -> dict[str, str]:
        ucx = {**settings.ucx, "UCX_NET_DEVICES": ",".join([*rdma_ports, location.interface])}
        variables = process_environment(
            config_variables, inherited_variables, threads=threads_per_worker, ucx_settings=ucx
        )
        variables |= settings.ucx_selection_variables({**inherited_variables, **variables})
        # Without this variable Dask's scheduler leaves a folder in the temporary directory; it has no option for that.
        return {**variables, "DASK_TEMPORARY_DIRECTORY": location.scratch}

    workers = [
        worker_command(plan, settings, location, number, make_environment(pin.devices), pin)
        for number, pin in pins_by_worker.items()
    ]
    return (
        [scheduler_command(plan, settings, location, make_environment(location.rdma_ports)), *workers]
        if 0 in pins_by_worker
        else workers
    )


def scheduler_command(
    plan: Plan, settings: ClusterSettings, location: ProcessLocation, environment: Mapping[str, str]
) -> ProcessCommand:
    argv = (*SCHEDULER, "--port", "0", *location.common_dask_options(plan, serve_dashboard=settings.dask_dashboard))
    if settings.dask_dashboard:
        environment = {**environment, SCHEDULER_ROUTES: str(DASHBOARD_ROUTES)}
    return ProcessCommand("scheduler", location.host, argv, environment)


def worker_command(
    plan: Plan,
    settings: ClusterSettings,
    location: ProcessLocation,
    worker_number: int,
    environment: Mapping[str, str],
    worker_pin: WorkerPin,
) -> ProcessCommand:
    """Return the command of one Dask worker, which is `dask cuda worker` if `worker_pin` names a GPU.

    `dask cuda worker` makes no pool of device memory: the run's first step on a worker does, however the worker was
    started. A device memory limit of 0 keeps dask-cuda from moving data to the host when device memory is short; on a
    GPU without memory of its own dask-cuda refuses a limit, and moves no data by default.
    """
    limits = ("--nthreads", "1", "--memory-limit", "0", "--death-timeout", f"{settings.start_timeout:g}")
    argv = (
        *location.common_dask_options(plan),
        "--name",
        f"worker-{worker_number}",
        *limits,
        "--local-directory",
        location.scratch,
    )
    if worker_pin.gpu is None:
        # No nanny, which would restart a worker that died, and so hide the failure.
        argv = (*WORKER, *argv, "--nworkers", "1", "--no-nanny")
    else:
        # It has no --preload-nanny and needs none: it loads what --preload names in the nanny's process too.
        argv = (*DASK, "cuda", "worker", *argv, "--device-memory-limit", "0" if worker_pin.own_memory else "default")
        environment = {**environment, **IN_ORDER, "CUDA_VISIBLE_DEVICES": worker_pin.gpu}
    return ProcessCommand(f"worker-{worker_number}", location.host, argv, environment, worker_pin.cores)


def variables_for_other_hosts(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the driver's environment that processes on other hosts get."""
    return {name: v for name, v in environ.items() if name.startswith(FORWARDED_PREFIXES) or name in FORWARDED}


def default_ucx_settings(
    variables: Mapping[str, str], *, hosts: int, exchange: str, protocol: str, error_handling: bool
) -> dict[str, str]:
    """Return the UCX settings that a launcher adds where neither config nor environment sets them.

    Network devices are not among them. UCX's tcp lets everyone who can connect write to a worker's memory. Workers on
    one host need it only where shared memory does not connect them. Between `hosts`, its ports are in a range that a
    firewall can allow. Where no transport of the one host registers memory, UCX need not watch for memory that is
    freed: to patch the allocator takes each process 0.4 s of its start. `variables`: the environment with the config.
    """
    if hosts > 1:
        return {"UCX_TCP_PORT_RANGE": UCX_PORTS}
    if not find_data_plane(exchange).ucx and protocol != "ucx":
        return {}
    installed = find_installed_ucx(variables.get("MERGE_BENCH_UCX", "auto"), variables)
    if installed is None:
        return {}
    unconnected = error_handling and not shared_memory_handles_errors(variables)
    needs_tcp = protocol == "ucx" or unconnected or not includes_peer_shared_memory(installed.transports)
    settings = {} if needs_tcp else {"UCX_TLS": "^tcp"}
    if installed.transports and REGISTER_NO_MEMORY.issuperset(installed.transports):
        settings["UCX_MEM_EVENTS"] = "n"
    return settings


def open_port_warning(variables: Mapping[str, str], interface: str | None) -> WarningMessage | None:
    """Return a warning if workers with these variables would open UCX's TCP ports on `interface`, or None."""
    if "tcp" not in find_allowed_transports(variables.get("UCX_TLS", "all")):
        return None
    who = "every user of this machine" if interface in (None, LOOPBACK) else f"whoever can connect to {interface}"
    what = f"each worker listens on a TCP port of UCX, which asks for no password: {who} can write to its memory"
    remedy = "let shared memory connect the workers, and leave tcp out (UCX_TLS=^tcp), or have no other users there"
    return WarningMessage(OPEN_PORT, what, remedy)


def process_environment(
    config_variables: Mapping[str, str],
    inherited_variables: Mapping[str, str],
    *,
    threads: int | str,
    ucx_settings: Mapping[str, str],
) -> dict[str, str]:
    """Return the variables of a Dask process: the config's, and defaults for a fair measurement that nothing else sets.

    `inherited_variables`: the environment that the process inherits, whose variables get no default. `threads`: the
    number of threads of a worker, or a placeholder. `ucx_settings`: `default_ucx_settings`, and ``UCX_NET_DEVICES``,
    without which UCX would use every network interface, even on one host.
    """
    defaults = {**DASK_VARIABLES, **dict.fromkeys(THREAD_COUNTS, str(threads)), **ucx_settings}
    defaults["RAPIDS_NO_INITIALIZE"] = "True"
    defaults["PYTHONUNBUFFERED"] = "1"  # what UCX prints must be in the log when the process is killed
    # Polars' allocator keeps the pages of one iteration's result for the next one: touching new pages is slow.
    defaults["_RJEM_MALLOC_CONF"] = "dirty_decay_ms:-1,muzzy_decay_ms:-1"
    return {**{name: value for name, value in defaults.items() if name not in inherited_variables}, **config_variables}
