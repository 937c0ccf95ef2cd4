"""The environment that cluster processes run under: the config's variables, and what a fair measurement needs."""

from __future__ import annotations

from collections.abc import Mapping

# Dask's own machinery stays out of the way while measuring.
DASK = {
    "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "False",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "False",
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
    "DASK_DISTRIBUTED__SCHEDULER__ACTIVE_MEMORY_MANAGER__START": "False",
    "DASK_DISTRIBUTED__ADMIN__TICK__LIMIT": "1h",
    "DASK_DISTRIBUTED__P2P__STORAGE__DISK": "False",
}
THREAD_COUNTS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS",
    "POLARS_MAX_THREADS", "RAYON_NUM_THREADS",
)  # fmt: skip
LOOPBACK = "lo"


def launcher_defaults(config: Mapping[str, str], surroundings: Mapping[str, str], *, threads: int) -> dict[str, str]:
    """What the launcher sets for a worker unless the config or the surroundings do.

    `threads`: the worker's share of the cores. On one host UCX is kept on the loopback device; its own choice would
    include every network interface.
    """
    defaults = {**DASK, **dict.fromkeys(THREAD_COUNTS, str(threads)), "UCX_NET_DEVICES": LOOPBACK}
    defaults["RAPIDS_NO_INITIALIZE"] = "True"
    # Polars' allocator keeps the pages of one iteration's result for the next one's: first touch is dear.
    defaults["_RJEM_MALLOC_CONF"] = "dirty_decay_ms:-1,muzzy_decay_ms:-1"
    return {name: value for name, value in defaults.items() if name not in config and name not in surroundings}
