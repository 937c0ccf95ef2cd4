"""A campaign: one results folder, its head, its launches in order, its end."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import merge_bench
from merge_bench import quiet, resuming, signals
from merge_bench.config.reader import ConfigFile
from merge_bench.errors import RunFailed
from merge_bench.launching import Head, Job
from merge_bench.record.schema import CampaignLine, Config, EndLine, WarningLine
from merge_bench.record.writer import CampaignWriter
from merge_bench.setup import Prepared

CHECKOUT = Path(__file__).resolve().parent.parent
LaunchOne = Callable[[Job, CampaignWriter, int], int]
"""Makes one launch, by its index, and writes it down; gives its exit status."""


def config_line(prepared: Prepared, config: ConfigFile | None) -> Config:
    """A config as the records name it; the built-in defaults are called ``default``."""
    return Config(
        name=config.name if config is not None else "default",
        path=str(config.path) if config is not None else None,
        variables=dict(prepared.settings.environment),
    )


def make_campaign(
    results: Path, name: str, head: Head, jobs: Sequence[Job], launch: LaunchOne, *, resume: bool = True
) -> tuple[Path, int]:
    """Make every launch of `jobs` in their order; gives the campaign's folder and the exit status.

    A launch that fails is counted and the next one is made; anything worse, or a signal, ends the campaign. With
    `resume`, a campaign of several launches that was interrupted is gone on with: what it has is not made again.
    """
    state = git_state()
    found = resuming.find(results, head, jobs, state) if resume and len(jobs) > 1 else None
    with found.writer if found else CampaignWriter.create(results, name) as writer:
        if found:
            print(f"merge_bench: going on with {writer.folder}: {found.shown}", file=sys.stderr)
            status, jobs, first = found.status, found.left, found.next_launch
        else:
            status, first = 0, 0
            begin(writer, head, jobs, state)
        with signals.raising(), quiet.libraries(writer.logs / "driver.log"):
            for index, job in enumerate(jobs, first):
                status = max(status, launch(job, writer, index))
                if status not in (0, RunFailed.exit_status) or signals.received():
                    break
        with contextlib.suppress(RunFailed):
            writer.write(EndLine(status=status))
        return writer.folder, status


def begin(writer: CampaignWriter, head: Head, jobs: Sequence[Job], state: dict[str, Any] | None) -> None:
    """Write the first lines: what is going to be done, and what is known to be wrong before."""
    writer.write(
        CampaignLine(
            campaign_id=writer.campaign_id, argv=sys.argv, version=merge_bench.__version__, git=state,
            configs=list(head.configs), seed=head.seed, plans=list(head.plans), runs=list(head.runs),
        )
    )  # fmt: skip
    told = dict.fromkeys(warning for job in jobs for warning in job.prepared.warnings)
    for code, message, remedy in told:
        writer.write(WarningLine(code=code, message=message, remedy=remedy))


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
