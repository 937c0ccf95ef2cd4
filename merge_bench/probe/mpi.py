"""`probe mpi`: point-to-point over MPI: a ping-pong with two kinds of sends, or the tests of OSU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from merge_bench.config.option import choice_option, flag_option
from merge_bench.config.options import RunOptions
from merge_bench.errors import LaunchFailed, UsageError
from merge_bench.probe import shared
from merge_bench.probe.ranks.osu_rules import LARGEST_MESSAGE, OSU, PING_PONG, WINDOW
from merge_bench.probe.shared import MpirunProbe, ProbeKind
from merge_bench.probe.shared.options import MpirunOptions, PairOptions, PairPlacements, parse_message_sizes
from merge_bench.records import EVERY_PAIR, ONE_HOST, TWO_HOSTS
from merge_bench.units import format_bytes

if TYPE_CHECKING:
    from merge_bench.campaign.make_plan import PlannedRun
    from merge_bench.probe.ranks.launch import RankSession
    from merge_bench.probe.ranks.rank import Rank

SIZES = {pattern: {ONE_HOST: sizes, TWO_HOSTS: sizes} for pattern, sizes in ((PING_PONG, "1K..1M"), (OSU, "1..4M"))}
PING_PONG_SECONDS, OSU_SECONDS = 0.24, 0.07
"""Seconds that a row of each pattern takes, on two cores."""


@dataclass(frozen=True, kw_only=True)
class MpiProbe(MpirunProbe):
    """The network measurement `probe mpi`: messages between two MPI ranks.

    `pattern`: ping-pong or the tests of OSU. `sizes`, `iterations`: None for the defaults of the pattern.
    """

    pattern: str
    sizes: str | None
    placements: PairPlacements
    name = "mpi"

    def describe_for_records(self) -> dict[str, Any]:
        """Return what is measured as plain data for the records, with the sizes as written on the command line."""
        return {
            "pattern": self.pattern,
            "sizes": self.sizes or SIZES[self.pattern],
            "iterations": self.iterations,
            "placements": list(self.placements.requested) or "one-host, and two-hosts where there are two",
            "mpirun": self.find_mpi().mpirun,
        }

    def adapt_run_to_probe(self, planned_run: PlannedRun) -> PlannedRun:
        """Return the run with as many ranks as the placements need: one pair on one host, on two, or every pair.

        Raises UsageError if this MPI cannot start ranks on the hosts.
        """
        return self.placements.adapt_run_to_placements(super().adapt_run_to_probe(planned_run))

    def expected_launch_seconds(self, planned_run: PlannedRun) -> float | None:
        """Return the expected seconds of a launch; None if the user set the number of iterations.

        As measured: 474 s for 2002 rows of a ping-pong, 4.5 s for 46 rows of OSU's tests.
        """
        sizes = len(parse_message_sizes(self.sizes or SIZES[self.pattern][ONE_HOST]))
        rows = 2 * sizes + (2 if self.pattern == PING_PONG else 0)
        row_seconds = PING_PONG_SECONDS if self.pattern == PING_PONG else OSU_SECONDS
        return None if self.iterations else 1.5 + row_seconds * rows * self.placements.rank_pair_count(planned_run)

    def measure_and_record(self, session: RankSession) -> None:
        """Measure every pair of MPI ranks, one after the other, and write each row to the records."""
        from merge_bench.probe.ranks.messages import MeasuredRow

        host_of_rank = [name for name, count in session.hosts for _ in range(count)]
        host_ids = host_of_rank
        if len(host_of_rank) > 2:  # one look at all ranks; later only two run, because idle ranks would slow them down
            list(session.run_ranks({}, MeasuredRow))
            host_ids = [str(number) for number in session.host_numbers]
        for pair, placement in self.placements.rank_pairs(session.job.prepared, host_ids):
            self._measure_rank_pair(session, pair, placement, [host_of_rank[rank] for rank in pair])

    def _measure_rank_pair(self, session: RankSession, pair: tuple[int, int], placement: str, hosts: list[str]) -> None:
        from merge_bench.probe.ranks.messages import MeasuredRow
        from merge_bench.probe.shared import stored_rows

        session.doing = f"while starting ranks {pair[0]} and {pair[1]}"
        sizes = self.sizes or SIZES[self.pattern][placement]
        work = {"probe": self.name, "pattern": self.pattern, "sizes": sizes, "iterations": self.iterations}
        rows = session.run_ranks(work, MeasuredRow, [(host, hosts.count(host)) for host in dict.fromkeys(hosts)])
        if (len(set(session.host_numbers)) == 1) != (placement == ONE_HOST):
            actual = " and ".join(worker.host for worker in session.workers)
            raise LaunchFailed(f"placement {placement} was requested, but MPI started the two ranks on {actual}")
        session.doing = f"while ranks {pair[0]} and {pair[1]} measured the first message size"
        place = f"{placement}-{pair[0]}-{pair[1]}" if EVERY_PAIR in self.placements.requested else placement
        for row in rows:
            how = f"window {WINDOW}" if row.test == "osu_bw" else "one message at a time"
            line = session.make_probe_line(
                f"{session.measurement_method_text()}, {how}",
                row.selected,
                probe=self.name,
                test=row.test,
                placement=placement,
                ranks=list(pair),
                size=row.size,
                iterations=row.iterations,
                seconds=row.seconds[0],
                bandwidth_bytes_per_second=row.rate,
            )
            session.writer.write(line)
            session.doing = f"after {row.test} with messages of {row.size} bytes ({placement})"
            session.progress.show_phase(f"{row.test}, {placement}: {format_bytes(row.size)}")
            if self.pattern == PING_PONG:
                stored_rows.append_ping_pong_csv_row(session.writer.folder, place, line)


@dataclass(frozen=True, kw_only=True)
class MpiOptions(MpirunOptions, PairOptions):
    """Options of `probe mpi`: what is sent, and what is printed.

    pattern: Test to run. ping-pong: standard and buffered sends; osu: latency and bandwidth as in the OSU benchmarks.
    details: Print the tables of all sizes instead of a summary.
    """

    pattern: str = choice_option(f"{PING_PONG}|{OSU}", PING_PONG)
    details: bool = flag_option()


def make_probe(options: MpiOptions, run_options: RunOptions) -> MpiProbe:
    """Make the MPI probe from its options; raises UsageError if sizes or placements are wrong."""
    sizes = options.sizes
    if sizes is not None and parse_message_sizes(sizes)[-1] > LARGEST_MESSAGE:
        raise UsageError(f"--sizes {sizes}: MPI allows messages of at most {LARGEST_MESSAGE} bytes")
    return MpiProbe(
        pattern=options.pattern,
        sizes=sizes,
        iterations=options.iterations,
        placements=PairPlacements.parse_placements(options.placement, one_host_always=True),
        mpirun_asked=options.mpirun,
    )


def measure_in_rank(rank: Rank) -> None:
    from merge_bench.probe.ranks import mpi_measurements

    mpi_measurements.measure_rank_pair(rank)


PROBE = ProbeKind(
    name=MpiProbe.name,
    help="MPI messages between two ranks: ping-pong (standard and buffered sends), or OSU latency and bandwidth tests.",
    options=MpiOptions,
    make=make_probe,
    other_tests=shared.PING_PONG,
    in_rank=measure_in_rank,
)
