"""A cluster that already runs: nothing is started, nothing is ended."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from merge_bench.cluster.kind import LauncherKind

if TYPE_CHECKING:
    from merge_bench.cluster.base import Access, Caution, ClusterSettings, Command, Exited
    from merge_bench.merge.plan import Plan


class ExistingCluster:
    """Reached through `--scheduler-address` or `--scheduler-file`."""

    name = "existing"
    owns_processes = False

    def commands(self, plan: Plan, settings: ClusterSettings) -> list[Command]:
        """None."""
        return []

    def start(self, plan: Plan, settings: ClusterSettings, logs: Path, prefix: str) -> Access:
        """Nothing to start: how to reach the scheduler."""
        from merge_bench.cluster.base import Access

        file = Path(settings.scheduler_file) if settings.scheduler_file else None
        return Access(address=settings.scheduler_address, scheduler_file=file)

    def placed(self) -> Mapping[str, str]:
        """Unknown: nothing was started."""
        return {}

    def cautions(self, settings: ClusterSettings) -> list[Caution]:
        """None: whoever started the cluster chose its network."""
        return []

    def exited(self) -> list[Exited]:
        """Unknown: the processes are not ours."""
        return []

    def tail(self, role: str) -> str:
        """None: the logs are not ours."""
        return ""

    def stop(self) -> None:
        """Nothing: the cluster goes on."""


LAUNCHER = LauncherKind(
    name=ExistingCluster.name,
    help="A cluster that already runs, reached through its scheduler; nothing is started or ended.",
    place=5,
    needs=("scheduler_address", "scheduler_file"),
    owns_processes=ExistingCluster.owns_processes,
    make=ExistingCluster,
)
