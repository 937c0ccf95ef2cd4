"""A campaign: one results folder, its head, its launches in order, its end."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import merge_bench
from merge_bench import quiet, signals
from merge_bench.config.reader import ConfigFile
from merge_bench.errors import RunFailed
from merge_bench.launching import Job
from merge_bench.record.schema import CampaignLine, Config, EndLine, RunKey, WarningLine
from merge_bench.record.writer import CampaignWriter
from merge_bench.setup import Prepared

CHECKOUT = Path(__file__).resolve().parent.parent
LaunchOne = Callable[[Job, CampaignWriter, int], int]
"""Makes one launch, by its index, and writes it down; gives its exit status."""


@dataclass(frozen=True)
class Head:
    """What the first line of the records says is going to be done."""

    configs: Sequence[Config]
    plans: Sequence[dict[str, Any]]
    runs: Sequence[RunKey]
    seed: int


def config_line(prepared: Prepared, config: ConfigFile | None) -> Config:
    """A config as the records name it; the built-in defaults are called ``default``."""
    return Config(
        name=config.name if config is not None else "default",
        path=str(config.path) if config is not None else None,
        variables=dict(prepared.settings.environment),
    )


def make_campaign(results: Path, name: str, head: Head, jobs: Sequence[Job], launch: LaunchOne) -> tuple[Path, int]:
    """Make every launch of `jobs` in their order; gives the campaign's folder and the exit status.

    A launch that fails is counted and the next one is made; anything worse, or a signal, ends the campaign.
    """
    with CampaignWriter.create(results, name) as writer:
        writer.write(
            CampaignLine(
                campaign_id=writer.campaign_id, argv=sys.argv, version=merge_bench.__version__, git=git_state(),
                configs=list(head.configs), seed=head.seed, plans=list(head.plans), runs=list(head.runs),
            )
        )  # fmt: skip
        told = dict.fromkeys(warning for job in jobs for warning in job.prepared.warnings)
        for code, message, remedy in told:
            writer.write(WarningLine(code=code, message=message, remedy=remedy))
        status = 0
        with signals.raising(), quiet.libraries(writer.logs / "driver.log"):
            for index, job in enumerate(jobs):
                status = max(status, launch(job, writer, index))
                if status not in (0, RunFailed.exit_status) or signals.received():
                    break
        with contextlib.suppress(RunFailed):
            writer.write(EndLine(status=status))
        return writer.folder, status


def git_state() -> dict[str, Any] | None:
    """Commit of this checkout, whether it has local changes, and the host; None where there is no git."""
    try:
        commit = subprocess.run(
            ["git", "-C", str(CHECKOUT), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        ).stdout.strip()
        dirty = subprocess.run(
            ["git", "-C", str(CHECKOUT), "status", "--porcelain", "--untracked-files=no"],
            capture_output=True, text=True, timeout=5, check=True,
        ).stdout.strip()  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "dirty": bool(dirty), "host": socket.gethostname()}
