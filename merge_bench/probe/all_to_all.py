"""`probe all-to-all`: every rank sends to every other, over our data plane or MPI, by size and ranks.

The command line imports this module, so it loads nothing slow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from merge_bench.config import parsers
from merge_bench.config.allowed_transports import select_transport_settings
from merge_bench.config.option import value_option
from merge_bench.config.options import RunOptions
from merge_bench.errors import UsageError, WarningMessage, WrongResult
from merge_bench.probe.ranks.osu_rules import LARGEST_MESSAGE
from merge_bench.probe.shared import ALL_TO_ALL, MpirunProbe, Probe, ProbeKind
from merge_bench.probe.shared.options import (
    CROWDED,
    IterationOptions,
    MpirunOptions,
    SizeOptions,
    are_lanes_as_requested,
    parse_allowed_names,
    parse_message_sizes,
    placement_of_workers,
)
from merge_bench.units import format_bytes, format_count

if TYPE_CHECKING:
    from merge_bench.campaign.cluster_session import Session
    from merge_bench.campaign.make_plan import PlannedRun
    from merge_bench.merge.workload import SyntheticSpec
    from merge_bench.probe.ranks.launch import RankSession
    from merge_bench.probe.ranks.messages import ExchangeRow
    from merge_bench.probe.ranks.rank import Rank
    from merge_bench.probe.shared.exchange_matrix import MessageMatrix
    from merge_bench.records.schema import ProbeLine

UCX, MPI = "ucx", "mpi"
SIZES = "1K..4M"
NAME = "all-to-all"
GIVEN, RING = "given", "ring"
EQUAL, UNEVEN = "alltoall", "alltoallv"
FRACTION, PAYLOAD_COLUMNS = 0.3, 1
"""Fraction of matching rows, and number of payload columns, of the synthetic tables that `run` merges by default."""


@dataclass(frozen=True, kw_only=True)
class ExchangePattern:
    """The exchanges of `probe all-to-all`: one for each of the message sizes `sizes`, one for each of `chunks`.

    `sizes`: bytes of each message. `chunks`: rows per chunk of the merges whose messages are sent. `iterations`: timed
    rounds; None for as many as take half a second. `limit`: bytes per second that the link of a rank carries; None to
    measure the link, if there are more than two ranks.
    """

    sizes: tuple[int, ...]
    chunks: tuple[int, ...]
    iterations: int | None
    limit: float | None

    def describe_for_records(self, backend: str) -> dict[str, Any]:
        """Return the pattern and the name of the backend as plain data for the records."""
        sent = {"sizes": list(self.sizes), "chunks": list(self.chunks)}
        return {"backend": backend, **sent, "iterations": self.iterations, "limit": self.limit}

    def ring_message_bytes(self, ranks: int) -> int | None:
        """Return the bytes of a message in the ring exchange, which measures the link limit; None without a ring."""
        largest = max((*self.sizes, *(16 * chunk // ranks for chunk in self.chunks)))
        return largest if self.limit is None and ranks > 2 else None

    def synthetic_tables(self, planned_run: PlannedRun) -> list[SyntheticSpec]:
        """Return synthetic tables, one for each chunk size, whose partitioned rows are sent as messages of a merge."""
        from merge_bench.merge.workload import SyntheticSpec

        plan = planned_run.plan
        return [SyntheticSpec(chunk * plan.workers, FRACTION, plan.seed, PAYLOAD_COLUMNS) for chunk in self.chunks]

    def expected_launch_seconds(self, planned_run: PlannedRun, start_seconds: float) -> float | None:
        """Return the expected seconds of a launch; None if the user set the number of iterations.

        `start_seconds`: seconds until the ranks are ready.

        As measured: 0.6 s for each exchange, and 0.5 µs for each row of a chunk and rank.
        """
        rows = len(self.sizes) + len(self.chunks) + (self.ring_message_bytes(planned_run.plan.workers) is not None)
        tables = 0.5e-6 * sum(self.chunks) * planned_run.plan.workers
        return None if self.iterations else start_seconds + 0.6 * rows + tables


def require_several_workers(planned_run: PlannedRun) -> PlannedRun:
    """Return the planned run unchanged; raises `UsageError` if it has only one worker."""
    if planned_run.plan.workers < 2:
        raise UsageError("all-to-all needs at least two ranks; use --workers 2 or more")
    return planned_run


def record_exchanges(
    session: Session | RankSession,
    pattern: ExchangePattern,
    backend: str,
    exchanges: Iterable[ExchangeRow],
    make_probe_line: Callable[..., ProbeLine],
) -> None:
    """Write the measured exchanges of one launch to the records; the first may be the ring, which gives the link limit.

    Of the ring only its rate is kept. `make_probe_line`: makes a line of the records from an exchange, whether its
    messages differ in size, and the figures that every backend measures. Raises `WrongResult` if a received byte is
    wrong.
    """
    from merge_bench.probe.shared.exchange_matrix import ExchangeTraffic, exchange_row_fields, mean_message_bytes

    limit, limit_origin = pattern.limit, GIVEN if pattern.limit else None
    ring_comes = pattern.ring_message_bytes(session.plan.workers) is not None
    chunks = iter([*(None for _ in pattern.sizes), *pattern.chunks])
    for exchange in exchanges:
        figures = exchange_row_fields(ExchangeTraffic.from_message_matrices(exchange.frames), exchange.rounds, limit)
        size, where = mean_message_bytes(exchange.frames), "the ring"
        if ring_comes:
            limit, limit_origin, ring_comes = figures["bandwidth_bytes_per_second"], RING, False
        else:
            chunk, where = next(chunks), f"messages of {format_bytes(size)}"
            figures |= {"size": size, "count": chunk, "iterations": len(exchange.rounds[0]), "wrong": exchange.wrong}
            test, uneven = f"{backend}_{EQUAL if chunk is None else UNEVEN}", chunk is not None
            line = make_probe_line(exchange, uneven, probe=NAME, test=test, limit_from=limit_origin, **figures)
            session.writer.write(line)
            session.progress.show_phase(f"{backend}: {format_bytes(size)} to each rank")
        if exchange.wrong:
            wrong = f"{exchange.wrong:,} bytes that arrived are wrong, with {where}"
            raise WrongResult(f"all-to-all over {backend}: {wrong}")


@dataclass(frozen=True)
class AllToAllProbeOverUcx(Probe):
    """The launches of `probe all-to-all` in which Dask workers exchange messages over the data plane of merges."""

    pattern: ExchangePattern
    name = NAME
    exchange = "ucx"

    def describe_for_records(self) -> dict[str, Any]:
        return self.pattern.describe_for_records(UCX)

    def adapt_run_to_probe(self, planned_run: PlannedRun) -> PlannedRun:
        return require_several_workers(planned_run)

    def expected_launch_seconds(self, planned_run: PlannedRun) -> float | None:
        return self.pattern.expected_launch_seconds(planned_run, 2.5)

    def measure_and_record(self, session: Session) -> None:
        """Connect the workers as for a merge, make every exchange of messages, and write its times to the records."""
        from merge_bench.campaign.recording import record_connections
        from merge_bench.host import machine
        from merge_bench.merge import worker
        from merge_bench.records.schema import ProbeLine

        workers = session.workers
        session.progress.show_phase("connecting")
        session.connect_workers(
            workers.run_on_all_workers(
                worker.open_ucx, session.plan, pass_rank=True, arguments_after_rank=(session.topic,)
            )
        )
        session.record_launch()
        record_connections(session)
        if machine.find_core_shortage((each.host, each.hardware) for each in session.descriptions):
            session.record_warning(CROWDED)
        first = session.descriptions[0]
        endpoints = [
            endpoint for peers in workers.run_on_all_workers(worker.describe_endpoints) for endpoint in peers.values()
        ]
        lanes = list(dict.fromkeys(lane for lanes, _ in endpoints for lane in lanes))

        def make_probe_line(exchange: ExchangeRow, has_uneven_sizes: bool, **figures: Any) -> ProbeLine:
            return ProbeLine(
                launch=session.launch,
                method=f"tagged messages of UCX {first.ucx.version}, as in a merge",
                placement=placement_of_workers(session.descriptions),
                ranks=[member.rank for member in session.members],
                hosts=[member.host for member in session.members],
                requested=select_transport_settings(first.ucx.config),
                selected=lanes,
                as_requested=are_lanes_as_requested(first.environment.get("UCX_TLS"), lanes),
                **figures,
            )

        record_exchanges(session, self.pattern, UCX, self._measure_exchanges(session), make_probe_line)
        workers.run_on_all_workers(worker.close_launch)

    def _measure_exchanges(self, session: Session) -> Iterator[ExchangeRow]:
        """Time every exchange of the pattern between the workers, and yield the times and wrong bytes of each."""
        from merge_bench.probe.ranks import all_to_all_workers
        from merge_bench.probe.ranks.messages import ExchangeRow
        from merge_bench.probe.shared.exchange_matrix import rounds_in_half_a_second

        workers = session.workers
        for frames in self._message_matrices(session):
            slowest = max(workers.run_on_all_workers(all_to_all_workers.prepare_and_time_exchange, frames))
            rounds = self.pattern.iterations or rounds_in_half_a_second(slowest)
            measured = workers.run_on_all_workers(all_to_all_workers.measure_exchange_rounds, rounds)
            yield ExchangeRow(frames, [rank.seconds for rank in measured], (), sum(rank.wrong for rank in measured))

    def _message_matrices(self, session: Session) -> Iterator[list[MessageMatrix]]:
        """Yield the message bytes of each exchange, the ring first: a matrix (sender × receiver) for each frame."""
        from merge_bench.probe.ranks import all_to_all_workers
        from merge_bench.probe.shared.exchange_matrix import equal_message_matrix, ring_message_matrix

        pattern, ranks = self.pattern, session.plan.workers
        if size := pattern.ring_message_bytes(ranks):
            yield [ring_message_matrix(size, ranks)]
        for size in pattern.sizes:
            yield [equal_message_matrix(size, ranks)]
        for spec in pattern.synthetic_tables(session.job.prepared):
            session.progress.show_phase(f"sizes of the parcels of {format_count(spec.rows)} rows")
            parcels = session.workers.run_on_all_workers(
                all_to_all_workers.merge_bytes_by_receiver, spec, ranks, pass_rank=True
            )
            left, right = zip(*parcels, strict=True)
            yield [left, right]


@dataclass(frozen=True, kw_only=True)
class AllToAllProbeOverMpi(MpirunProbe):
    """The launches of `probe all-to-all` in which MPI ranks call MPI_Alltoall or MPI_Alltoallv."""

    pattern: ExchangePattern
    name = NAME

    def describe_for_records(self) -> dict[str, Any]:
        return {**self.pattern.describe_for_records(MPI), "mpirun": self.find_mpi().mpirun}

    def adapt_run_to_probe(self, planned_run: PlannedRun) -> PlannedRun:
        """Return the run unchanged; raises `UsageError` with one rank, or if this MPI cannot reach the hosts."""
        return require_several_workers(super().adapt_run_to_probe(planned_run))

    def expected_launch_seconds(self, planned_run: PlannedRun) -> float | None:
        return self.pattern.expected_launch_seconds(planned_run, 1.5)

    def measure_and_record(self, session: RankSession) -> None:
        """Start the ranks, have them make every exchange, and write what they report to the records."""
        from merge_bench.probe.ranks.messages import ExchangeRow

        pattern = self.pattern
        work = {
            "probe": NAME,
            "sizes": pattern.sizes,
            "ring": pattern.ring_message_bytes(session.plan.workers),
            "tables": [dataclasses.asdict(spec) for spec in pattern.synthetic_tables(session.job.prepared)],
            "iterations": pattern.iterations,
        }

        def read_exchanges_from_ranks() -> Iterator[ExchangeRow]:
            for row in session.run_ranks(work, ExchangeRow):
                yield row
                session.doing = "after an exchange"

        def make_probe_line(exchange: ExchangeRow, has_uneven_sizes: bool, **figures: Any) -> ProbeLine:
            method = f"{session.measurement_method_text()}, {'MPI_Alltoallv' if has_uneven_sizes else 'MPI_Alltoall'}"
            return session.make_probe_line(method, exchange.selected, **figures)

        record_exchanges(session, pattern, MPI, read_exchanges_from_ranks(), make_probe_line)


@dataclass(frozen=True)
class AllToAllProbe(Probe):
    """The network measurement `probe all-to-all`: the same exchanges with each backend, in launches of its own."""

    backends: tuple[Probe, ...]
    left_out_warning: WarningMessage | None = None
    name = NAME
    sweeps = True

    @property
    def parts_with_own_launches(self) -> tuple[Probe, ...]:
        return self.backends

    def planning_warnings(self) -> tuple[WarningMessage, ...]:
        return () if self.left_out_warning is None else (self.left_out_warning,)


@dataclass(frozen=True, kw_only=True)
class AllToAllOptions(MpirunOptions, IterationOptions, SizeOptions):
    """Options of `probe all-to-all`: what is exchanged, and with which backends.

    chunk: Send the parcels of a merge with this many rows per worker in each frame; several values are separated by
        commas. [default: only messages of --sizes]
    backend: What exchanges the messages: ucx (the data plane of a merge), mpi (MPI_Alltoall, MPI_Alltoallv); several
        are separated by commas. [default: ucx, and mpi if it is installed]
    link_limit: Bandwidth of each rank's link in one direction, such as 12.5GB/s or 100Gbit/s. [default: measured if
        there are more than two ranks]
    """

    chunk: int | tuple[int, ...] | None = value_option(
        parsers.several_values_parser(parsers.count_parser(1)), None, "ROWS[,ROWS]"
    )
    backend: str | None = value_option(parsers.parse_nonblank_text, None, "NAME[,NAME]")
    link_limit: float | None = value_option(parsers.parse_positive_rate, None, "RATE")


def make_probe(options: AllToAllOptions, run_options: RunOptions) -> AllToAllProbe:
    """Make the all-to-all probe from its options; without ``--backend`` MPI takes part where it is installed.

    Raises UsageError if sizes are wrong, or an MPI that is named is missing.
    """
    chunks = options.chunk or ()
    sizes = parse_message_sizes(options.sizes) if options.sizes else () if chunks else parse_message_sizes(SIZES)
    if sizes and sizes[-1] > LARGEST_MESSAGE:
        raise UsageError(f"--sizes {options.sizes}: MPI allows messages of at most {LARGEST_MESSAGE} bytes")
    chunks = (chunks,) if isinstance(chunks, int) else tuple(chunks)
    pattern = ExchangePattern(sizes=sizes, chunks=chunks, iterations=options.iterations, limit=options.link_limit)
    backend_names = options.backend
    names = parse_allowed_names("--backend", backend_names, (UCX, MPI)) if backend_names else (UCX, MPI)
    over_mpi = AllToAllProbeOverMpi(pattern=pattern, iterations=pattern.iterations, mpirun_asked=options.mpirun)
    left_out_warning = None
    if not backend_names:
        if run_options.scheduler_address or run_options.scheduler_file:
            names = (UCX,)
        try:
            over_mpi.find_mpi()
        except UsageError as reason:
            if options.mpirun:
                raise
            names, left_out_warning = (UCX,), WarningMessage("backend-left-out", f"all-to-all without MPI: {reason}")
    backends: dict[str, Probe] = {UCX: AllToAllProbeOverUcx(pattern), MPI: over_mpi}
    return AllToAllProbe(tuple(backends[name] for name in names), left_out_warning)


def measure_in_rank(rank: Rank) -> None:
    from merge_bench.probe.ranks import mpi_measurements

    mpi_measurements.measure_all_to_all_exchanges(rank)


PROBE = ProbeKind(
    name=NAME,
    help="Every rank sends to every other: our data plane, MPI; by message size and number of ranks (--workers).",
    options=AllToAllOptions,
    make=make_probe,
    other_tests=ALL_TO_ALL,
    in_rank=measure_in_rank,
)
