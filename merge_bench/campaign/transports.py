"""The `transports` command: starts and connects a cluster as `run` does, asks its workers for transports, stops it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from msgspec.structs import replace

from merge_bench.analysis.documents import Pair, TransportsDocument
from merge_bench.analysis.transports import staged_memory_warnings
from merge_bench.campaign.calling_program import Caller
from merge_bench.campaign.cluster_session import Session, host_cautions
from merge_bench.campaign.launch import stop_on_exit
from merge_bench.campaign.make_plan import PlannedRun
from merge_bench.campaign.planned_launches import Job
from merge_bench.campaign.progress import Progress
from merge_bench.campaign.recording import compare_environment, record_lanes
from merge_bench.errors import UsageError
from merge_bench.host.pinning import describe_binding
from merge_bench.merge import worker
from merge_bench.records.writer import CampaignWriter

DEVICE_MESSAGE_BYTES = 1 << 20


def survey_transports(planned: PlannedRun, name: str, progress: Progress, caller: Caller) -> TransportsDocument:
    """Start and connect a cluster, ask its workers for their transports, and stop it; `name`: of the config.

    Raises
    ------
    UsageError
        If there would be only one worker.
    LaunchFailed
        If the cluster does not start or its workers do not connect.
    """
    if planned.plan.workers < 2:
        raise UsageError("`transports` checks pairs of workers; use --workers 2 or more")
    with (
        tempfile.TemporaryDirectory(prefix="merge-bench-transports-") as scratch,
        CampaignWriter.create(Path(scratch), name) as writer,
        caller.surround(writer.logs / "driver.log"),
    ):
        session = Session(Job(planned, name), writer, progress)
        with stop_on_exit(session, writer):
            session.start()
            return _ask_workers(session)


def _ask_workers(session: Session) -> TransportsDocument:
    plan, workers = session.plan, session.workers
    session.progress.phase("connecting")
    session.connect(workers.on_all(worker.open_ucx, plan, ranked=True, after=(session.topic,)))
    if plan.device_memory:
        workers.on_all(worker.swap_device_memory, DEVICE_MESSAGE_BYTES)
    warnings = [*host_cautions(session.launcher, plan, session.settings), *compare_environment(session)]
    record_lanes(session)
    answers = workers.on_all(worker.available_transports)
    bindings = workers.on_all(describe_binding)
    workers.on_all(worker.close)
    lanes = session.lanes
    assert lanes is not None
    return TransportsDocument(
        requested=lanes.requested,
        available={
            member.host: {name: list(devices) for name, devices in answer.items()}
            for member, answer in zip(session.members, answers, strict=True)
        },
        pairs=[
            Pair(
                from_rank=pair.from_rank,
                to_rank=pair.to_rank,
                placement=pair.placement,
                transports=pair.transports,
                protocols=[] if pair.protocols is None else lanes.protocols[pair.protocols],
            )
            for pair in lanes.pairs
        ],
        bindings=[
            replace(each, rank=member.rank, worker=member.name, host=member.host)
            for member, each in zip(session.members, bindings, strict=True)
        ],
        warnings=[*warnings, *staged_memory_warnings(lanes.pairs, lanes.protocols)],
    )
