"""What the file of a probe declares. The command line imports this module, so it loads nothing slow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from merge_bench.config.option import OptionsT
from merge_bench.config.options import RunOptions
from merge_bench.probe.shared.measures import LATENCY_TEST, ONE_WAY, Measure

if TYPE_CHECKING:
    from merge_bench.campaign.make_plan import PlannedRun
    from merge_bench.campaign.planned_launches import Job
    from merge_bench.campaign.progress import Progress
    from merge_bench.errors import Caution
    from merge_bench.probe.ranks.rank_session import Rank
    from merge_bench.records.writer import CampaignWriter


class Probe:
    """A network measurement.

    Attributes
    ----------
    name
        The name of its kind.
    exchange
        Name of the data plane that workers load before they measure; None for none.
    sweeps
        Whether several numbers of workers may be given, each for launches of its own.
    """

    name: ClassVar[str]
    exchange: ClassVar[str | None] = None
    sweeps = False

    @property
    def device_memory(self) -> bool:
        """Whether messages are in GPU memory, so that workers need GPUs."""
        return False

    @property
    def parts(self) -> tuple[Probe, ...]:
        """Measurements of which each gets launches of its own, interleaved with those of the others; by default one."""
        return (self,)

    def cautions(self) -> tuple[Caution, ...]:
        """Warnings before anything is started."""
        return ()

    def describe(self) -> dict[str, Any]:
        """What to measure, as plain data: the plan in the records."""
        raise NotImplementedError

    def prepare(self, prepared: PlannedRun) -> PlannedRun:
        """The same hosts and settings, with the workers that this measurement needs; by default all.

        Raises
        ------
        UsageError
            If there are too few hosts, or a tool is missing.
        """
        return prepared

    def commands(self, prepared: PlannedRun) -> list[str]:
        """What a launch would start: for each process a line with its host, and one with its command."""
        from merge_bench.cluster.launcher_choice import make_launcher

        found = make_launcher(prepared.settings).commands(prepared.plan, prepared.settings)
        return [line for each in found for line in (f"# {each.role} on {each.host}", each.shown())]

    def usual_seconds(self, prepared: PlannedRun) -> float | None:
        """Seconds that a launch takes on two cores by default; None if that is not known, or depends on options."""
        return None

    def launch(self, job: Job, writer: CampaignWriter, progress: Progress, index: int) -> int:
        """Make one launch of a Dask cluster, measure in it, and end its processes; gives the exit status."""
        from merge_bench.campaign.launch import make_launch

        return make_launch(job, writer, progress, index, self.measure, merges=False, exchange=self.exchange)

    def measure(self, session: Any) -> None:
        """Measure between the start and the end of a launch, and record the rows.

        `session`: a `campaign.cluster_session.Session`, or what `launch` makes instead.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class ProbeKind(Generic[OptionsT]):
    """What a file of `probe` declares.

    Attributes
    ----------
    name, help
        Name and help of the command; the name is also the one in the records.
    options
        Its options besides those that all probes share.
    make
        Makes the measurement from them and from what the command line gave of those of `run`. Raises UsageError.
    other_tests
        Kind of its tests whose names do not say bandwidth or latency (see `measures`); tables and charts depend on it.
    latency
        What its latency tests measure.
    in_rank
        What runs in each rank of a probe that mpirun starts.
    """

    name: str
    help: str
    options: type[OptionsT]
    make: Callable[[OptionsT, RunOptions], Probe]
    other_tests: str = LATENCY_TEST
    latency: Measure = ONE_WAY
    in_rank: Callable[[Rank], None] | None = None
