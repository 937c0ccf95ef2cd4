"""A cluster that already runs: how many workers it has, and whether they have the config's environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from merge_bench.cluster.scheduler_client import ask, connected
from merge_bench.errors import UsageError

ANSWER_SECONDS = 10.0


def count_running(address: str | None, scheduler_file: str | None, seconds: float = ANSWER_SECONDS) -> int:
    """How many workers a running cluster has; its scheduler answers within `seconds`, and never gets more than 10.

    Raises
    ------
    UsageError
        If it cannot be reached, or has none.
    """
    if scheduler_file and not Path(scheduler_file).exists():
        raise UsageError(f"--scheduler-file {scheduler_file}: there is no such file")
    limit = min(seconds, ANSWER_SECONDS)
    try:
        with connected(address, scheduler_file, seconds=limit) as client:
            count = len(ask(client, client.scheduler.identity, seconds=limit)["workers"])
    except (OSError, TimeoutError, ValueError) as error:
        raise UsageError(f"no scheduler answers at {address or scheduler_file}: {error}") from error
    if not count:
        raise UsageError(
            f"the cluster at {address or scheduler_file} has no workers; --workers N waits for N of them, up to"
            " --start-timeout"
        )
    return count


def refuse_unmatched(facts: list[dict[str, Any]], environment: Mapping[str, str]) -> None:
    """Refuse a running cluster whose workers do not have the config's environment: UCX reads it once per process.

    Raises
    ------
    UsageError
        Naming the first variable that differs.
    """
    for rank, fact in enumerate(facts):
        for name, value in environment.items():
            if not name.startswith(("UCX", "RAPIDS")):
                continue
            found = fact["environment"].get(name)
            if found != value:
                has = f"has {name}={found}" if found is not None else f"has no {name}"
                raise UsageError(
                    f"the config sets {name}={value}, but the running cluster's rank {rank} on {fact['host']} {has};"
                    " UCX reads its settings once per process, so start the cluster under this config"
                )
