"""`probe reduce-scatter`: time and bus bandwidth by the number of elements, every result verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from merge_bench.errors import LaunchFailed, UsageError, WrongResult
from merge_bench.launching import Job
from merge_bench.probe import mpirun, ucc, ucc_launch
from merge_bench.probe.base import as_requested, placement
from merge_bench.probe.mpi import method, transports_asked
from merge_bench.probe.mpi_rules import LARGEST_MESSAGE, REDUCE_SCATTER, block_of, bus_bandwidth
from merge_bench.probe.ranks import Launch, Message, make_launch
from merge_bench.probe.sizes import parse_counts
from merge_bench.record.schema import ProbeLine, WarningLine
from merge_bench.record.writer import CampaignWriter
from merge_bench.report.live import Progress
from merge_bench.setup import Prepared
from merge_bench.units import format_count

COUNTS = "16Ki..128Mi"
MPI_CALLS = {"mpi": "MPI_Reduce_scatter_block", "reduces": "one MPI_Ireduce to each rank, MPI_Waitall"}
ALGORITHMS = (*MPI_CALLS, ucc.UCP, ucc.SHARP)


@dataclass(frozen=True)
class ReduceScatterProbe:
    """Algorithms over counts. `workers` and `mpirun_asked`: as given on the command line."""

    counts: tuple[int, ...]
    algorithms: tuple[str, ...]
    iterations: int | None
    workers: int | None
    mpirun_asked: str | None = None
    name: str = REDUCE_SCATTER
    engine: str = "polars"

    def describe(self) -> dict[str, Any]:
        """What is asked for."""
        return {
            "counts": list(self.counts), "algorithms": list(self.algorithms), "iterations": self.iterations,
            "mpirun": self._mpi().mpirun,
        }  # fmt: skip

    def prepare(self, prepared: Prepared) -> Prepared:
        """At least two ranks, and the tools that the algorithms need."""
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
        return make_launch(job, writer, progress, index, self._talk, self._mpi)

    def _mpi(self) -> mpirun.Mpi:
        return mpirun.find_mpi(self.mpirun_asked, ucc.find_tool().libmpi if self._of_ucc else None)

    @property
    def _of_ucc(self) -> tuple[str, ...]:
        return tuple(name for name in self.algorithms if name in ucc.ENVIRONMENT)

    def _talk(self, launch: Launch) -> None:
        ours = [name for name in self.algorithms if name in MPI_CALLS]
        asked = {"counts": self.counts, "algorithms": ours, "iterations": self.iterations}
        for message in launch.run({"pattern": REDUCE_SCATTER, **asked}):
            if message["merge_bench"] == "warning":
                launch.writer.write(
                    WarningLine(launch=launch.index, code=message["code"], message=message["message"],
                                remedy=message["remedy"])
                )  # fmt: skip
            elif message["merge_bench"] == "row":
                line = row(message, launch)
                launch.writer.write(line)
                launch.doing = f"after {line.test} of {format_count(line.count or 0)} elements"
                launch.progress.phase(f"{line.test}: {format_count(line.count or 0)} elements")
                if line.wrong:
                    raise WrongResult(
                        f"{line.test} of {format_count(line.count or 0)} elements: {format_count(line.wrong)} of them"
                        " came out wrong"
                    )
        problems = []
        for name in self._of_ucc:
            problems += ucc_launch.measure(launch, name, self.counts, self.iterations)
        if problems:
            more = f" (and {len(problems) - 1} more lines)" if len(problems) > 1 else ""
            raise LaunchFailed(f"{ucc.TOOL}: {problems[0]}{more}")


def row(message: Message, launch: Launch) -> ProbeLine:
    """A rank's ``row`` as the records keep it; `message` has the mean seconds of each rank."""
    workers = launch.workers
    seconds, size, ranks = message["seconds"], message["size"], len(workers)
    average, least, most = sum(seconds) / ranks, min(seconds), max(seconds)
    requested = transports_asked(workers[0].environment)
    return ProbeLine(
        launch=launch.index, probe=REDUCE_SCATTER, test=message["test"],
        placement=placement(workers),
        method=f"{method(launch.mpi, workers[0].versions, workers[0].ucx)}, {MPI_CALLS[message['test']]}",
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
    try:
        counts = parse_counts(values["counts"] or COUNTS)
    except ValueError as error:
        raise UsageError(f"--counts: {error}") from None
    algorithms = tuple(dict.fromkeys(word.strip() for word in values["algorithms"].split(",")))
    unknown = [word for word in algorithms if word not in ALGORITHMS]
    if unknown:
        raise UsageError(f"--algorithms: {unknown[0]!r} is none of {', '.join(ALGORITHMS)}")
    return ReduceScatterProbe(
        counts=counts, algorithms=algorithms, iterations=values["iterations"], workers=values.get("workers"),
        mpirun_asked=values["mpirun"],
    )  # fmt: skip
