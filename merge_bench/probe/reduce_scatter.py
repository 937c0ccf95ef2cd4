"""`probe reduce-scatter`: time and bus bandwidth by the number of elements; every result is verified."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from merge_bench.config import parsers
from merge_bench.config.option import value_option
from merge_bench.config.options import RunOptions
from merge_bench.errors import LaunchFailed, UsageError, WarningMessage, WrongResult
from merge_bench.probe.ranks.osu_rules import (
    ELEMENT,
    LARGEST_MESSAGE,
    OPERATIONS,
    OPERATIONS_SKIPPED,
    REDUCE_SCATTER,
    collective_iterations_for_count,
    reduce_scatter_row_fields,
    reduced_block_elements,
)
from merge_bench.probe.shared import COLLECTIVE, MpirunProbe, ProbeKind
from merge_bench.probe.shared.options import IterationOptions, MpirunOptions, parse_allowed_names, parse_element_counts
from merge_bench.units import format_count

if TYPE_CHECKING:
    from merge_bench.campaign.make_plan import PlannedRun
    from merge_bench.probe.ranks.launch import RankSession
    from merge_bench.probe.ranks.rank import Rank

COUNTS = "16Ki..128Mi"
MPI_CALLS = {"mpi": "MPI_Reduce_scatter_block", "reduces": "one MPI_Ireduce to each rank, MPI_Waitall"}


@dataclass(frozen=True, kw_only=True)
class ReduceScatterProbe(MpirunProbe):
    """The network measurement `probe reduce-scatter`: its algorithms, for vectors of each of `counts` elements.

    `workers`: the value of ``--workers``; `ucc_algorithms`: those of `algorithms` that ucc_perftest measures.
    """

    counts: tuple[int, ...]
    algorithms: tuple[str, ...]
    ucc_algorithms: tuple[str, ...]
    workers: int | None
    name = REDUCE_SCATTER

    def describe_for_records(self) -> dict[str, Any]:
        work = {"counts": list(self.counts), "algorithms": list(self.algorithms)}
        return {**work, "iterations": self.iterations, "mpirun": self.find_mpi().mpirun}

    def expected_launch_seconds(self, planned_run: PlannedRun) -> float | None:
        """Return the expected seconds of a launch: 7 ns for each element of each reduce-scatter, as measured."""
        work = sum(
            n
            * (
                (self.iterations or collective_iterations_for_count(n, OPERATIONS))
                + collective_iterations_for_count(n, OPERATIONS_SKIPPED)
            )
            for n in self.counts
        )
        return 1.5 + 7e-9 * work * len(self.algorithms)

    def find_tool_libmpi(self) -> str | None:
        """Return the path of the libmpi that ucc_perftest loads; None if no chosen algorithm needs that tool."""
        from merge_bench.probe.ranks import ucc

        return ucc.find_ucc_perftest().libmpi if self.ucc_algorithms else None

    def adapt_run_to_probe(self, planned_run: PlannedRun) -> PlannedRun:
        """Return the planned run with at least two ranks; raises UsageError if the MPI or a needed tool is missing."""
        super().adapt_run_to_probe(planned_run)
        ranks = planned_run.plan.workers
        if ranks < 2 and (self.workers is not None or planned_run.settings.hosts):
            raise UsageError("reduce-scatter needs at least two ranks; use --workers 2 or more")
        ranks = max(ranks, 2)
        if self.counts[-1] // ranks > LARGEST_MESSAGE:
            raise UsageError(
                f"--counts: with {ranks} ranks, a vector can have at most {format_count(LARGEST_MESSAGE * ranks)}"
                f" elements, not {format_count(self.counts[-1])}"
            )
        rounded = tuple(
            WarningMessage(
                "count-rounded",
                f"{format_count(n)} elements are rounded up to"
                f" {format_count(reduced_block_elements(n, ranks) * ranks)}, so that all {ranks} ranks get the same"
                " number",
            )
            for n in self.counts
            if n % ranks
        )
        plan = replace(planned_run.plan, workers=ranks)
        return replace(planned_run, plan=plan, warnings=(*planned_run.warnings, *rounded))

    def measure_and_record(self, session: RankSession) -> None:
        """Measure every reduce-scatter algorithm at every vector length, and write each row to the records."""
        from merge_bench.probe.ranks import ucc
        from merge_bench.probe.ranks.messages import MeasuredRow

        mpi_algorithms = [name for name in self.algorithms if name in MPI_CALLS]
        work = {"probe": self.name, "counts": self.counts, "algorithms": mpi_algorithms, "iterations": self.iterations}
        for row in session.run_ranks(work, MeasuredRow):
            ranks, count = len(row.seconds), row.size // ELEMENT
            elements = f"{format_count(count)} elements"
            times = (sum(row.seconds) / ranks, min(row.seconds), max(row.seconds))
            line = session.make_probe_line(
                f"{session.measurement_method_text()}, {MPI_CALLS[row.test]}",
                row.selected,
                probe=self.name,
                test=row.test,
                iterations=row.iterations,
                wrong=row.wrong,
                **reduce_scatter_row_fields(count, *times, ranks=ranks),
            )
            session.writer.write(line)
            session.doing = f"after {row.test} of {elements}"
            session.progress.show_phase(f"{row.test}: {elements}")
            if row.wrong:
                wrong = f"{format_count(row.wrong)} of {elements} in the result are wrong"
                raise WrongResult(f"algorithm {row.test}: {wrong}")
        problems = []
        for name in self.ucc_algorithms:
            problems += ucc.measure_with_ucc_perftest(session, name, self.counts, self.iterations)
        if problems:
            more = f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""
            raise LaunchFailed(f"{ucc.TOOL}: {problems[0]}{more}")


_COUNTS_HELP = "Vector lengths in float32 elements: a list (1e6,3e6) or a doubling range (1Ki..1Mi)."


@dataclass(frozen=True, kw_only=True)
class ReduceScatterOptions(MpirunOptions, IterationOptions):
    """Options of `probe reduce-scatter`: lengths of the vectors, and algorithms.

    algorithms: Algorithms to measure, separated by commas: mpi (MPI_Reduce_scatter_block), reduces (one MPI_Ireduce per
        rank), ucc-ucp (ucc_perftest over UCP), ucc-sharp (ucc_perftest over SHARP).
    """

    counts: str | None = value_option(
        parsers.parse_nonblank_text, None, "COUNTS", help=f"{_COUNTS_HELP} [default: {COUNTS}]"
    )
    algorithms: str = value_option(parsers.parse_nonblank_text, "mpi,reduces", "NAME[,NAME]")


def make_probe(options: ReduceScatterOptions, run_options: RunOptions) -> ReduceScatterProbe:
    """Make the reduce-scatter probe from its options; raises UsageError if counts or algorithms are wrong."""
    from merge_bench.probe.ranks.ucc import ENVIRONMENT

    algorithms = parse_allowed_names("--algorithms", options.algorithms, (*MPI_CALLS, *ENVIRONMENT))
    return ReduceScatterProbe(
        counts=parse_element_counts(options.counts or COUNTS),
        algorithms=algorithms,
        ucc_algorithms=tuple(name for name in algorithms if name in ENVIRONMENT),
        iterations=options.iterations,
        workers=run_options.workers,
        mpirun_asked=options.mpirun,
    )


def measure_in_rank(rank: Rank) -> None:
    from merge_bench.probe.ranks import mpi_measurements

    mpi_measurements.measure_reduce_scatter_algorithms(rank)


PROBE = ProbeKind(
    name=REDUCE_SCATTER,
    help="Time and bus bandwidth of reduce-scatter for each vector length, with verified results.",
    options=ReduceScatterOptions,
    make=make_probe,
    other_tests=COLLECTIVE,
    in_rank=measure_in_rank,
)
