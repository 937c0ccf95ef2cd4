"""What is known of machine, UCX and run before anything is launched."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from merge_bench.campaign.prepare import Prepared
from merge_bench.config import tls
from merge_bench.config.options import BY_KEY, OPTIONS
from merge_bench.config.ucx_info import locate, read_installed
from merge_bench.errors import UsageError
from merge_bench.tune.pruning import Situation

INFINIBAND = Path("/sys/class/infiniband")


def look(prepared: Prepared, given: Mapping[str, object]) -> Situation:
    """The situation of a baseline; `given`: options of the command line by key, None for those that were not given."""
    plan, settings = prepared.plan, prepared.settings
    variables = {**_surroundings(), **settings.environment}
    try:
        installed = read_installed(locate(variables.get("MERGE_BENCH_UCX", "auto"), variables))
        inherited = {name for setting in installed.settings.values() for name in setting.inherits}
        known, version = frozenset({*installed.settings, *inherited}), installed.version
    except UsageError:
        known, version = None, None
    over_ucx = plan.exchange == "dask" and plan.protocol == "ucx"
    peer = plan.error_handling or over_ucx
    several = len(settings.hosts) > 1
    devices = len(list(INFINIBAND.iterdir())) if INFINIBAND.is_dir() else 0
    shared = tls.selected(variables.get("UCX_TLS", "all")) & tls.SHARED_MEMORY
    holds = {
        "one-host": not several, "several-hosts": several, "gpu": settings.gpus > 0, "no-gpu": settings.gpus == 0,
        "infiniband": devices > 0, "several-devices": devices > 1, "tcp": several or peer or not shared,
        "data-plane": plan.exchange == "ucx", "dask-over-ucx": over_ucx, "peer-error-handling": peer,
    }  # fmt: skip
    options = {
        BY_KEY[key].variable: value
        for key, value in {
            "error_handling": "peer" if plan.error_handling else "none", "rmm_pool_size": settings.rmm_pool_bytes,
            "message_size": plan.message_bytes, "protocol": plan.protocol, "shuffle": plan.shuffle,
            "engine": plan.engine, "exchange": plan.exchange, "interface": settings.interface,
        }.items()
    }  # fmt: skip
    fixed = frozenset(option.variable for option in OPTIONS if given.get(option.key) is not None)
    conditions = frozenset(name for name, so in holds.items() if so)
    return Situation(conditions, version, known, variables, options, fixed)


def _surroundings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(("UCX", "MERGE_BENCH_", "RAPIDS_"))}
