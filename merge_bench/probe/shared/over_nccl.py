"""NCCL as a backend of `probe all-to-all`: workers of a cluster with a GPU each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from merge_bench.errors import UsageError
from merge_bench.probe.shared.base import Probe
from merge_bench.probe.shared.exchange_rows import NAME, UNEVEN, Pattern, Recorder, at_least_two, matrices

if TYPE_CHECKING:
    from merge_bench.campaign.cluster_session import Session
    from merge_bench.campaign.make_plan import PlannedRun
    from merge_bench.records.schema import ProbeLine

NCCL = "nccl"


@dataclass(frozen=True)
class OverNccl(Probe):
    """ncclAlltoAll, and grouped sends and receives, between GPUs."""

    pattern: Pattern
    name = NAME

    @property
    def device_memory(self) -> bool:
        """Its messages are in GPU memory."""
        return True

    def describe(self) -> dict[str, Any]:
        """The plan in the records."""
        return self.pattern.describe(NCCL)

    def prepare(self, prepared: PlannedRun) -> PlannedRun:
        """The same, with at least two workers; checks that NCCL is there."""
        from merge_bench.cluster.launchers import launchers
        from merge_bench.probe.workers import nccl_ranks

        if prepared.settings.workers_per_gpu > 1:
            raise UsageError("--backend nccl needs a GPU for each rank; use --workers-per-gpu 1")
        if launchers()[prepared.settings.launcher].starts_here:
            nccl_ranks.version()
        return at_least_two(prepared)

    def measure(self, session: Session) -> None:
        """Connect the workers, and exchange."""
        from merge_bench.probe.shared.placements import placement
        from merge_bench.probe.workers import exchanging, nccl_ranks
        from merge_bench.records.schema import ProbeLine

        workers, pattern = session.workers, self.pattern
        session.record_launch()
        session.progress.phase("connecting")
        identifier = workers.on_one(0, nccl_ranks.new_id)
        version, *_ = workers.on_all(nccl_ranks.connect, session.plan.workers, identifier, ranked=True)
        settings = session.descriptions[0].environment

        def line(**figures: Any) -> ProbeLine:
            call = "grouped ncclSend and ncclRecv" if figures["test"].endswith(UNEVEN) else "ncclAlltoAll"
            return ProbeLine(
                launch=session.launch, method=f"{version}, {call}", placement=placement(session.descriptions),
                memory="cuda", ranks=[each.rank for each in session.members],
                hosts=[each.host for each in session.members],
                requested={name: value for name, value in settings.items() if name.startswith("NCCL_")}, **figures,
            )  # fmt: skip

        recorder = Recorder(session, pattern, NCCL)
        for frames in matrices(session, pattern):
            rounds = pattern.rounds(max(workers.on_all(nccl_ranks.prepare, frames, ranked=True)))
            measured = workers.on_all(exchanging.measure, rounds)
            recorder.take(frames, [each.seconds for each in measured], sum(each.wrong for each in measured), line)
        workers.on_all(nccl_ranks.close)
