"""A cluster that already runs: nothing is started, nothing is ended."""

from __future__ import annotations

from pathlib import Path

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

    def exited(self) -> list[Exited]:
        """Unknown: the processes are not ours."""
        return []

    def stop(self, *, gently: bool) -> None:
        """Nothing: the cluster goes on."""
