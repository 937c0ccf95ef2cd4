"""Finds an unfinished campaign of the same command, or opens a finished one to add launches."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from merge_bench.campaign.planned_launches import PlannedLaunch
from merge_bench.cluster.dask_commands import THREAD_COUNTS
from merge_bench.config.files import TOKENS
from merge_bench.config.options import BY_VARIABLE
from merge_bench.errors import MergeBenchError, RunFailed, UsageError, WarningMessage, print_message
from merge_bench.host import machine
from merge_bench.host.kernel_files import format_core_list
from merge_bench.records.campaign import INTERRUPTED, Campaign, Launch
from merge_bench.records.reader import read_campaign
from merge_bench.records.recorded_plan import remove_table_names
from merge_bench.records.results_folder import ResultsFolder
from merge_bench.records.schema import CampaignLine, ExtensionLine, FailureLine, LaunchEndLine, WarningLine
from merge_bench.records.writer import CampaignWriter

# Not all of DASK_…: other parts of Dask's configuration hold passwords and tokens, and records are passed around.
PREFIXES = (*machine.RECORDED_PREFIXES, "DASK_DISTRIBUTED__", "DASK_DATAFRAME__")
NAMES = (*THREAD_COUNTS, "LD_LIBRARY_PATH")
_NAMED, _SHORT = 4, 60
"""The most differences that a message names, and the length in characters from which it omits their values."""
CONTINUE_AFTER = (0, RunFailed.exit_status)
"""The exit statuses of a launch after which the campaign makes further launches."""


class ResumedCampaign(NamedTuple):
    """A campaign to continue: its writer, the launches left, the index of the next launch, the exit status so far."""

    writer: CampaignWriter
    left: list[PlannedLaunch]
    next_launch: int
    status: int


def describe_launch_conditions(
    planned_launches: Sequence[PlannedLaunch], source_checksum: str, versions: Mapping[str, str]
) -> dict[str, Any]:
    """Describe the host, software, environment and clusters of these launches: the records' field `surroundings`.

    `source_checksum`: of this package's files; `versions`: of the installed packages.
    """
    environment = {
        name: value
        for name, value in sorted(os.environ.items())
        if (name.startswith(PREFIXES) or name in NAMES) and name not in (*BY_VARIABLE, *TOKENS)
    }
    clusters = {f"{planned_launch.config}/{planned_launch.plan}": planned_launch for planned_launch in planned_launches}
    return {
        "host": socket.gethostname(),
        "cores": format_core_list(os.sched_getaffinity(0)),
        "sources": source_checksum,
        "versions": dict(versions),
        "environment": environment,
        "clusters": {name: _describe_cluster(planned_launch) for name, planned_launch in sorted(clusters.items())},
    }


def _describe_cluster(planned_launch: PlannedLaunch) -> dict[str, Any]:
    settings = planned_launch.prepared.settings
    left_out = ("environment", "results", "sources")  # in the configs; where records go; only how it was said
    described = {field.name: getattr(settings, field.name) for field in fields(settings) if field.name not in left_out}
    return {
        **described,
        "workers": planned_launch.prepared.plan.workers,
        "hosts": [asdict(host) for host in settings.hosts],
    }


def reopen_unfinished_campaign(
    results_folder: Path, campaign_line: CampaignLine, planned_launches: Sequence[PlannedLaunch]
) -> ResumedCampaign | None:
    """Open the newest unfinished campaign of the same command in `results_folder`; None if there is none.

    A campaign with a wrong result, or a gate that was not met, is finished.
    """

    def is_unfinished(campaign: Campaign) -> bool:
        return bool(missing_launches(campaign, planned_launches) or campaign.end is None) and _may_continue(campaign)

    reopened = reopen_newest_campaign(results_folder, campaign_line, is_unfinished)
    return None if reopened is None else _make_resumed_campaign(*reopened, planned_launches)


def reopen_campaign_to_extend(
    result_folder: Path, campaign_line: CampaignLine, planned_launches: Sequence[PlannedLaunch]
) -> ResumedCampaign:
    """Open the campaign in `result_folder` to add those of `planned_launches` that it does not have.

    Its first record may differ from `campaign_line` as in `reopen_newest_campaign`, and in the number of launches. A
    block's order depends only on the seed and the block's number, so the added blocks are those that would have come
    next.

    Raises UsageError, before anything is changed, if anything else differs, or the campaign has this many launches
    already or cannot be written.
    """
    campaign = read_campaign(result_folder)
    folder, wanted = campaign.folder, campaign_line.plans[0]["launches"]
    cannot = f"cannot extend {folder}: "
    recorded, new = (
        _comparable_campaign_fields(head, with_launch_count=False) for head in (campaign.head, campaign_line)
    )
    if differing := list(_differing_value_paths(recorded, new)):
        more = f" and {len(differing) - _NAMED} more" if len(differing) > _NAMED else ""
        raise UsageError(f"{cannot}{', '.join(differing[:_NAMED])}{more} differ; omit --extend to begin a new campaign")
    if _ended_for_good(campaign) or not _may_continue(campaign):
        raise UsageError(f"{cannot}it ended with a wrong result, or a gate that was not met")
    planned = campaign.runs[0].planned_launches
    if wanted < planned or not missing_launches(campaign, planned_launches):
        raise UsageError(f"{folder} has {planned} launches already; name more with --launches")
    try:
        writer = CampaignWriter.resume(folder)
    except RunFailed as error:
        raise UsageError(f"{cannot}{error}") from None
    try:
        write_ends_of_killed_launches(writer, campaign)
        if wanted > planned:
            writer.write(ExtensionLine(launches=wanted, argv=campaign_line.argv, options=campaign_line.options))
            os.utime(folder)  # for indexes of campaigns that have ended
        return _make_resumed_campaign(writer, read_campaign(folder), planned_launches)
    except BaseException:
        writer.close()
        raise


def missing_launches(campaign: Campaign, planned_launches: Sequence[PlannedLaunch]) -> list[PlannedLaunch]:
    """Return the planned launches that the campaign does not have, or of which it has only interrupted ones."""
    launched = {(launch.run_key, launch.block_index) for launch in campaign.launches if not launch.interrupted}
    return [each for each in planned_launches if ((each.config, each.plan), each.block) not in launched]


def _make_resumed_campaign(
    writer: CampaignWriter, campaign: Campaign, planned_launches: Sequence[PlannedLaunch]
) -> ResumedCampaign:
    missing = missing_launches(campaign, planned_launches)
    begun = {launch.block_index for launch in campaign.launches if not launch.interrupted}
    if missing and len(campaign.head.runs) > 1 and missing[0].block in begun:
        # What changed on the machine in between affects the comparisons of the block.
        what = f"block {missing[0].block} was interrupted and resumed later; the machine may have changed in between"
        writer.write(
            WarningLine.from_caution(WarningMessage("torn-block", what, "use --fresh to start a new campaign"))
        )
    next_launch = max((launch.index for launch in campaign.launches), default=-1) + 1
    status = max((_exit_status(launch) for launch in campaign.launches if not launch.interrupted), default=0)
    return ResumedCampaign(writer, missing, next_launch, status)


def reopen_newest_campaign(
    results_folder: Path, campaign_line: CampaignLine, is_unfinished: Callable[[Campaign], bool]
) -> tuple[CampaignWriter, Campaign] | None:
    """Open the newest campaign of the same command in `results_folder` for which `is_unfinished` is true.

    None if there is none. Two campaigns are of the same command if their first records differ only in name, time,
    arguments and paths of configs. Campaigns that another process is writing, and those that ended with a wrong result
    or a gate not met, are skipped.
    """
    for folder, _ in ResultsFolder(results_folder).find_newest_results(
        lambda head: not differing_campaign_fields(head, campaign_line)
    ):
        try:
            campaign = read_campaign(folder)
            if (
                differing_campaign_fields(campaign.head, campaign_line)
                or _ended_for_good(campaign)
                or not is_unfinished(campaign)
            ):
                continue  # it may have been extended since its first line
            writer = CampaignWriter.resume(folder)
        except MergeBenchError as error:
            print_message(f"not resuming {folder}: {error}")
            continue
        try:
            campaign = read_campaign(folder)  # its writer may have finished it since
            if not _ended_for_good(campaign) and is_unfinished(campaign):
                write_ends_of_killed_launches(writer, campaign)
                return writer, read_campaign(folder)
        except BaseException:
            writer.close()
            raise
        writer.close()
    return None


def find_campaign_of_same_command(results_folder: Path, campaign_line: CampaignLine) -> Campaign | None:
    """Find the newest campaign of the same command in `results_folder`, with any number of launches; None without one.

    A campaign that ended with a wrong result, or a gate that was not met, is not found.
    """
    wanted = _comparable_campaign_fields(campaign_line, with_launch_count=False)
    for folder, _ in ResultsFolder(results_folder).find_newest_results(
        lambda head: _comparable_campaign_fields(head, with_launch_count=False) == wanted
    ):
        campaign = read_campaign(folder)
        if not _ended_for_good(campaign) and _may_continue(campaign):
            return campaign
    return None


def differing_campaign_fields(campaign_line: CampaignLine, other_line: CampaignLine) -> list[str]:
    """The names of the fields that decide what is measured and differ in the first records of two campaigns."""
    recorded, other = map(_comparable_campaign_fields, (campaign_line, other_line))
    return [name for name in recorded if recorded[name] != other[name]]


def _comparable_campaign_fields(campaign_line: CampaignLine, *, with_launch_count: bool = True) -> dict[str, Any]:
    """The fields of a campaign's first record that decide what is measured and, `with_launch_count`, how often."""
    line: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode(msgspec.structs.replace(campaign_line, campaign_id="", argv=[], options=None, time=0.0))
    )
    for config in line["configs"]:  # the folder of a config does not matter, nor how tables are called
        config["path"] = None
    line["plans"] = [remove_table_names(plan) for plan in line["plans"]]
    for plan in () if with_launch_count else line["plans"]:
        plan.pop("launches", None)
    return line


def _differing_value_paths(recorded: Any, other: Any, parent_path: str = "") -> Iterator[str]:
    """The paths at which two JSON-like values differ, such as ``versions ucxx``, with both values if they are short."""
    if isinstance(recorded, dict) and isinstance(other, dict):
        for name in sorted({*recorded, *other}):
            path = f"{parent_path} {name}".removeprefix(" surroundings").strip()
            yield from _differing_value_paths(recorded.get(name), other.get(name), path)
    elif isinstance(recorded, list) and isinstance(other, list) and len(recorded) == len(other):
        for index, (first, second) in enumerate(zip(recorded, other, strict=True)):
            yield from _differing_value_paths(first, second, f"{parent_path} {index}")
    elif recorded != other:
        plain = all(isinstance(value, str | int | float | None) for value in (recorded, other))
        short = plain and max(len(str(recorded)), len(str(other))) < _SHORT
        yield f"{parent_path} ({recorded} and {other})" if short else parent_path


def _ended_for_good(campaign: Campaign) -> bool:
    return campaign.end is not None and campaign.end.status not in CONTINUE_AFTER


def _may_continue(campaign: Campaign) -> bool:
    return all(_exit_status(launch) in CONTINUE_AFTER for launch in campaign.launches)


def _exit_status(launch: Launch) -> int:
    """The exit status of a launch; that of its failures if the records have no end line of the launch."""
    if launch.end is not None:
        return launch.end.status
    statuses = {error.code: error.exit_status for error in MergeBenchError.__subclasses__()}
    return max((statuses.get(failure.code, RunFailed.exit_status) for failure in launch.failures), default=0)


def write_ends_of_killed_launches(writer: CampaignWriter, campaign: Campaign) -> None:
    """Write the missing end records of launches during which the driver process was killed."""
    for launch in campaign.launches:
        if launch.end is not None:
            continue
        if launch.interrupted and not launch.failures:
            config, plan = launch.run_key or (None, None)
            why = f"the run was killed during launch {launch.index}"
            writer.write(
                FailureLine(
                    launch=launch.index,
                    config=config,
                    plan=plan,
                    block=launch.block_index,
                    code=INTERRUPTED,
                    message=why,
                )
            )
        status = _exit_status(launch) or RunFailed.exit_status
        writer.write(LaunchEndLine(launch=launch.index, status=status, seconds=None))
