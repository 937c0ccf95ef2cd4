"""A cluster that already runs: nothing is started, nothing is ended."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from distributed import Client

from merge_bench.errors import UsageError
from merge_bench.launch.base import Access, ClusterSettings, Command, Exited
from merge_bench.plan import Plan


class ExistingCluster:
    """Reached through `--scheduler-address` or `--scheduler-file`."""

    name = "existing"
    owns_processes = False

    def commands(self, plan: Plan, settings: ClusterSettings) -> list[Command]:
        """None."""
        return []

    def start(self, plan: Plan, settings: ClusterSettings, logs: Path, prefix: str) -> Access:
        """Nothing to start: how to reach the scheduler."""
        file = Path(settings.scheduler_file) if settings.scheduler_file else None
        return Access(address=settings.scheduler_address, scheduler_file=file)

    def placed(self) -> Mapping[str, str]:
        """Unknown: nothing was started."""
        return {}

    def exited(self) -> list[Exited]:
        """Unknown: the processes are not ours."""
        return []

    def tail(self, role: str) -> str:
        """None: the logs are not ours."""
        return ""

    def stop(self) -> None:
        """Nothing: the cluster goes on."""


def count_running(address: str | None, scheduler_file: str | None) -> int:
    """How many workers a running cluster has.

    Raises
    ------
    UsageError
        If it cannot be reached, or has none.
    """
    if scheduler_file and not Path(scheduler_file).exists():
        raise UsageError(f"--scheduler-file {scheduler_file}: there is no such file")
    try:
        with Client(address=address, scheduler_file=scheduler_file, timeout=10, set_as_default=False) as client:
            count = len(client.scheduler_info(n_workers=-1)["workers"])
    except (OSError, TimeoutError, ValueError) as error:
        raise UsageError(f"no scheduler answers at {address or scheduler_file}: {error}") from error
    if not count:
        raise UsageError(f"the cluster at {address or scheduler_file} has no workers")
    return count
