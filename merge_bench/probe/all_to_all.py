"""`probe all-to-all`: every rank sends to every other, over our data plane, MPI or NCCL, by size and ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from merge_bench.config import parsers
from merge_bench.config.allowed_transports import requested
from merge_bench.config.option import option
from merge_bench.config.options import RunOptions
from merge_bench.errors import Caution, UsageError
from merge_bench.probe.ranks.osu_rules import LARGEST_MESSAGE
from merge_bench.probe.shared.base import Probe, ProbeKind
from merge_bench.probe.shared.exchange_rows import NAME, UNEVEN, Pattern, Recorder, at_least_two, matrices
from merge_bench.probe.shared.measures import ALL_TO_ALL
from merge_bench.probe.shared.options import IterationOptions, MpirunOptions, SizeOptions
from merge_bench.probe.shared.over_mpi import OverMpi
from merge_bench.probe.shared.over_nccl import NCCL, OverNccl
from merge_bench.probe.shared.sizes import parse_names, parse_sizes

if TYPE_CHECKING:
    from merge_bench.campaign.cluster_session import Session
    from merge_bench.campaign.make_plan import PlannedRun
    from merge_bench.probe.ranks.launch import RankSession
    from merge_bench.probe.ranks.rank_session import Rank
    from merge_bench.records.schema import ProbeLine

UCX, MPI = "ucx", "mpi"
SIZES = "1K..4M"


@dataclass(frozen=True)
class OverUcx(Probe):
    """Our data plane, in the workers of a cluster. `on_gpus`: messages are in GPU memory."""

    pattern: Pattern
    on_gpus: bool = False
    name = NAME
    exchange = "ucx"

    @property
    def device_memory(self) -> bool:
        """Whether messages are in GPU memory."""
        return self.on_gpus

    def describe(self) -> dict[str, Any]:
        """The plan in the records."""
        return {**self.pattern.describe(UCX), **({"memory": "cuda"} if self.on_gpus else {})}

    def prepare(self, prepared: PlannedRun) -> PlannedRun:
        """The same, with at least two workers."""
        return at_least_two(prepared)

    def usual_seconds(self, prepared: PlannedRun) -> float | None:
        """As of `Pattern`, and the start of a cluster."""
        return self.pattern.usual_seconds(prepared, 2.5)

    def measure(self, session: Session) -> None:
        """Connect the workers as for a merge, and exchange."""
        from merge_bench.campaign.recording import record_connections
        from merge_bench.host import core_budget
        from merge_bench.merge import worker
        from merge_bench.probe.shared.placements import CROWDED, as_requested, placement
        from merge_bench.probe.workers import exchanging
        from merge_bench.records.schema import ProbeLine

        workers, pattern = session.workers, self.pattern
        session.progress.phase("connecting")
        session.connect(workers.on_all(worker.open_bare, session.plan, ranked=True, after=(session.topic,)))
        session.record_launch()
        record_connections(session)
        if core_budget.shortage((each.host, each.hardware) for each in session.descriptions):
            session.warn(CROWDED)
        first = session.descriptions[0]
        lanes = list(dict.fromkeys(lane for found in workers.on_all(worker.endpoints)
                                   for lane_list, _ in found.values() for lane in lane_list))  # fmt: skip
        asked = requested(first.ucx.config)

        def line(**figures: Any) -> ProbeLine:
            return ProbeLine(
                launch=session.launch, method=f"tagged messages of UCX {first.ucx.version}, as in a merge",
                memory="cuda" if self.on_gpus else "host",
                placement=placement(session.descriptions), ranks=[each.rank for each in session.members],
                hosts=[each.host for each in session.members], requested=asked, selected=lanes,
                as_requested=as_requested(first.environment.get("UCX_TLS"), lanes), **figures,
            )  # fmt: skip

        recorder = Recorder(session, pattern, UCX)
        for frames in matrices(session, pattern):
            rounds = pattern.rounds(max(workers.on_all(exchanging.prepare, frames, device=self.on_gpus)))
            measured = workers.on_all(exchanging.measure, rounds)
            recorder.take(frames, [each.seconds for each in measured], sum(each.wrong for each in measured), line)
        workers.on_all(worker.close)


@dataclass(frozen=True, kw_only=True)
class OverMpiRanks(OverMpi):
    """MPI_Alltoall and MPI_Alltoallv, in ranks that mpirun starts."""

    pattern: Pattern
    name = NAME

    def describe(self) -> dict[str, Any]:
        """The plan in the records."""
        return {**self.pattern.describe(MPI), "mpirun": self.mpi().mpirun}

    def prepare(self, prepared: PlannedRun) -> PlannedRun:
        """The same, with at least two ranks; checks the MPI."""
        return at_least_two(super().prepare(prepared))

    def usual_seconds(self, prepared: PlannedRun) -> float | None:
        """As of `Pattern`, and the start of mpirun."""
        return self.pattern.usual_seconds(prepared, 1.5)

    def measure(self, session: RankSession) -> None:
        """Exchange in the ranks, and record what they report."""
        from merge_bench.probe.ranks.messages import ExchangeRow

        pattern = self.pattern
        work = {
            "probe": NAME, "sizes": pattern.sizes, "ring": pattern.ring(session.plan.workers),
            "tables": [dataclasses.asdict(spec) for spec in pattern.tables(session.job.prepared)],
            "iterations": pattern.iterations,
        }  # fmt: skip
        recorder = Recorder(session, pattern, MPI)
        for row in session.run(work, of=ExchangeRow):

            def line(selected: Sequence[str] = row.selected, **figures: Any) -> ProbeLine:
                call = "MPI_Alltoallv" if figures["test"].endswith(UNEVEN) else "MPI_Alltoall"
                return session.line(f"{session.method()}, {call}", selected, **figures)

            recorder.take(row.frames, row.rounds, row.wrong, line)
            session.doing = "after an exchange"


@dataclass(frozen=True)
class AllToAll(Probe):
    """Every backend, each in launches of its own."""

    backends: tuple[Probe, ...]
    left_out: Caution | None = None
    name = NAME
    sweeps = True

    @property
    def device_memory(self) -> bool:
        """Whether messages are in GPU memory: NCCL has no other, and what it is compared with has the same."""
        return any(each.device_memory for each in self.backends)

    @property
    def parts(self) -> tuple[Probe, ...]:
        """One for each backend."""
        return self.backends

    def cautions(self) -> tuple[Caution, ...]:
        """The backend that is not there."""
        return () if self.left_out is None else (self.left_out,)


@dataclass(frozen=True, kw_only=True)
class AllToAllOptions(MpirunOptions, IterationOptions, SizeOptions):
    """What to exchange, and with what."""

    chunk: int | tuple[int, ...] | None = option(
        parsers.counts(1),
        None,
        "Send the parcels of a merge with this many rows per worker in each frame; several values are separated by"
        " commas. [default: only messages of --sizes]",
        "ROWS[,ROWS]",
    )
    backend: str | None = option(
        parsers.text,
        None,
        "What exchanges the messages: ucx (the data plane of a merge), mpi (MPI_Alltoall, MPI_Alltoallv), nccl"
        " (between GPUs; then ucx sends GPU memory as well); several are separated by commas. [default: ucx, and"
        " mpi if it is installed]",
        "NAME[,NAME]",
    )
    link_limit: float | None = option(
        parsers.rate,
        None,
        "Bandwidth of each rank's link in one direction, such as 12.5GB/s or 100Gbit/s. [default: measured if there"
        " are more than two ranks]",
        "RATE",
    )


def make(options: AllToAllOptions, run: RunOptions) -> AllToAll:
    """The measurement of these options; without ``--backend`` MPI takes part where it is installed.

    Raises
    ------
    UsageError
        If sizes or backends are wrong, or an MPI that was asked for is missing.
    """
    chunks = options.chunk or ()
    sizes = parse_sizes(options.sizes) if options.sizes else () if chunks else parse_sizes(SIZES)
    if sizes and sizes[-1] > LARGEST_MESSAGE:
        raise UsageError(f"--sizes {options.sizes}: MPI allows messages of at most {LARGEST_MESSAGE} bytes")
    pattern = Pattern(
        sizes=sizes, chunks=(chunks,) if isinstance(chunks, int) else tuple(chunks), iterations=options.iterations,
        limit=options.link_limit,
    )  # fmt: skip
    asked = options.backend
    names = parse_names("--backend", asked, (UCX, MPI, NCCL)) if asked else (UCX, MPI)
    over_mpi = OverMpiRanks(pattern=pattern, iterations=pattern.iterations, mpirun_asked=options.mpirun)
    left_out = None
    if not asked:
        if run.scheduler_address or run.scheduler_file:
            names = (UCX,)
        try:
            over_mpi.mpi()
        except UsageError as reason:
            if options.mpirun:
                raise
            names, left_out = (UCX,), Caution("backend-left-out", f"all-to-all without MPI: {reason}")
    if MPI in names and NCCL in names:
        raise UsageError("--backend: mpi sends host memory and nccl GPU memory; name one of them")
    made = {UCX: OverUcx(pattern, on_gpus=NCCL in names), MPI: over_mpi, NCCL: OverNccl(pattern)}
    return AllToAll(tuple(made[name] for name in names), left_out)


def in_rank(rank: Rank) -> None:
    """What each rank runs."""
    from merge_bench.probe.ranks import all_to_all

    all_to_all.run(rank)


PROBE = ProbeKind(
    name=NAME,
    help="Every rank sends to every other: our data plane, MPI, NCCL; by message size and number of ranks (--workers).",
    options=AllToAllOptions,
    make=make,
    other_tests=ALL_TO_ALL,
    in_rank=in_rank,
)
