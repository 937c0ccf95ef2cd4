"""Finding the campaign that the same command began and did not finish."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import merge_bench
from merge_bench.errors import MergeBenchError, RunFailed
from merge_bench.launching import Head, Job
from merge_bench.record.campaign import INTERRUPTED, Campaign, Launch
from merge_bench.record.reader import read_campaign
from merge_bench.record.schema import CampaignLine, FailureLine, LaunchEndLine
from merge_bench.record.writer import RECORDS, CampaignWriter


@dataclass(frozen=True)
class Found:
    """A campaign to go on with: the jobs that are left, the index of the next launch, and the status so far."""

    writer: CampaignWriter
    left: list[Job]
    next_launch: int
    status: int
    shown: str


def find(results: Path, head: Head, jobs: Sequence[Job], git: dict[str, Any] | None) -> Found | None:
    """The newest campaign in `results` with the same launches to make, and some of them left; None without one."""

    def left(campaign: Campaign) -> list[Job]:
        made = {key_of(launch) for launch in campaign.launches if not launch.interrupted}
        return [job for job in jobs if (job.config, job.plan, job.block) not in made]

    found = go_on(results, head, git, lambda campaign: bool(left(campaign)))
    if found is None:
        return None
    writer, campaign = found
    ended = [launch.end.status for launch in campaign.launches if launch.end and not launch.interrupted]
    number = max((launch.index for launch in campaign.launches), default=-1) + 1
    missing = left(campaign)
    shown = f"{len(jobs) - len(missing)} of {len(jobs)} launches are there"
    return Found(writer, missing, number, max(ended, default=0), shown)


def go_on(
    results: Path, head: Head, git: dict[str, Any] | None, unfinished: Callable[[Campaign], bool]
) -> tuple[CampaignWriter, Campaign] | None:
    """The newest campaign in `results` that is the same and `unfinished`, open for writing; None where there is none.

    The same: configs with their variables, plans, order (seed), version and commit of the program, and host. One that
    another process is still writing is left alone, and so is one that ended with a wrong result or a gate not met.
    """
    for records in sorted(results.glob(f"*/{RECORDS}"), reverse=True):
        try:
            campaign = read_campaign(records)
            if not _same(campaign.head, head, git) or _over(campaign) or not unfinished(campaign):
                continue
            writer = CampaignWriter.go_on(records.parent)
            if writer is None:
                continue
            campaign = read_campaign(records)  # whoever wrote it may have finished it meanwhile
        except MergeBenchError:
            continue
        if not unfinished(campaign):
            writer.close()
            continue
        for launch in campaign.launches:
            if launch.end is None:
                _end(writer, launch)
        return writer, read_campaign(records)
    return None


def _end(writer: CampaignWriter, launch: Launch) -> None:
    """Close a launch whose driver was killed, so that readers need not guess."""
    config, plan, block = key_of(launch)
    if not launch.failures:
        writer.write(
            FailureLine(
                launch=launch.index, config=config or None, plan=plan, block=block, code=INTERRUPTED,
                message=f"the run ended in mid-launch {launch.index}, which was made again later",
            )
        )  # fmt: skip
    writer.write(LaunchEndLine(launch=launch.index, status=RunFailed.exit_status, seconds=None))


def key_of(launch: Launch) -> tuple[str, int, int | None]:
    """Config, plan and block of a launch."""
    config, plan = launch.key or ("", 0)
    return config, plan, launch.block


def _over(campaign: Campaign) -> bool:
    return campaign.end is not None and campaign.end.status not in (0, RunFailed.exit_status)


def _same(found: CampaignLine, head: Head, git: dict[str, Any] | None) -> bool:
    def configs(listed: Sequence[Any]) -> list[tuple[str, dict[str, str]]]:
        return [(config.name, config.variables) for config in listed]

    def plain(value: object) -> object:
        return msgspec.json.decode(msgspec.json.encode(value))

    return (
        configs(found.configs) == configs(head.configs)
        and plain(found.plans) == plain(list(head.plans))
        and list(found.runs) == list(head.runs)
        and found.seed == head.seed
        and found.version == merge_bench.__version__
        and (found.git or {}).get("commit") == (git or {}).get("commit")
        and (found.git or {}).get("dirty") == (git or {}).get("dirty")
        and (found.git or {}).get("host", socket.gethostname()) == socket.gethostname()
    )
