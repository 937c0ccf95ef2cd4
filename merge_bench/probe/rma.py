"""`probe rma`: mean time of a put over message size, with one flush after 1000 puts, and with a flush after each.

IMB calls the two aggregate and non-aggregate. The puts are `ucp_put_nbx` calls in a compiled loop inside the worker, on
the UCX, the context and the endpoints of the data plane.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from merge_bench.config.allowed_transports import select_transport_settings
from merge_bench.config.options import RunOptions
from merge_bench.errors import LaunchFailed, WrongResult
from merge_bench.probe.shared import TIME, Probe, ProbeKind
from merge_bench.probe.shared.options import PairOptions, PairPlacements, are_lanes_as_requested, parse_message_sizes

if TYPE_CHECKING:
    from merge_bench.campaign.cluster_session import Session
    from merge_bench.campaign.make_plan import PlannedRun

SIZES = "8..8M"
PUTS = 1000
MOST_BYTES = 1 << 29
FEWEST = 20


def make_probe(options: PairOptions, run_options: RunOptions) -> RmaProbe:
    """Make the probe of UCX puts from its options; raises UsageError if sizes or placements are wrong."""
    return RmaProbe(
        parse_message_sizes(options.sizes or SIZES),
        PairPlacements.parse_placements(options.placement),
        options.iterations,
    )


@dataclass(frozen=True)
class RmaProbe(Probe):
    """The network measurement `probe rma`: the mean time of a UCX put from one worker to another.

    `count`: puts of every size; None for fewer puts of larger sizes.
    """

    sizes: tuple[int, ...]
    placements: PairPlacements
    count: int | None = None
    name = "rma"
    exchange = "ucx"

    def describe_for_records(self) -> dict[str, Any]:
        return {"sizes": list(self.sizes), "placements": list(self.placements.requested), "iterations": self.count}

    def adapt_run_to_probe(self, planned_run: PlannedRun) -> PlannedRun:
        return self.placements.adapt_run_to_placements(planned_run)

    def expected_launch_seconds(self, planned_run: PlannedRun) -> float | None:
        """Return the expected seconds of a launch; None if the user set the number of puts.

        As measured: 4.9 s for 21 sizes.
        """
        rows = 2 * len(self.sizes) * self.placements.rank_pair_count(planned_run)
        return None if self.count else 2.5 + 0.06 * rows

    def put_count(self, size: int) -> int:
        """Return how many puts of `size` bytes are timed: 1000, or as many as make 512 MiB, but at least 20."""
        return self.count or max(FEWEST, min(PUTS, MOST_BYTES // size))

    def measure_and_record(self, session: Session) -> None:
        """Connect the workers as for a merge, and measure and record the puts of every pair of workers."""
        from merge_bench.campaign.recording import record_connections
        from merge_bench.merge import worker

        workers = session.workers
        session.progress.show_phase("connecting")
        session.connect_workers(
            workers.run_on_all_workers(
                worker.open_ucx, session.plan, pass_rank=True, arguments_after_rank=(session.topic,), puts=True
            )
        )
        session.record_launch()
        record_connections(session)
        hosts = [member.host for member in session.members]
        for pair, placement in self.placements.rank_pairs(session.job.prepared, hosts):
            session.progress.show_phase(f"puts, {placement}, from rank {pair[0]} to rank {pair[1]}")
            self._measure_rank_pair(session, pair, placement)
        workers.run_on_all_workers(worker.close_launch)

    def _measure_rank_pair(self, session: Session, ranks: tuple[int, int], placement: str) -> None:
        """Measure and record the puts of one pair of ranks; raises WrongResult if wrong bytes arrived."""
        from merge_bench.merge import worker
        from merge_bench.probe.ranks import puts
        from merge_bench.records.schema import ProbeLine

        (source, target), workers = ranks, session.workers
        fact = session.descriptions[source]
        sizes = [(size, self.put_count(size)) for size in self.sizes]
        window = workers.run_on_rank(target, puts.register_target_memory, max(self.sizes), source)
        measured, wrong = workers.run_on_ranks(
            {source: (puts.measure_puts, target, window, sizes), target: (puts.check_incoming_puts, source, sizes)}
        )
        workers.run_on_rank(target, puts.free_put_memory, puts.TARGET)
        lanes = workers.run_on_rank(source, worker.describe_endpoints)[target][0]
        hosts, version = [session.members[rank].host for rank in ranks], fact.ucx.version
        if version is None:
            missing = f"rank {source} on {hosts[0]} did not report its UCX version, which the record needs"
            raise LaunchFailed(f"{missing}; run merge-bench doctor on {hosts[0]}", host=hosts[0], rank=source)
        lines = [
            ProbeLine(
                launch=session.launch,
                probe=self.name,
                test=each.test,
                method=f"ucp_put_nbx and ucp_ep_flush_nbx of UCX {version} in a compiled loop",
                placement=placement,
                ranks=list(ranks),
                hosts=hosts,
                size=each.size,
                iterations=each.count,
                seconds=each.seconds / each.count,
                bandwidth_bytes_per_second=each.size * each.count / each.seconds,
                messages_per_second=each.count / each.seconds,
                wrong=bad,
                requested=select_transport_settings(fact.ucx.config),
                selected=lanes,
                as_requested=are_lanes_as_requested(fact.environment.get("UCX_TLS"), lanes),
            )
            for each, bad in zip(measured, wrong, strict=True)
        ]
        for line in lines:
            session.writer.write(line)
        for line in lines:
            if line.wrong:
                raise WrongResult(
                    f"{line.test} wrote wrong data into the memory of rank {target}, with puts of {line.size} bytes"
                )


PROBE = ProbeKind(
    name=RmaProbe.name,
    help="Mean time of a UCX put for each message size: with one flush after 1000 puts, or a flush after each put.",
    options=PairOptions,
    make=make_probe,
    latency=TIME,
)
