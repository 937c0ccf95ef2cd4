"""A cluster that already runs: nothing is started, nothing is ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from merge_bench.cluster.base import Access, ClusterSettings, Launcher, LauncherKind
from merge_bench.errors import UsageError

if TYPE_CHECKING:
    from merge_bench.merge.plan import Plan


class ExistingCluster(Launcher):
    """Reached through `--scheduler-address` or `--scheduler-file`."""

    name = "existing"
    owns_processes = False

    def start(self, plan: Plan, settings: ClusterSettings, logs: Path, prefix: str) -> Access:
        """Start nothing; gives how to reach the scheduler. Raises UsageError if the scheduler's file does not exist."""
        file = Path(settings.scheduler_file) if settings.scheduler_file else None
        if file and not file.exists():
            raise UsageError(f"--scheduler-file {file}: there is no such file")
        return Access(address=settings.scheduler_address, scheduler_file=file)


LAUNCHER = LauncherKind(
    name=ExistingCluster.name,
    help="A running Dask cluster, found by the address of its scheduler; it is neither started nor stopped.",
    place=5,
    needs=("scheduler_address", "scheduler_file"),
    owns_processes=ExistingCluster.owns_processes,
    make=ExistingCluster,
)
