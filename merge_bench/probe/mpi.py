"""`probe mpi`: point-to-point over MPI, as a ping-pong of two kinds of sends, or as OSU defines it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from merge_bench.errors import LaunchFailed, RunFailed, UsageError
from merge_bench.probe.ranks.rules import LARGEST_MESSAGE, OSU, PING_PONG, WINDOW, Timed
from merge_bench.probe.shared import measures, options
from merge_bench.probe.shared.base import ProbeKind
from merge_bench.probe.shared.options import Option
from merge_bench.probe.shared.placements import as_requested, pairs, placements_of, places, transports_asked
from merge_bench.probe.shared.sizes import parse_sizes
from merge_bench.records.placements import EVERY_PAIR, ONE_HOST, TWO_HOSTS
from merge_bench.units import format_bytes

if TYPE_CHECKING:
    from merge_bench.campaign.jobs import Job
    from merge_bench.campaign.prepare import Prepared
    from merge_bench.campaign.progress import Progress
    from merge_bench.probe.ranks.launch import Message, RankSession
    from merge_bench.probe.ranks.mpirun import Hosts, Mpi
    from merge_bench.probe.ranks.rank import Rank
    from merge_bench.records.schema import ProbeLine
    from merge_bench.records.writer import CampaignWriter

SIZES = {
    PING_PONG: {ONE_HOST: "1K..1000K+1K", TWO_HOSTS: "1K..100K+1K"},
    OSU: {ONE_HOST: "1..4M", TWO_HOSTS: "1..4M"},
}


@dataclass(frozen=True)
class MpiProbe:
    """Messages between two ranks. `sizes` and `iterations` are None where the pattern's own hold; `mpirun_asked`: by
    ``--mpirun``."""

    pattern: str
    sizes: str | None
    iterations: int | None
    placements: tuple[str, ...]
    mpirun_asked: str | None = None
    name: str = "mpi"
    device_memory: bool = False

    def describe(self) -> dict[str, Any]:
        """What is asked for; the sizes as they were written."""
        return {
            "pattern": self.pattern, "sizes": self.sizes or SIZES[self.pattern], "iterations": self.iterations,
            "placements": list(self.placements) or "one-host, and two-hosts where there are two",
            "mpirun": self._mpi().mpirun,
        }  # fmt: skip

    def prepare(self, prepared: Prepared) -> Prepared:
        """Two ranks on the first host, one on the second, or all that every pair needs; and an MPI that fits."""
        from merge_bench.probe.ranks import mpirun

        mpirun.check_hosts(self._mpi(), prepared.settings)
        return places(prepared, self._placed(prepared))

    def launch(self, job: Job, writer: CampaignWriter, progress: Progress, index: int) -> int:
        """Measure every placement, one after the other."""
        from merge_bench.probe.ranks.launch import make_launch

        return make_launch(job, writer, progress, index, self._measure_all, self._mpi)

    def _mpi(self) -> Mpi:
        from merge_bench.probe.ranks import mpirun

        return mpirun.find_mpi(self.mpirun_asked)

    def _placed(self, prepared: Prepared) -> tuple[str, ...]:
        known = (ONE_HOST, TWO_HOSTS) if len(prepared.settings.hosts) > 1 else (ONE_HOST,)
        return self.placements or known

    def _measure_all(self, session: RankSession) -> None:
        names = [name for name, count in session.hosts for _ in range(count)]
        where = names
        if len(names) > 2:  # look at all of them once; a rank that is only there would slow the others down
            where = [str(each["host_number"]) for message in session.run({}) for each in _told(message)]
        for a, b, placement in pairs(self._placed(session.job.prepared), where):
            hosts = [(names[a], 2)] if names[a] == names[b] else [(names[a], 1), (names[b], 1)]
            self._measure(session, hosts, (a, b), placement)

    def _measure(self, session: RankSession, hosts: Hosts, ranks: tuple[int, int], placement: str) -> None:
        session.doing = f"while starting ranks {ranks[0]} and {ranks[1]}"
        sizes = self.sizes or SIZES[self.pattern][placement]
        told: Sequence[Mapping[str, Any]] = ()
        work = {"probe": self.name, "pattern": self.pattern, "sizes": sizes, "iterations": self.iterations}
        for message in session.run(work, hosts):
            if message["merge_bench"] == "hello":
                told = _told(message)
                _check_placed(told, placement)
                session.doing = f"while ranks {ranks[0]} and {ranks[1]} measured their first size"
            elif message["merge_bench"] == "row":
                line = row(message, session, ranks, placement, told)
                session.writer.write(line)
                self._tell(session, line, message)

    def _tell(self, session: RankSession, line: ProbeLine, message: Message) -> None:
        from merge_bench.probe.shared import ping_pong_csv

        session.doing = f"after {line.test} at {line.size} bytes, {line.placement}"
        session.progress.phase(f"{line.test}, {line.placement}: {format_bytes(line.size)}")
        if self.pattern != PING_PONG:
            return
        where = line.placement
        if EVERY_PAIR in self.placements:
            where += "-" + "-".join(str(rank) for rank in line.ranks)
        timed = Timed(line.size, line.iterations, message["elapsed"])
        try:
            ping_pong_csv.append(session.writer.folder, line.test, where, session.launch, timed)
        except OSError as error:
            raise RunFailed(f"cannot write CSV in {session.writer.folder}: {error.strerror}") from error


def _told(message: Message) -> Sequence[Mapping[str, Any]]:
    """What the ranks of a ``hello`` told of themselves; () of other messages."""
    told: Sequence[Mapping[str, Any]] = message.get("ranks", ())
    return told


def _check_placed(told: Sequence[Mapping[str, Any]], placement: str) -> None:
    together = told[0]["host_number"] == told[1]["host_number"]
    if together != (placement == ONE_HOST):
        hosts = " and ".join(each["host"] for each in told)
        raise LaunchFailed(f"{placement} was asked for, and MPI placed the two ranks on {hosts}")


def row(
    message: Message, session: RankSession, ranks: Sequence[int], placement: str, told: Sequence[Mapping[str, Any]]
) -> ProbeLine:
    """A ``row`` as the records keep it; `told`: what the two ranks that measured told of themselves."""
    from merge_bench.probe.ranks.mpirun import method
    from merge_bench.records.schema import ProbeLine

    requested = transports_asked(told[0]["environment"])
    how = f"window {WINDOW}" if message["test"] == "osu_bw" else "one message at a time"
    return ProbeLine(
        launch=session.launch, probe=MpiProbe.name, test=message["test"], placement=placement, ranks=list(ranks),
        method=f"{method(session.mpi, told[0]['versions'], told[0]['ucx'])}, {how}",
        hosts=[each["host"] for each in told], size=message["size"], iterations=message["iterations"],
        seconds=message["seconds"],
        bandwidth_bytes_per_second=message["rate"], requested=requested, selected=message["selected"],
        as_requested=as_requested(requested.get("UCX_TLS"), message["selected"]),
    )  # fmt: skip


def make(values: Mapping[str, Any]) -> MpiProbe:
    """The probe that these options ask for.

    Raises
    ------
    UsageError
        If sizes or placements are none.
    """
    if values["sizes"] is not None:
        try:
            largest = parse_sizes(values["sizes"])[-1]
        except ValueError as error:
            raise UsageError(f"--sizes: {error}") from None
        if largest > LARGEST_MESSAGE:
            raise UsageError(f"--sizes: MPI counts bytes with an int, so {largest} is too many for one message")
    return MpiProbe(
        pattern=values["pattern"], sizes=values["sizes"], iterations=values["iterations"],
        placements=placements_of(values["placement"]) or (), mpirun_asked=values["mpirun"],
    )  # fmt: skip


def in_rank(rank: Rank) -> None:
    """What the two ranks do."""
    from merge_bench.probe.ranks import pairs

    pairs.run(rank)


PROBE = ProbeKind(
    name=MpiProbe.name,
    help="Point-to-point over MPI: ping-pong with standard and buffered sends, or OSU's latency and bandwidth.",
    options=(
        options.SIZES,
        options.PLACEMENT,
        options.ITERATIONS,
        Option(
            "pattern",
            "Test to run: ping-pong (standard and buffered sends) or osu (latency and "
            "bandwidth as the OSU benchmarks define them).",
            default=PING_PONG,
            choices=(PING_PONG, OSU),
        ),
        options.MPIRUN,
    ),
    make=make,
    test_kind=partial(measures.by_name, otherwise=measures.PING_PONG),
    in_rank=in_rank,
)
