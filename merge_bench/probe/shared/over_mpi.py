"""What probes over MPI share: the choice of the mpirun, and a launch of ranks instead of a Dask cluster."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from merge_bench.probe.shared.base import Probe

if TYPE_CHECKING:
    from merge_bench.campaign.make_plan import PlannedRun
    from merge_bench.campaign.planned_launches import Job
    from merge_bench.campaign.progress import Progress
    from merge_bench.probe.ranks.mpirun import Mpi
    from merge_bench.records.writer import CampaignWriter


@dataclass(frozen=True, kw_only=True)
class OverMpi(Probe):
    """A measurement by ranks that mpirun starts; `mpirun_asked`: the value of ``--mpirun``."""

    iterations: int | None
    mpirun_asked: str | None = None

    def tool_library(self) -> str | None:
        """The libmpi of a tool that runs in the ranks, if there is one."""
        return None

    def mpi(self) -> Mpi:
        """The MPI that starts the ranks; raises as `mpirun.find_mpi`."""
        from merge_bench.probe.ranks import mpirun

        return mpirun.find_mpi(self.mpirun_asked, self.tool_library())

    def prepare(self, prepared: PlannedRun) -> PlannedRun:
        """The same, if this MPI can start ranks on the hosts; raises as `mpirun.check_hosts`."""
        from merge_bench.probe.ranks import mpirun

        mpirun.check_hosts(self.mpi(), prepared.settings)
        return prepared

    def commands(self, prepared: PlannedRun) -> list[str]:
        """The mpirun of the ranks; WORK and SCRATCH are known only when they start."""
        from merge_bench.cluster.host_agent_client import main_argv
        from merge_bench.probe.ranks import mpirun

        hosts = mpirun.placed(prepared.plan, prepared.settings)
        argv = main_argv("merge_bench.probe.ranks.rank_main", "WORK")
        words = mpirun.command(self.mpi(), hosts, prepared.settings, argv, "SCRATCH")
        return ["# ranks on " + ", ".join(f"{name} ({count})" for name, count in hosts), shlex.join(words)]

    def launch(self, job: Job, writer: CampaignWriter, progress: Progress, index: int) -> int:
        """Start ranks, measure, and end them; gives the exit status."""
        from merge_bench.campaign.launch import record_outcome
        from merge_bench.probe.ranks.launch import RankSession

        session = RankSession(job, writer, progress, index)
        with record_outcome(job, writer, index, session) as outcome:
            session.start(self.mpi())
            self.measure(session)
        return outcome.status
