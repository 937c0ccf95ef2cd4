"""`probe reduce-scatter`: time and bus bandwidth by the number of elements, every result verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from merge_bench.errors import LaunchFailed, UsageError, WrongResult
from merge_bench.probe.ranks.rules import LARGEST_MESSAGE, REDUCE_SCATTER, block_of, bus_bandwidth
from merge_bench.probe.shared import options
from merge_bench.probe.shared.base import ProbeKind
from merge_bench.probe.shared.measures import COLLECTIVE
from merge_bench.probe.shared.options import Option
from merge_bench.probe.shared.placements import as_requested, placement, transports_asked
from merge_bench.probe.shared.sizes import parse_counts
from merge_bench.units import format_count

if TYPE_CHECKING:
    from merge_bench.campaign.jobs import Job
    from merge_bench.campaign.prepare import Prepared
    from merge_bench.campaign.progress import Progress
    from merge_bench.probe.ranks.launch import Message, RankSession
    from merge_bench.probe.ranks.mpirun import Mpi
    from merge_bench.probe.ranks.rank import Rank
    from merge_bench.records.schema import ProbeLine
    from merge_bench.records.writer import CampaignWriter

COUNTS = "16Ki..128Mi"
MPI_CALLS = {"mpi": "MPI_Reduce_scatter_block", "reduces": "one MPI_Ireduce to each rank, MPI_Waitall"}


@dataclass(frozen=True)
class ReduceScatterProbe:
    """Algorithms over counts. `workers` and `mpirun_asked`: as given on the command line."""

    counts: tuple[int, ...]
    algorithms: tuple[str, ...]
    iterations: int | None
    workers: int | None
    mpirun_asked: str | None = None
    name: str = REDUCE_SCATTER
    device_memory: bool = False

    def describe(self) -> dict[str, Any]:
        """What is asked for."""
        return {
            "counts": list(self.counts), "algorithms": list(self.algorithms), "iterations": self.iterations,
            "mpirun": self._mpi().mpirun,
        }  # fmt: skip

    def prepare(self, prepared: Prepared) -> Prepared:
        """At least two ranks, and the tools that the algorithms need."""
        from merge_bench.probe.ranks import mpirun

        mpirun.check_hosts(self._mpi(), prepared.settings)
        ranks = prepared.plan.workers
        if ranks < 2 and (self.workers is not None or prepared.settings.hosts):
            raise UsageError("reduce-scatter needs at least two ranks: --workers 2")
        ranks = max(ranks, 2)
        if self.counts[-1] // ranks > LARGEST_MESSAGE:
            raise UsageError(f"--counts: MPI counts elements with an int; {format_count(self.counts[-1])} are too many")
        rounded = [count for count in self.counts if count % ranks]
        told = tuple(
            ("count-rounded", f"{format_count(n)} elements are rounded up to {format_count(block_of(n, ranks) * ranks)}"
             f", so that each of {ranks} ranks gets as many", None)
            for n in rounded
        )  # fmt: skip
        return replace(
            prepared, plan=replace(prepared.plan, workers=ranks), warnings=(*prepared.warnings, *told)
        )  # fmt: skip

    def launch(self, job: Job, writer: CampaignWriter, progress: Progress, index: int) -> int:
        """Measure every algorithm at every count."""
        from merge_bench.probe.ranks.launch import make_launch

        return make_launch(job, writer, progress, index, self._measure, self._mpi)

    def _mpi(self) -> Mpi:
        from merge_bench.probe.ranks import mpirun, ucc

        return mpirun.find_mpi(self.mpirun_asked, ucc.find_tool().libmpi if self._of_ucc else None)

    @property
    def _of_ucc(self) -> tuple[str, ...]:
        from merge_bench.probe.ranks import ucc

        return tuple(name for name in self.algorithms if name in ucc.ENVIRONMENT)

    def _measure(self, session: RankSession) -> None:
        from merge_bench.probe.ranks import ucc, ucc_launch
        from merge_bench.records.schema import WarningLine

        ours = [name for name in self.algorithms if name in MPI_CALLS]
        asked = {"counts": self.counts, "algorithms": ours, "iterations": self.iterations}
        for message in session.run({"probe": self.name, **asked}):
            if message["merge_bench"] == "warning":
                session.writer.write(
                    WarningLine(launch=session.launch, code=message["code"], message=message["message"],
                                remedy=message["remedy"])
                )  # fmt: skip
            elif message["merge_bench"] == "row":
                line = row(message, session)
                session.writer.write(line)
                session.doing = f"after {line.test} of {format_count(line.count or 0)} elements"
                session.progress.phase(f"{line.test}: {format_count(line.count or 0)} elements")
                if line.wrong:
                    raise WrongResult(
                        f"{line.test} of {format_count(line.count or 0)} elements: {format_count(line.wrong)} of them"
                        " came out wrong"
                    )
        problems = []
        for name in self._of_ucc:
            problems += ucc_launch.measure(session, name, self.counts, self.iterations)
        if problems:
            more = f" (and {len(problems) - 1} more lines)" if len(problems) > 1 else ""
            raise LaunchFailed(f"{ucc.TOOL}: {problems[0]}{more}")


def row(message: Message, session: RankSession) -> ProbeLine:
    """A rank's ``row`` as the records keep it; `message` has the mean seconds of each rank."""
    from merge_bench.probe.ranks.mpirun import method
    from merge_bench.records.schema import ProbeLine

    workers = session.workers
    seconds, size, ranks = message["seconds"], message["size"], len(workers)
    average, least, most = sum(seconds) / ranks, min(seconds), max(seconds)
    requested = transports_asked(workers[0].environment)
    return ProbeLine(
        launch=session.launch, probe=REDUCE_SCATTER, test=message["test"],
        placement=placement(workers),
        method=f"{method(session.mpi, workers[0].versions, workers[0].ucx)}, {MPI_CALLS[message['test']]}",
        ranks=list(range(ranks)), hosts=[worker.host for worker in workers], size=size, count=message["count"],
        iterations=message["iterations"], seconds=average, seconds_min=least, seconds_max=most,
        bandwidth_bytes_per_second=bus_bandwidth(size, average, ranks),
        bandwidth_min=bus_bandwidth(size, most, ranks), bandwidth_max=bus_bandwidth(size, least, ranks),
        wrong=message["wrong"], requested=requested, selected=message["selected"],
        as_requested=as_requested(requested.get("UCX_TLS"), message["selected"]),
    )  # fmt: skip


def make(values: Mapping[str, Any]) -> ReduceScatterProbe:
    """The probe that these options ask for.

    Raises
    ------
    UsageError
        If counts or algorithms are none.
    """
    from merge_bench.probe.ranks.ucc import SHARP, UCP

    known = (*MPI_CALLS, UCP, SHARP)
    try:
        counts = parse_counts(values["counts"] or COUNTS)
    except ValueError as error:
        raise UsageError(f"--counts: {error}") from None
    algorithms = tuple(dict.fromkeys(word.strip() for word in values["algorithms"].split(",")))
    unknown = [word for word in algorithms if word not in known]
    if unknown:
        raise UsageError(f"--algorithms: {unknown[0]!r} is none of {', '.join(known)}")
    return ReduceScatterProbe(
        counts=counts, algorithms=algorithms, iterations=values["iterations"], workers=values.get("workers"),
        mpirun_asked=values["mpirun"],
    )  # fmt: skip


def in_rank(rank: Rank) -> None:
    """What each rank does."""
    from merge_bench.probe.ranks import reduce

    reduce.run(rank)


def _collective(test: str) -> str:
    return COLLECTIVE


PROBE = ProbeKind(
    name=REDUCE_SCATTER,
    help="Time and bus bandwidth of reduce-scatter over the number of elements, results verified.",
    options=(
        Option("counts", "Elements (float32) of a whole vector: 16Ki..128Mi, doubling.", "COUNTS"),
        options.ITERATIONS,
        Option(
            "algorithms",
            "Algorithms to measure, with commas: mpi, reduces, ucc-ucp, ucc-sharp.",
            "NAME[,NAME]",
            default="mpi,reduces",
        ),
        options.MPIRUN,
    ),
    make=make,
    test_kind=_collective,
    in_rank=in_rank,
)
