"""`probe all-to-all`: every rank sends to every other, over our data plane, MPI or NCCL, by size and ranks.

The command line imports this module, so it loads nothing slow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from merge_bench.config import parsers
from merge_bench.config.allowed_transports import requested
from merge_bench.config.option import option
from merge_bench.config.options import RunOptions
from merge_bench.errors import Caution, UsageError, WrongResult
from merge_bench.probe.ranks.osu_rules import LARGEST_MESSAGE
from merge_bench.probe.shared.base import ALL_TO_ALL, OverMpi, Probe, ProbeKind
from merge_bench.probe.shared.options import IterationOptions, MpirunOptions, SizeOptions
from merge_bench.probe.shared.sizes import parse_names, parse_sizes
from merge_bench.units import format_bytes, format_count

if TYPE_CHECKING:
    from merge_bench.campaign.cluster_session import Session
    from merge_bench.campaign.make_plan import PlannedRun
    from merge_bench.merge.workload.synthetic import SyntheticSpec
    from merge_bench.probe.ranks.launch import RankSession
    from merge_bench.probe.ranks.rank import Rank
    from merge_bench.probe.shared.exchange_matrix import Matrix
    from merge_bench.records.schema import ProbeLine

UCX, MPI = "ucx", "mpi"
SIZES = "1K..4M"
NAME = "all-to-all"
GIVEN, RING = "given", "ring"
EQUAL, UNEVEN = "alltoall", "alltoallv"
FRACTION, PAYLOAD_COLUMNS = 0.3, 1
"""Of the synthetic tables that `run` merges by default."""
NCCL = "nccl"


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """What to exchange: messages of `sizes` bytes, and the parcels of merges of so many rows a chunk.

    `iterations`: timed rounds, None for as many as take half a second. `limit`: bytes per second that a rank can send;
    None: measured, if there are more than two ranks.
    """

    sizes: tuple[int, ...]
    chunks: tuple[int, ...]
    iterations: int | None
    limit: float | None

    def describe(self, backend: str) -> dict[str, Any]:
        return {
            "backend": backend,
            "sizes": list(self.sizes),
            "chunks": list(self.chunks),
            "iterations": self.iterations,
            "limit": self.limit,
        }

    def ring(self, ranks: int) -> int | None:
        """Size of the messages of the measured limit; None: it is not measured."""
        largest = max((*self.sizes, *(16 * chunk // ranks for chunk in self.chunks)))
        return largest if self.limit is None and ranks > 2 else None

    def rounds(self, seconds: float) -> int:
        """Timed rounds of an operation whose fastest round in the warm-up took so long."""
        from merge_bench.probe.shared.exchange_matrix import rounds_of

        return self.iterations or rounds_of(seconds)

    def tables(self, prepared: PlannedRun) -> list[SyntheticSpec]:
        """The synthetic tables whose parcels are sent."""
        from merge_bench.merge.workload.synthetic import SyntheticSpec

        plan = prepared.plan
        return [SyntheticSpec(chunk * plan.workers, FRACTION, plan.seed, PAYLOAD_COLUMNS) for chunk in self.chunks]

    def usual_seconds(self, prepared: PlannedRun, start: float) -> float | None:
        """Measured: half a second of rounds and a tenth around them, 0.5 µs for each row of a chunk and rank."""
        rows = len(self.sizes) + len(self.chunks) + (self.ring(prepared.plan.workers) is not None)
        tables = 0.5e-6 * sum(self.chunks) * prepared.plan.workers
        return None if self.iterations else start + 0.6 * rows + tables


def at_least_two(prepared: PlannedRun) -> PlannedRun:
    """The same; raises `UsageError` if there is one worker only."""
    if prepared.plan.workers < 2:
        raise UsageError("all-to-all needs at least two ranks; use --workers 2 or more")
    return prepared


def matrices(session: Session, pattern: Pattern) -> Iterator[list[Matrix]]:
    """The matrices of each operation between the workers of a cluster, in the order of `Recorder`."""
    from merge_bench.probe.shared.exchange_matrix import equal, ring
    from merge_bench.probe.workers import exchanging

    ranks = session.plan.workers
    if size := pattern.ring(ranks):
        yield [ring(size, ranks)]
    for size in pattern.sizes:
        yield [equal(size, ranks)]
    for spec in pattern.tables(session.job.prepared):
        session.progress.phase(f"sizes of the parcels of {format_count(spec.rows)} rows")
        left, right = zip(*session.workers.on_all(exchanging.parcels, spec, ranks, ranked=True), strict=True)
        yield [left, right]


class Lines(Protocol):
    """Makes a line of the records from the figures that are the same for every backend."""

    def __call__(self, **figures: Any) -> ProbeLine: ...


class Recorder:
    """Records the rows of one launch; the ring, which comes first, is the limit of the others."""

    def __init__(self, session: Session | RankSession, pattern: Pattern, backend: str) -> None:
        self._session, self._backend = session, backend
        self._limit, self._from = pattern.limit, GIVEN if pattern.limit else None
        self._rows = [*pattern.sizes, *pattern.chunks]
        self._ring = pattern.ring(session.plan.workers) is not None
        self._at = 0
        self._sizes = len(pattern.sizes)

    def take(self, frames: Sequence[Matrix], rounds: Sequence[Sequence[float]], wrong: int, line: Lines) -> None:
        """Record one result; the ring only becomes the limit. Raises `WrongResult` if a byte is wrong."""
        from merge_bench.probe.shared.exchange_matrix import Traffic, figures, mean_message

        results = figures(Traffic.of(frames), rounds, self._limit)
        size, ring = mean_message(frames), self._ring
        if ring:
            self._limit, self._from, self._ring = results["bandwidth_bytes_per_second"], RING, False
        else:
            uneven, self._at = self._at >= self._sizes, self._at + 1
            chunk = self._rows[self._at - 1] if uneven else None
            test = f"{self._backend}_{UNEVEN if uneven else EQUAL}"
            self._session.writer.write(
                line(
                    probe=NAME,
                    test=test,
                    size=size,
                    count=chunk,
                    iterations=len(rounds[0]),
                    wrong=wrong,
                    limit_from=self._from,
                    **results,
                )
            )
            self._session.progress.phase(f"{self._backend}: {format_bytes(size)} to each rank")
        if wrong:
            where = "the ring" if ring else f"messages of {format_bytes(size)}"
            raise WrongResult(f"all-to-all over {self._backend}: {wrong:,} bytes that arrived are wrong, with {where}")


@dataclass(frozen=True)
class InWorkers(Probe):
    """An exchange between the workers of a cluster."""

    pattern: Pattern
    name = NAME

    def prepare(self, prepared: PlannedRun) -> PlannedRun:
        return at_least_two(prepared)

    def exchange_all(
        self,
        session: Session,
        backend: str,
        prepare: Callable[[list[Matrix]], list[float]],
        method: Callable[[str], str],
        **fields: Any,
    ) -> None:
        """Exchange what the pattern says, and record it.

        `prepare`: makes the messages on every worker and gives the seconds of its fastest warm-up. `method`: what
        measures a test. `fields`: of every row.
        """
        from merge_bench.probe.shared.placements import placement
        from merge_bench.probe.workers import exchanging
        from merge_bench.records.schema import ProbeLine

        def line(**figures: Any) -> ProbeLine:
            return ProbeLine(
                launch=session.launch,
                method=method(figures["test"]),
                memory="cuda" if self.device_memory else "host",
                placement=placement(session.descriptions),
                ranks=[member.rank for member in session.members],
                hosts=[member.host for member in session.members],
                **fields,
                **figures,
            )

        recorder = Recorder(session, self.pattern, backend)
        for frames in matrices(session, self.pattern):
            rounds = self.pattern.rounds(max(prepare(frames)))
            measured = session.workers.on_all(exchanging.measure, rounds)
            recorder.take(frames, [each.seconds for each in measured], sum(each.wrong for each in measured), line)


@dataclass(frozen=True)
class OverUcx(InWorkers):
    """Our data plane."""

    device_memory: bool = False
    exchange = "ucx"

    def describe(self) -> dict[str, Any]:
        return {**self.pattern.describe(UCX), **({"memory": "cuda"} if self.device_memory else {})}

    def usual_seconds(self, prepared: PlannedRun) -> float | None:
        """As of `Pattern`, and the start of a cluster."""
        return self.pattern.usual_seconds(prepared, 2.5)

    def measure(self, session: Session) -> None:
        """Connect the workers as for a merge, and exchange."""
        from merge_bench.campaign.recording import record_connections
        from merge_bench.host import machine
        from merge_bench.merge import worker
        from merge_bench.probe.shared.placements import CROWDED, as_requested
        from merge_bench.probe.workers import exchanging

        workers = session.workers
        session.progress.phase("connecting")
        session.connect(workers.on_all(worker.open_ucx, session.plan, ranked=True, after=(session.topic,)))
        session.record_launch()
        record_connections(session)
        if machine.shortage((each.host, each.hardware) for each in session.descriptions):
            session.warn(CROWDED)
        first = session.descriptions[0]
        endpoints = [endpoint for peers in workers.on_all(worker.endpoints) for endpoint in peers.values()]
        lanes = list(dict.fromkeys(lane for lanes, _ in endpoints for lane in lanes))
        self.exchange_all(
            session,
            UCX,
            lambda frames: workers.on_all(exchanging.prepare, frames, device=self.device_memory),
            lambda test: f"tagged messages of UCX {first.ucx.version}, as in a merge",
            requested=requested(first.ucx.config),
            selected=lanes,
            as_requested=as_requested(first.environment.get("UCX_TLS"), lanes),
        )
        workers.on_all(worker.close)


@dataclass(frozen=True)
class OverNccl(InWorkers):
    """ncclAlltoAll, and grouped sends and receives, between GPUs."""

    device_memory = True

    def describe(self) -> dict[str, Any]:
        return self.pattern.describe(NCCL)

    def prepare(self, prepared: PlannedRun) -> PlannedRun:
        """The same, with at least two workers; checks that NCCL is there."""
        from merge_bench.probe.workers import nccl_ranks

        if prepared.settings.workers_per_gpu > 1:
            raise UsageError("--backend nccl needs a GPU for each rank; use --workers-per-gpu 1")
        if prepared.launcher.starts_here:
            nccl_ranks.version()
        return super().prepare(prepared)

    def measure(self, session: Session) -> None:
        """Connect the workers, and exchange."""
        from merge_bench.probe.workers import nccl_ranks

        workers = session.workers
        session.record_launch()
        session.progress.phase("connecting")
        identifier = workers.on_one(0, nccl_ranks.new_id)
        version, *_ = workers.on_all(nccl_ranks.connect, session.plan.workers, identifier, ranked=True)
        settings = session.descriptions[0].environment
        uneven, even = "grouped ncclSend and ncclRecv", "ncclAlltoAll"
        self.exchange_all(
            session,
            NCCL,
            lambda frames: workers.on_all(nccl_ranks.prepare, frames, ranked=True),
            lambda test: f"{version}, {uneven if test.endswith(UNEVEN) else even}",
            requested={name: value for name, value in settings.items() if name.startswith("NCCL_")},
        )
        workers.on_all(nccl_ranks.close)


@dataclass(frozen=True, kw_only=True)
class OverMpiRanks(OverMpi):
    """MPI_Alltoall and MPI_Alltoallv, in ranks that mpirun starts."""

    pattern: Pattern
    name = NAME

    def describe(self) -> dict[str, Any]:
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
            "probe": NAME,
            "sizes": pattern.sizes,
            "ring": pattern.ring(session.plan.workers),
            "tables": [dataclasses.asdict(spec) for spec in pattern.tables(session.job.prepared)],
            "iterations": pattern.iterations,
        }
        recorder = Recorder(session, pattern, MPI)
        for row in session.run(work, ExchangeRow):

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
        return any(backend.device_memory for backend in self.backends)

    @property
    def parts(self) -> tuple[Probe, ...]:
        return self.backends

    def cautions(self) -> tuple[Caution, ...]:
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
    """Without ``--backend`` MPI takes part where it is installed; an MPI that is named and missing is a UsageError."""
    chunks = options.chunk or ()
    sizes = parse_sizes(options.sizes) if options.sizes else () if chunks else parse_sizes(SIZES)
    if sizes and sizes[-1] > LARGEST_MESSAGE:
        raise UsageError(f"--sizes {options.sizes}: MPI allows messages of at most {LARGEST_MESSAGE} bytes")
    pattern = Pattern(
        sizes=sizes,
        chunks=(chunks,) if isinstance(chunks, int) else tuple(chunks),
        iterations=options.iterations,
        limit=options.link_limit,
    )
    backend_names = options.backend
    names = parse_names("--backend", backend_names, (UCX, MPI, NCCL)) if backend_names else (UCX, MPI)
    over_mpi = OverMpiRanks(pattern=pattern, iterations=pattern.iterations, mpirun_asked=options.mpirun)
    left_out = None
    if not backend_names:
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
    backends = {UCX: OverUcx(pattern, device_memory=NCCL in names), MPI: over_mpi, NCCL: OverNccl(pattern)}
    return AllToAll(tuple(backends[name] for name in names), left_out)


def in_rank(rank: Rank) -> None:
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
