"""The environment of the cluster's processes: the config's variables, and those that a fair measurement needs."""

from __future__ import annotations

from collections.abc import Mapping

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
# Only these variables of the driver's environment reach other hosts: UCX's settings, and which libraries are loaded.
FORWARDED_PREFIXES = ("UCX_", "UCXPY_", "UCXX_")
FORWARDED = ("LD_LIBRARY_PATH", "RAPIDS_LIBUCX_PREFER_SYSTEM_LIBRARY", "MERGE_BENCH_UCX")


def forwarded(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of the driver's environment that processes on other hosts get."""
    return {name: v for name, v in environ.items() if name.startswith(FORWARDED_PREFIXES) or name in FORWARDED}


def process_environment(
    config: Mapping[str, str], surroundings: Mapping[str, str], *, threads: int | str, net_devices: str
) -> dict[str, str]:
    """The variables of `config`, and those that neither it nor `surroundings` set and that a fair measurement needs.

    `threads`: the worker's share of the cores, or a placeholder. `net_devices`: what UCX may use; without it UCX would
    use every network interface, even on one host.
    """
    defaults = {**DASK, **dict.fromkeys(THREAD_COUNTS, str(threads)), "UCX_NET_DEVICES": net_devices}
    defaults["RAPIDS_NO_INITIALIZE"] = "True"
    defaults["PYTHONUNBUFFERED"] = "1"  # what UCX prints must be in the log when the process is killed
    # Polars' allocator keeps the pages of one iteration's result for the next one: touching new pages is slow.
    defaults["_RJEM_MALLOC_CONF"] = "dirty_decay_ms:-1,muzzy_decay_ms:-1"
    return {**{name: value for name, value in defaults.items() if name not in surroundings}, **config}
