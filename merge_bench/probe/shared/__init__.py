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
    from merge_bench.errors import Caution
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
    """A measured quantity of a row: its title, its displayed unit, that unit in SI units, and the row's field."""

    title: str
    unit: str
    scale: float
    field: str
    less_is_better: bool = False

    def value_range(self, row: ProbeRow | None) -> MedianAndRange | None:
        """Return the range of this quantity in a row, in the displayed unit; None if it was not measured."""
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


def test_kind_by_name(test: str, otherwise: str) -> str:
    """Return the kind of a test by its name: ``tag_bw`` is a bandwidth test; `otherwise` if the name has no kind."""
    words = set(re.split(r"[^a-z0-9]+", test.lower()))
    if words & _BANDWIDTH_WORDS:
        return RATE_TEST
    return LATENCY_TEST if words & _LATENCY_WORDS else otherwise


def test_family_name(test: str) -> str:
    """Return the common part of the names of a latency and a bandwidth test: ``tag_lat``, ``tag_bw`` → ``tag``."""
    words = re.split(r"([^A-Za-z0-9]+)", test)
    common = [word for word in words if word.lower() not in _BANDWIDTH_WORDS | _LATENCY_WORDS]
    return "".join(common).strip("_- .") or test


def placement_text(placement: str) -> str:
    """Return the placement of ranks in words: ``one-host`` → ``one host``."""
    return placement.replace("-", " ") if placement in (ONE_HOST, TWO_HOSTS) else placement


class Probe:
    """A network measurement.

    `name`: the name of its kind. `exchange`: name of the data plane that workers load before they measure; None for
    none. `sweeps`: whether several numbers of workers may be given, each for launches of its own. `device_memory`:
    whether messages are in GPU memory, so that workers need GPUs. `parts`: the measurements that get launches of their
    own, in turn.
    """

    name: ClassVar[str]
    exchange: ClassVar[str | None] = None
    sweeps = False

    @property
    def device_memory(self) -> bool:
        return False

    @property
    def parts(self) -> tuple[Probe, ...]:
        return (self,)

    def planning_warnings(self) -> tuple[Caution, ...]:
        """Return the warnings that are printed before anything is started."""
        return ()

    def describe(self) -> dict[str, Any]:
        """Return what this probe measures as plain data for the plan in the records."""
        raise NotImplementedError

    def prepare(self, planned_run: PlannedRun) -> PlannedRun:
        """Return the run with as many workers as this measurement needs, by default unchanged.

        Raises UsageError if there are too few hosts, or a tool is missing.
        """
        return planned_run

    def commands(self, planned_run: PlannedRun) -> list[str]:
        """Return the processes that a launch starts: for each a line with its host, and one with its command."""
        from merge_bench.cluster.launchers import make_launcher

        commands = make_launcher(planned_run.settings).commands(planned_run.plan, planned_run.settings)
        return [line for each in commands for line in (f"# {each.role} on {each.host}", each.shell_line())]

    def expected_launch_seconds(self, planned_run: PlannedRun) -> float | None:
        """Return the expected seconds of a launch on two cores; None if they are unknown."""
        return None

    def launch(self, job: PlannedLaunch, writer: CampaignWriter, progress: ProgressDisplay, index: int) -> int:
        """Start a Dask cluster for launch number `index`, measure, end the cluster, and return the exit status."""
        from merge_bench.campaign.launch import make_launch

        return make_launch(
            job, writer, progress, index, self.measure, load_merge_libraries=False, exchange=self.exchange
        )

    def measure(self, session: Any) -> None:
        """Measure between the start and the end of a launch, and record the rows.

        `session`: a `campaign.cluster_session.Session`, or what `launch` makes instead.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class MpirunProbe(Probe):
    """A network measurement in ranks that mpirun starts; `mpirun_asked`: the value of ``--mpirun``."""

    iterations: int | None
    mpirun_asked: str | None = None

    def tool_libmpi(self) -> str | None:
        """Return the path of the libmpi that a tool in the ranks loads; None without such a tool."""
        return None

    def mpi(self) -> MpiInstallation:
        """Return the MPI that starts the ranks; raises UsageError if none fits mpi4py."""
        from merge_bench.probe.ranks import mpirun

        return mpirun.find_mpi(self.mpirun_asked, self.tool_libmpi())

    def prepare(self, planned_run: PlannedRun) -> PlannedRun:
        """Return the run unchanged; raises UsageError if this MPI cannot start ranks on the hosts."""
        from merge_bench.probe.ranks import mpirun

        mpirun.check_hosts_supported(self.mpi(), planned_run.settings)
        return planned_run

    def commands(self, planned_run: PlannedRun) -> list[str]:
        """Return a line with the hosts of the ranks, and one with the mpirun command.

        WORK and SCRATCH stand for what is known only at the start.
        """
        from merge_bench.cluster.start_on_hosts import module_command
        from merge_bench.probe.ranks import mpirun

        hosts = mpirun.rank_counts_by_host(planned_run.plan, planned_run.settings)
        argv = module_command("merge_bench.probe.ranks.rank", "WORK")
        settings = planned_run.settings
        words = mpirun.mpirun_command(
            self.mpi(), hosts, settings, argv, "SCRATCH", settings.ucx_variables(settings.environment)
        )
        return ["# ranks on " + ", ".join(f"{name} ({count})" for name, count in hosts), shlex.join(words)]

    def launch(self, job: PlannedLaunch, writer: CampaignWriter, progress: ProgressDisplay, index: int) -> int:
        """Start ranks for launch number `index`, measure, end the ranks, and return the exit status."""
        from merge_bench.campaign.launch import record_launch_outcome
        from merge_bench.probe.ranks.launch import RankSession

        session = RankSession(job, writer, progress, index)
        with record_launch_outcome(job, writer, index, session) as outcome:
            session.start(self.mpi())
            self.measure(session)
        return outcome.status


@dataclass(frozen=True)
class ProbeKind(Generic[OptionsT]):
    """The declaration of a probe, which each file of the folder `probe` has as ``PROBE``.

    `name`, `help`: of the command; the records have the name, too. `options`: besides those that all probes share.
    `make`: makes the measurement from them and from what the command line gave of those of `run`; raises UsageError.
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
