"""The `transports` command: a cluster launched as `run` would launch it, connected, asked, and taken down; no merge."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from merge_bench import evidence, quiet, signals, steps
from merge_bench.config.options import CLUSTER_OPTIONS, without_merge
from merge_bench.errors import MergeBenchError, UsageError
from merge_bench.launch.choose import make_launcher
from merge_bench.record.schema import LanesLine, WarningLine
from merge_bench.record.writer import CampaignWriter
from merge_bench.report.live import Progress
from merge_bench.setup import Prepared

if TYPE_CHECKING:
    from merge_bench.driver import LaunchRun

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


def survey(prepared: Prepared, name: str, progress: Progress) -> Survey:
    """Launch, connect, ask, take down.

    Raises
    ------
    UsageError
        If there would be only one worker.
    LaunchFailed
        If the cluster does not come up or does not connect.
    """
    from merge_bench.client import connect
    from merge_bench.driver import LaunchRun
    from merge_bench.launching import explain, take_down

    plan, settings = prepared.plan, prepared.settings
    if plan.workers < 2:
        raise UsageError("transports looks at pairs of workers, and there is only one: --workers 2")
    launcher = make_launcher(settings)
    with (
        tempfile.TemporaryDirectory(prefix="merge-bench-transports-") as scratch,
        CampaignWriter.create(Path(scratch), name) as writer,
        signals.raising(),
        quiet.libraries(writer.logs / "driver.log"),
    ):
        client = conversation = None
        well, started = False, time.monotonic()
        try:
            progress.phase("launching")
            access = launcher.start(plan, settings, writer.logs, "")
            up_by = time.monotonic() + settings.start_timeout
            client = connect(access, launcher, settings, up_by)
            conversation = LaunchRun(
                client, launcher, plan, settings, writer, progress, launch=0, started=started, up_by=up_by
            )  # fmt: skip
            conversation.gather_workers()
            found = _ask(conversation)
            well = True
            return found
        except MergeBenchError:
            raise
        except Exception as error:
            raise explain(error, launcher, conversation, writer) from error
        finally:
            with signals.ignored():
                progress.phase("taking the cluster down")
                take_down(launcher, client, conversation, well=well)


def _ask(run: LaunchRun) -> Survey:
    run.progress.phase("connecting")
    run.connect_all(run.on_all(steps.open_bare, run.plan, ranked=True, after=(run.topic,)))
    if run.plan.engine == "cudf":
        run.on_all(steps.swap_device_memory, DEVICE_MESSAGE_BYTES)
    warnings = evidence.cautions(run) + evidence.compare_environment(run)
    evidence.record_lanes(run)
    answers = run.on_all(steps.available_transports)
    available = {member.host: answer for member, answer in zip(run.members, answers, strict=True)}
    run.on_all(steps.close)
    assert run.lanes is not None
    return Survey(run.lanes, available, tuple(warnings))
