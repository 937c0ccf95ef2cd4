"""The `transports` command: a cluster launched as `run` would launch it, connected, asked, and taken down; no merge."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from merge_bench.campaign.jobs import Job
from merge_bench.campaign.launch import ended
from merge_bench.campaign.launch_record import compare_environment, record_lanes
from merge_bench.campaign.prepare import Prepared
from merge_bench.campaign.program import Program
from merge_bench.campaign.progress import Progress
from merge_bench.campaign.session import Session, cautions
from merge_bench.config.options import CLUSTER_OPTIONS, without_merge
from merge_bench.errors import UsageError
from merge_bench.merge import steps
from merge_bench.records.schema import LanesLine, WarningLine
from merge_bench.records.writer import CampaignWriter

FIXED = without_merge(CLUSTER_OPTIONS)
DEVICE_MESSAGE_BYTES = 1 << 20


@dataclass(frozen=True)
class Survey:
    """What was found: the lanes, what each host could use (devices by transport), and settings that differ."""

    lanes: LanesLine
    available: dict[str, dict[str, tuple[str, ...]]]
    warnings: tuple[WarningLine, ...]

    def to_json(self) -> dict[str, Any]:
        """The document of ``transports --json``."""
        return {
            "requested": dict(self.lanes.requested),
            "available": {
                host: {name: list(devices) for name, devices in transports.items()}
                for host, transports in self.available.items()
            },
            "pairs": [
                {
                    "from": pair.from_rank,
                    "to": pair.to_rank,
                    "placement": pair.placement,
                    "transports": list(pair.transports),
                    "protocols": []
                    if pair.protocols is None
                    else msgspec.to_builtins(self.lanes.protocols[pair.protocols]),
                }
                for pair in self.lanes.pairs
            ],
            "warnings": [{"code": line.code, "message": line.message, "remedy": line.remedy} for line in self.warnings],
        }


def survey(prepared: Prepared, name: str, progress: Progress, program: Program) -> Survey:
    """Launch, connect, ask, take down; `name`: of the config.

    Raises
    ------
    UsageError
        If there would be only one worker.
    LaunchFailed
        If the cluster does not come up or does not connect.
    """
    if prepared.plan.workers < 2:
        raise UsageError("transports looks at pairs of workers, and there is only one: --workers 2")
    with (
        tempfile.TemporaryDirectory(prefix="merge-bench-transports-") as scratch,
        CampaignWriter.create(Path(scratch), name) as writer,
        program.surround(writer.logs / "driver.log"),
    ):
        session = Session(Job(prepared, name), writer, progress)
        with ended(session, writer):
            session.start()
            return _ask(session)


def _ask(session: Session) -> Survey:
    plan, workers = session.plan, session.workers
    session.progress.phase("connecting")
    session.connect(workers.on_all(steps.open_bare, plan, ranked=True, after=(session.topic,)))
    if plan.device_memory:
        workers.on_all(steps.swap_device_memory, DEVICE_MESSAGE_BYTES)
    warnings = cautions(session.launcher, plan, session.settings, session.launch) + compare_environment(session)
    record_lanes(session)
    answers = workers.on_all(steps.available_transports)
    available = {member.host: answer for member, answer in zip(session.members, answers, strict=True)}
    workers.on_all(steps.close)
    assert session.lanes is not None
    return Survey(session.lanes, available, tuple(warnings))
