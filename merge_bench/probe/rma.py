"""`probe rma`: mean time of a put over message size, 1000 puts with one flush, and with a flush after each.

IMB calls the two aggregate and non-aggregate. The puts are `ucp_put_nbx` of the very UCX, context and endpoints that
the data plane uses, in a compiled loop inside the worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from merge_bench.errors import LaunchFailed, WrongResult
from merge_bench.probe.shared import options
from merge_bench.probe.shared.base import ProbeKind
from merge_bench.probe.shared.measures import TIME
from merge_bench.probe.shared.placements import as_requested, pairs, placements_of, places
from merge_bench.probe.shared.sizes import sizes_of
from merge_bench.records.placements import ONE_HOST, TWO_HOSTS

if TYPE_CHECKING:
    from merge_bench.campaign.jobs import Job
    from merge_bench.campaign.prepare import Prepared
    from merge_bench.campaign.progress import Progress
    from merge_bench.campaign.session import Session
    from merge_bench.records.writer import CampaignWriter

SIZES = "8..8M"
PUTS = 1000
MOST_BYTES = 1 << 29
FEWEST = 20


def make(values: Mapping[str, Any]) -> Rma:
    """The measurement that these options describe."""
    return Rma(sizes_of(values["sizes"], SIZES), placements_of(values["placement"]), values["iterations"])


@dataclass(frozen=True)
class Rma:
    """`placements` None: two-hosts where there are two, else one-host. `count`: puts of every size, None for 1000."""

    sizes: tuple[int, ...]
    placements: tuple[str, ...] | None
    count: int | None = None
    name: str = "rma"
    device_memory: bool = False

    def describe(self) -> dict[str, Any]:
        """The plan in the records."""
        return {"sizes": list(self.sizes), "placements": list(self.placements or ()), "iterations": self.count}

    def prepare(self, prepared: Prepared) -> Prepared:
        """Two places, or what `placements` asks for."""
        return places(prepared, self._placements(prepared))

    def launch(self, job: Job, writer: CampaignWriter, progress: Progress, index: int) -> int:
        """A cluster, connected as for a merge, in which the first rank of every pair puts."""
        from merge_bench.campaign.launch import make_launch
        from merge_bench.campaign.session import DATA_PLANE

        return make_launch(job, writer, progress, index, self._measure, modules=(DATA_PLANE,))

    def puts(self, size: int) -> int:
        """How many: 1000, and of large ones as many as make 512 MiB, but at least 20."""
        return self.count or max(FEWEST, min(PUTS, MOST_BYTES // size))

    def _placements(self, prepared: Prepared) -> tuple[str, ...]:
        if self.placements is not None:
            return self.placements
        return (TWO_HOSTS,) if len(prepared.settings.hosts) > 1 else (ONE_HOST,)

    def _measure(self, session: Session) -> None:
        from merge_bench.campaign.launch_record import record_connections
        from merge_bench.merge import steps

        workers = session.workers
        session.progress.phase("connecting")
        session.connect(workers.on_all(steps.open_bare, session.plan, ranked=True, after=(session.topic,), puts=True))
        session.record_launch()
        record_connections(session)
        hosts = [member.host for member in session.members]
        for first, second, placement in pairs(self._placements(session.job.prepared), hosts):
            session.progress.phase(f"puts, {placement}, rank {first} into rank {second}")
            self._pair(session, (first, second), placement)
        workers.on_all(steps.close)

    def _pair(self, session: Session, ranks: tuple[int, int], placement: str) -> None:
        """Measure and record one pair; wrong bytes are recorded too, and end the launch."""
        from merge_bench.campaign.launch_record import requested
        from merge_bench.merge import steps
        from merge_bench.probe.workers import putting
        from merge_bench.records.schema import ProbeLine

        (source, target), workers = ranks, session.workers
        fact = session.facts[source]
        sizes = [(size, self.puts(size)) for size in self.sizes]
        window = workers.on_one(target, putting.hold, max(self.sizes), source)
        measured, wrong = workers.on_some(
            {
                source: (putting.put, target, window, sizes),
                target: (putting.drive, source, sizes),
            }
        )
        workers.on_one(target, putting.release, putting.TARGET)
        lanes = workers.on_one(source, steps.endpoints)[target][0]
        version = fact["ucx"].get("version")
        if version is None:
            raise LaunchFailed(f"rank {source} does not know its UCX", rank=source)
        lines = [
            ProbeLine(
                launch=session.launch, probe=self.name, test=each.test,
                method=f"ucp_put_nbx and ucp_ep_flush_nbx of UCX {version} in a compiled loop",
                placement=placement, ranks=list(ranks), hosts=[session.members[rank].host for rank in ranks],
                size=each.size, iterations=each.count, seconds=each.seconds / each.count,
                bandwidth_bytes_per_second=each.size * each.count / each.seconds,
                messages_per_second=each.count / each.seconds, wrong=bad, requested=requested(fact), selected=lanes,
                as_requested=as_requested(fact["environment"].get("UCX_TLS"), lanes),
            )
            for each, bad in zip(measured, wrong, strict=True)
        ]  # fmt: skip
        for line in lines:
            session.writer.write(line)
        bad = next((line for line in lines if line.wrong), None)
        if bad is not None:
            raise WrongResult(f"{bad.test} of {bad.size} bytes left wrong bytes in the memory of rank {target}")


PROBE = ProbeKind(
    name=Rma.name,
    help="Mean time of a put over message size: 1000 puts and one flush, and a flush after every put.",
    options=(options.SIZES, options.PLACEMENT, options.ITERATIONS),
    make=make,
    latency=TIME,
)
