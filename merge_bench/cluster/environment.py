"""The environment of the cluster's processes: the config's variables, and those that a fair measurement needs."""

from __future__ import annotations

from collections.abc import Mapping

from merge_bench.config.allowed_transports import UCX_PORTS, allowed, handles_errors, reaches_peers
from merge_bench.config.ucx_info import find_installed
from merge_bench.errors import Caution
from merge_bench.merge.exchange import data_plane

SCHEDULER_ROUTES = "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES"
# These keep Dask's own background work from disturbing the measurement.
DASK = {
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
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS",
    "POLARS_MAX_THREADS", "RAYON_NUM_THREADS",
)  # fmt: skip
LOOPBACK = "lo"
OPEN_PORT = "ucx-port"
# Only these variables of the driver's environment reach other hosts: UCX's settings, and which libraries are loaded.
FORWARDED_PREFIXES = ("UCX_", "UCXPY_", "UCXX_")
FORWARDED = ("LD_LIBRARY_PATH", "RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY", "MERGE_BENCH_UCX")


def forwarded(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of the driver's environment that processes on other hosts get."""
    return {name: v for name, v in environ.items() if name.startswith(FORWARDED_PREFIXES) or name in FORWARDED}


def ucx_settings(
    variables: Mapping[str, str], *, hosts: int, exchange: str, protocol: str, error_handling: bool
) -> dict[str, str]:
    """UCX's settings that the launcher chooses, apart from the devices; config and environment have precedence.

    UCX's tcp lets whoever can connect write to a worker's memory. Workers on one host need it only where shared memory
    does not connect them. Between `hosts`, its ports are in a range that a firewall can know.
    `variables`: the environment with the config.
    """
    if hosts > 1:
        return {"UCX_TCP_PORT_RANGE": UCX_PORTS}
    if not data_plane(exchange).endpoints or protocol == "ucx" or (error_handling and not handles_errors(variables)):
        return {}
    installed = find_installed(variables.get("MERGE_BENCH_UCX", "auto"), variables)
    return {"UCX_TLS": "^tcp"} if installed is not None and reaches_peers(installed.transports) else {}


def open_port(variables: Mapping[str, str], interface: str | None) -> Caution | None:
    """A warning if workers on one host, which get these `variables`, listen with UCX's tcp on `interface`."""
    if "tcp" not in allowed(variables.get("UCX_TLS", "all")):
        return None
    who = "every user of this machine" if interface in (None, LOOPBACK) else f"whoever can connect to {interface}"
    return Caution(
        OPEN_PORT,
        f"each worker listens on a TCP port of UCX, which asks for no password: {who} can write to its memory",
        "let shared memory connect the workers, and leave tcp out (UCX_TLS=^tcp), or have no other users there",
    )


def process_environment(
    config: Mapping[str, str], surroundings: Mapping[str, str], *, threads: int | str, ucx: Mapping[str, str]
) -> dict[str, str]:
    """The variables of `config`, and those that neither it nor `surroundings` set and that a fair measurement needs.

    `threads`: the worker's share of the cores, or a placeholder. `ucx`: `ucx_settings`, and ``UCX_NET_DEVICES``,
    without which UCX would use every network interface, even on one host.
    """
    defaults = {**DASK, **dict.fromkeys(THREAD_COUNTS, str(threads)), **ucx}
    defaults["RAPIDS_NO_INITIALIZE"] = "True"
    defaults["PYTHONUNBUFFERED"] = "1"  # what UCX prints must be in the log when the process is killed
    # Polars' allocator keeps the pages of one iteration's result for the next one: touching new pages is slow.
    defaults["_RJEM_MALLOC_CONF"] = "dirty_decay_ms:-1,muzzy_decay_ms:-1"
    return {**{name: value for name, value in defaults.items() if name not in surroundings}, **config}
