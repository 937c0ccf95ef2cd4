"""A cluster that already runs: nothing is started, nothing is ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from merge_bench.cluster.base import ClusterSettings, Launcher, LauncherKind, SchedulerAccess
from merge_bench.errors import UsageError

if TYPE_CHECKING:
    from merge_bench.merge.plan import Plan


class ExistingCluster(Launcher):
    """The launcher of a running cluster, which `--scheduler-address` or `--scheduler-file` names."""

    name = "existing"
    owns_processes = False

    def start_processes(
        self, plan: Plan, settings: ClusterSettings, log_folder: Path, log_prefix: str
    ) -> SchedulerAccess:
        """Return how to reach the running scheduler; raises UsageError if the scheduler's file does not exist."""
        file = Path(settings.scheduler_file) if settings.scheduler_file else None
        if file and not file.exists():
            raise UsageError(f"--scheduler-file {file}: there is no such file")
        return SchedulerAccess(address=settings.scheduler_address, scheduler_file=file)


LAUNCHER = LauncherKind(
    name=ExistingCluster.name,
    help="A running Dask cluster, found by the address of its scheduler; it is neither started nor stopped.",
    place=5,
    needs=("scheduler_address", "scheduler_file"),
    owns_processes=ExistingCluster.owns_processes,
    make=ExistingCluster,
)
