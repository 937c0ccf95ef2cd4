"""The environment that cluster processes run under: the config's variables, and what a fair measurement needs."""

from __future__ import annotations

from collections.abc import Mapping

SCHEDULER_ROUTES = "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES"
# Dask's own machinery stays out of the way while measuring.
DASK = {
    "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "False",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    # Dask's HTTP servers cannot be left out, but need serve nothing: one of their pages can retire workers.
    SCHEDULER_ROUTES: "[]",
    "DASK_DISTRIBUTED__WORKER__HTTP__ROUTES": "[]",
    "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "False",
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
    "DASK_DISTRIBUTED__SCHEDULER__ACTIVE_MEMORY_MANAGER__START": "False",
    # Every event loop asks itself 50 times a second whether it is late; each time takes a core from who measures.
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__ADMIN__TICK__LIMIT": "1h",
    "DASK_DISTRIBUTED__P2P__STORAGE__DISK": "False",
}
THREAD_COUNTS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS",
    "POLARS_MAX_THREADS", "RAYON_NUM_THREADS",
)  # fmt: skip
LOOPBACK = "lo"


# Of the driver's own environment only these reach other hosts: UCX's settings, and which libraries are loaded.
FORWARDED_PREFIXES = ("UCX_", "UCXPY_", "UCXX_")
FORWARDED = ("LD_LIBRARY_PATH", "RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY", "MERGE_BENCH_UCX")


def forwarded(environ: Mapping[str, str]) -> dict[str, str]:
    """What processes on other hosts get of the driver's environment."""
    return {name: v for name, v in environ.items() if name.startswith(FORWARDED_PREFIXES) or name in FORWARDED}


def launcher_defaults(
    config: Mapping[str, str], surroundings: Mapping[str, str], *, threads: int | str, net_devices: str = LOOPBACK
) -> dict[str, str]:
    """What the launcher sets for a worker unless the config or the surroundings do.

    `threads`: the worker's share of the cores, or a word for it. `net_devices`: what UCX may use; its own choice would
    include every network interface, even on one host.
    """
    defaults = {**DASK, **dict.fromkeys(THREAD_COUNTS, str(threads)), "UCX_NET_DEVICES": net_devices}
    defaults["RAPIDS_NO_INITIALIZE"] = "True"
    defaults["PYTHONUNBUFFERED"] = "1"  # what UCX prints must be in the log when the process is killed
    # Polars' allocator keeps the pages of one iteration's result for the next one's: first touch is dear.
    defaults["_RJEM_MALLOC_CONF"] = "dirty_decay_ms:-1,muzzy_decay_ms:-1"
    return {name: value for name, value in defaults.items() if name not in config and name not in surroundings}
