"""What network measurements share: how one is declared, its campaign, its rows, and where its ends are placed.

Here is what the file of a probe declares, and what its tests measure, with units for people. The command line imports
this, so it loads nothing slow.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from merge_bench.config.option import OptionsT
from merge_bench.config.options import RunOptions
from merge_bench.records import ONE_HOST, TWO_HOSTS

if TYPE_CHECKING:
    from merge_bench.campaign import ProgressDisplay
    from merge_bench.campaign.make_plan import PlannedRun
    from merge_bench.campaign.planned_launches import PlannedLaunch
    from merge_bench.cluster.base import CommandListing
    from merge_bench.errors import WarningMessage
    from merge_bench.probe.ranks.mpirun import MpiInstallation
    from merge_bench.records.probe_rows import MedianAndRange, ProbeRow
    from merge_bench.records.writer import CampaignWriter


_BANDWIDTH_WORDS = frozenset(("bw", "bibw", "mbw", "bandwidth"))
_LATENCY_WORDS = frozenset(("lat", "latency"))
LATENCY_TEST, RATE_TEST, PING_PONG, COLLECTIVE = "latency", "bandwidth", "ping-pong", "collective"
ALL_TO_ALL, OPERATION = "all-to-all", "operation"
"""Kinds of tests. `OPERATION`: an imported one that is none of the others, such as a collective of nccl-tests."""


@dataclass(frozen=True)
class RowQuantity:
    """A quantity that probes measure: its title, its displayed unit, that unit in SI units, and the row's field."""

    title: str
    unit: str
    scale: float
    field: str
    less_is_better: bool = False

    def value_range(self, row: ProbeRow | None) -> MedianAndRange | None:
        """Return median, minimum and maximum over launches of this quantity in a row, in its unit; None if missing."""
        from merge_bench.records.probe_rows import MedianAndRange

        value: MedianAndRange | None = getattr(row, self.field) if row is not None else None
        return value and MedianAndRange(value.median / self.scale, value.low / self.scale, value.high / self.scale)


ONE_WAY = RowQuantity("Latency, one way", "µs", 1e-6, "seconds", less_is_better=True)
TIME = RowQuantity("Mean time of an operation", "µs", 1e-6, "seconds", less_is_better=True)
RATE = RowQuantity("Bandwidth", "MB/s", 1e6, "bandwidth")
THROUGHPUT = RowQuantity("Throughput", "MB/s", 1e6, "bandwidth")
BUS = RowQuantity("Bus bandwidth", "GB/s", 1e9, "bandwidth")
WORKER_RATE = RowQuantity("Bandwidth of a rank", "GB/s", 1e9, "bandwidth")
SLOWEST = RowQuantity("Time of the slowest rank", "µs", 1e-6, "seconds", less_is_better=True)


def test_kind_by_name(test_name: str, default_kind: str) -> str:
    """Return the kind of a test by its name: ``tag_bw`` is a bandwidth test; `default_kind` if the name has no kind."""
    words = set(re.split(r"[^a-z0-9]+", test_name.lower()))
    if words & _BANDWIDTH_WORDS:
        return RATE_TEST
    return LATENCY_TEST if words & _LATENCY_WORDS else default_kind


def test_family_name(test_name: str) -> str:
    """Return the common part of the names of a latency and a bandwidth test: ``tag_lat``, ``tag_bw`` → ``tag``."""
    words = re.split(r"([^A-Za-z0-9]+)", test_name)
    common = [word for word in words if word.lower() not in _BANDWIDTH_WORDS | _LATENCY_WORDS]
    return "".join(common).strip("_- .") or test_name


def placement_text(placement: str) -> str:
    """Return the placement of a pair of ranks in words: ``one-host`` → ``one host``."""
    return placement.replace("-", " ") if placement in (ONE_HOST, TWO_HOSTS) else placement


class Probe:
    """The base class of network measurements.

    `name`: the name of its kind. `exchange`: name of the data plane that workers load before they measure; None for
    none. `sweeps`: whether several numbers of workers may be given, each for launches of its own. `uses_gpu_memory`:
    whether messages are in GPU memory, so that workers need GPUs. `parts_with_own_launches`: the measurements that get
    launches of their own, in turn.
    """

    name: ClassVar[str]
    exchange: ClassVar[str | None] = None
    sweeps = False

    @property
    def uses_gpu_memory(self) -> bool:
        return False

    @property
    def parts_with_own_launches(self) -> tuple[Probe, ...]:
        return (self,)

    def planning_warnings(self) -> tuple[WarningMessage, ...]:
        """Return the warnings about this probe that are printed before anything is started."""
        return ()

    def describe_for_records(self) -> dict[str, Any]:
        """Return what this probe measures as plain data, for the plan in the records."""
        raise NotImplementedError

    def adapt_run_to_probe(self, planned_run: PlannedRun) -> PlannedRun:
        """Return the planned run with as many workers as this probe needs, by default unchanged.

        Raises UsageError if there are too few hosts, or a tool is missing.
        """
        return planned_run

    def launch_command_lines(self, planned_run: PlannedRun, listing: CommandListing, run_name: str) -> list[str]:
        """Return the processes that a launch starts, for ``--dry-run``, as lines of `listing`.

        `run_name`: the run that the launch belongs to, if there are several; else empty.
        """
        from merge_bench.cluster.launchers import make_launcher

        commands = make_launcher(planned_run.settings).process_commands(planned_run.plan, planned_run.settings)
        return [line for each in commands for line in listing.command_lines(each, run_name)]

    def expected_launch_seconds(self, planned_run: PlannedRun) -> float | None:
        """Return the expected seconds of a launch on two cores; None if they are unknown."""
        return None

    def launch_and_measure(
        self, job: PlannedLaunch, writer: CampaignWriter, progress: ProgressDisplay, launch_index: int
    ) -> int:
        """Start a Dask cluster for a launch, measure, end the cluster, and return the exit status.

        `launch_index`: the number of the launch in its campaign.
        """
        from merge_bench.campaign.launch import make_launch

        return make_launch(
            job,
            writer,
            progress,
            launch_index,
            self.measure_and_record,
            load_merge_libraries=False,
            exchange=self.exchange,
        )

    def measure_and_record(self, session: Any) -> None:
        """Measure between the start and the end of a launch, and write the rows to the records.

        `session`: a `campaign.cluster_session.Session`, or what `launch_and_measure` makes instead.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class MpirunProbe(Probe):
    """The base class of network measurements in MPI ranks.

    `mpirun_asked`: the value of ``--mpirun``.
    """

    iterations: int | None
    mpirun_asked: str | None = None

    def find_tool_libmpi(self) -> str | None:
        """Return the path of the libmpi that a tool in the ranks loads; None if no such tool is used."""
        return None

    def find_mpi(self) -> MpiInstallation:
        """Return the MPI that starts the ranks; raises UsageError if none fits mpi4py."""
        from merge_bench.probe.ranks import mpirun

        return mpirun.find_mpi(self.mpirun_asked, self.find_tool_libmpi())

    def adapt_run_to_probe(self, planned_run: PlannedRun) -> PlannedRun:
        """Return the planned run unchanged; raises UsageError if this MPI cannot start ranks on the hosts."""
        from merge_bench.probe.ranks import mpirun

        mpirun.check_hosts_supported(self.find_mpi(), planned_run.settings)
        return planned_run

    def launch_command_lines(self, planned_run: PlannedRun, listing: CommandListing, run_name: str) -> list[str]:
        """Return two lines for ``--dry-run``: one with the hosts of the ranks, one with the mpirun command.

        WORK and SCRATCH in the command stand for values that are known only at the start.
        """
        from merge_bench.cluster.start_on_hosts import module_command
        from merge_bench.probe.ranks import mpirun

        hosts = mpirun.rank_counts_by_host(planned_run.plan, planned_run.settings)
        argv = module_command("merge_bench.probe.ranks.rank", "WORK")
        settings = planned_run.settings
        words = mpirun.mpirun_command(
            self.find_mpi(), hosts, settings, argv, "SCRATCH", settings.ucx_selection_variables(settings.environment)
        )
        title = "ranks on " + ", ".join(f"{name} ({count})" for name, count in hosts)
        return [f"# {title}{f' for {run_name}' if run_name else ''}", shlex.join(words)]

    def launch_and_measure(
        self, job: PlannedLaunch, writer: CampaignWriter, progress: ProgressDisplay, launch_index: int
    ) -> int:
        """Start MPI ranks for a launch, measure, end the ranks, and return the exit status.

        `launch_index`: the number of the launch in its campaign.
        """
        from merge_bench.campaign.launch import record_launch_outcome
        from merge_bench.probe.ranks.launch import RankSession

        session = RankSession(job, writer, progress, launch_index)
        with record_launch_outcome(job, writer, launch_index, session) as outcome:
            session.begin_launch(self.find_mpi())
            self.measure_and_record(session)
        return outcome.status


@dataclass(frozen=True)
class ProbeKind(Generic[OptionsT]):
    """The declaration of a probe, which each file of the folder `probe` has as ``PROBE``.

    `name`, `help`: of the command; the records have the name, too. `options`: those besides the options that all probes
    share. `make`: makes the probe from them and from what the command line gave of those of `run`; raises UsageError.
    `other_tests`: kind of its tests whose names do not say bandwidth or latency (`test_kind_by_name`), as tables and
    charts need it. `latency`: what its latency tests measure. `in_rank`: what runs in each rank that mpirun starts.
    """

    name: str
    help: str
    options: type[OptionsT]
    make: Callable[[OptionsT, RunOptions], Probe]
    other_tests: str = LATENCY_TEST
    latency: RowQuantity = ONE_WAY
    in_rank: Callable[[Any], None] | None = None
