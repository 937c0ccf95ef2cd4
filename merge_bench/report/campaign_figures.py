"""Figures of campaigns for lists, kept up to a limit; of a campaign that grows, only new lines are read."""

from __future__ import annotations

import shlex
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from merge_bench.analysis import aggregate
from merge_bench.analysis.aggregate import VerificationState, verification_state
from merge_bench.analysis.compare import main_metric
from merge_bench.errors import UsageError
from merge_bench.records.campaign import Campaign, Launch
from merge_bench.records.reader import LIMIT_BYTES, CampaignFollower
from merge_bench.records.results_folder import COMMAND, DONE, TUNE, ResultEntry, ResultsFolder
from merge_bench.report.command_sections import command_runs_best_first
from merge_bench.units import GIB
from merge_bench.view.terminal import print_page_at_exit
from merge_bench.view.text import DisplayUnit, format_number, mark_unprintable
from merge_bench.view.titles import (
    is_tuning_campaign,
    plan_workload_text,
    short_time_texts,
    title_of_result_entry,
    unusual_engine_names_text,
)

MOST_KEPT = 2 * LIMIT_BYTES
SMALL_BYTES = 4 << 20
"""Campaigns up to this size are read for the table of results without being chosen."""

_NO_RESULTS = "No results yet. This command makes one: python -m merge_bench --chunk 1e6"
_BATCH_BYTES = 16 << 20


@dataclass(frozen=True)
class LoadedCampaign:
    """A campaign read from a results folder; `problem`: why it was not read, or not to its end, as a sentence."""

    entry: ResultEntry
    campaign: Campaign | None
    problem: str | None


@dataclass(frozen=True)
class CampaignFigures:
    """The figures of a campaign in a list: throughput and bandwidth of its fastest run in GiB/s, and its state.

    `fastest`: the config of that run, with its rows per chunk if the campaign has several; empty if it has one run.
    For a tuning that has ended, the run is that of the confirmed config, or else of the baseline. `main_metric`: of a
    command, the name of its main metric and the value with its unit, as texts; None if nothing was measured.
    `verified`: ``yes``, ``no``, ``WRONG``, or empty. `launches`: how many launches measured anything; None if the
    campaign cannot be read. `outcome`: the outcome of a tuning that has ended. `measured`: indexes of the plans whose
    launches measured anything.
    """

    fastest: str = ""
    throughput: float | None = None
    bandwidth: float | None = None
    verified: str = ""
    launches: int | None = None
    outcome: str = ""
    measured: frozenset[int] = frozenset()
    main_metric: tuple[str, str] | None = None


def campaign_status_text(entry: ResultEntry, figures: CampaignFigures) -> str:
    """The status of a campaign as text: how it ended; if it ended well, ``verified`` or ``unverified``."""
    if figures.verified == "WRONG" or entry.status != DONE:
        return f"{entry.status}, WRONG" if figures.verified == "WRONG" else entry.status
    return {"yes": "verified", "no": "unverified"}.get(figures.verified, entry.status)


class CampaignCache:
    """Reads campaigns and keeps the most recently used ones in memory; threads may share a cache.

    Limits in bytes: `most` of all campaigns in memory, `limit` of one campaign, `small` of one that
    `read_small_campaigns` reads.
    """

    def __init__(self, *, most: int = MOST_KEPT, limit: int = LIMIT_BYTES, small: int = SMALL_BYTES) -> None:
        self._most_bytes, self._limit_bytes, self._small_bytes = most, limit, small
        self._followers: OrderedDict[Path, CampaignFollower] = OrderedDict()
        self._figures: dict[Path, tuple[tuple[int, float], CampaignFigures]] = {}
        self._lock = threading.Lock()

    def load(self, entries: Sequence[ResultEntry]) -> list[LoadedCampaign]:
        """Read the campaigns of `entries`; of campaigns in memory only the new lines."""
        with self._lock:
            return [self._load_campaign(entry) for entry in entries]

    def cached_figures(self, entry: ResultEntry) -> CampaignFigures | None:
        """Return the figures of a campaign from memory; None if it was not read since its records changed."""
        stored = self._figures.get(entry.folder)
        return stored[1] if stored is not None and stored[0] == (entry.size, entry.modified) else None

    def read_small_campaigns(self, entries: Sequence[ResultEntry]) -> bool:
        """Read the figures of some small, finished campaigns of `entries`; returns whether there were any to read."""
        left = _BATCH_BYTES
        for entry in entries:
            if (
                entry.head is None
                or entry.written
                or entry.size > self._small_bytes
                or self.cached_figures(entry) is not None
            ):
                continue
            self._store_figures(entry, _read_campaign_to_end(CampaignFollower(entry.folder, lean=True)))
            left -= entry.size
            if left <= 0:
                break
        return left < _BATCH_BYTES

    def _load_campaign(self, entry: ResultEntry) -> LoadedCampaign:
        follower = self._followers.pop(entry.folder, None) or CampaignFollower(
            entry.folder, lean=True, limit=self._limit_bytes
        )
        campaign = _read_campaign_to_end(follower)
        self._followers[entry.folder] = follower
        while len(self._followers) > 1 and sum(one.offset for one in self._followers.values()) > self._most_bytes:
            self._followers.popitem(last=False)
        self._store_figures(entry, campaign)
        problem = follower.problem or ("" if campaign else "its first line is incomplete")
        return LoadedCampaign(entry, campaign, f"{entry.folder.name}: {problem}" if problem else None)

    def _store_figures(self, entry: ResultEntry, campaign: Campaign | None) -> None:
        figures = _make_campaign_figures(campaign) if campaign is not None else CampaignFigures()
        self._figures[entry.folder] = (entry.size, entry.modified), figures


def _make_campaign_figures(campaign: Campaign) -> CampaignFigures:
    counted = [(run, launches) for run in campaign.runs if (launches := aggregate.complete_launches(run))]
    states = {verification_state(run, launches) for run, launches in counted}
    verified = (
        ""
        if not states
        else "yes"
        if states == {VerificationState.VERIFIED}
        else "WRONG"
        if VerificationState.WRONG in states
        else "no"
    )

    def median_gib_per_second(launches: Sequence[Launch], iteration_metric: aggregate.IterationMetric) -> float | None:
        median = aggregate.run_median(launches, iteration_metric)
        return median / GIB if median else None

    rates = [
        (
            run,
            median_gib_per_second(launches, aggregate.throughput),
            median_gib_per_second(launches, aggregate.bandwidth),
        )
        for run, launches in counted
    ]
    measured = sum(bool(launch.timed_iterations) for launch in campaign.launches)
    result = None
    if is_tuning_campaign(campaign) and campaign.end is not None and campaign.end.status == 0:
        from merge_bench.tune.result import tuning_result_of

        result = tuning_result_of(campaign)
    outcome = result.outcome_heading if result is not None else ""
    if not rates:
        return CampaignFigures(verified=verified, launches=measured, outcome=outcome)
    best = ""
    if result is not None:  # what only seemed faster in the search is not its result
        best = result.winner.config.name if result.winner is not None else result.baseline
        rates = [each for each in rates if each[0].config.name == best] or rates
    if campaign.command is not None:
        figures = _make_command_figures(campaign, best)
        return replace(figures, verified=verified, launches=measured, outcome=outcome)
    run, throughput, bandwidth = max(rates, key=lambda each: (each[1] or 0.0, each[2] or 0.0))
    names = dict(zip(((each.config.name, each.plan_index) for each in campaign.runs), campaign.run_labels, strict=True))
    name = names[run.config.name, run.plan_index] if len(campaign.runs) > 1 else ""
    size = plan_workload_text(campaign, run.plan_index)
    if any(plan_workload_text(campaign, other.plan_index) != size for other in campaign.runs):
        name += f" at {size}"
    sizes = frozenset(run.plan_index for run, _ in counted)
    return CampaignFigures(name, throughput, bandwidth, verified, measured, outcome, sizes)


def _make_command_figures(campaign: Campaign, config_name: str) -> CampaignFigures:
    """Make the figures of a command's campaign: the main metric of the run of a config, or else of the best run."""
    runs = command_runs_best_first(campaign)
    label, run = next((each for each in runs if each[1].config.name == config_name), runs[0])
    metric = main_metric(run)
    value = aggregate.run_median(aggregate.complete_launches(run), metric.value)
    shown = DisplayUnit.for_recorded_unit(metric.unit).format_value(value, with_unit=True)
    return CampaignFigures(
        label if len(runs) > 1 else "",
        measured=frozenset((run.plan_index,)),
        main_metric=None if value is None else (metric.name, shown),
    )


def _read_campaign_to_end(follower: CampaignFollower) -> Campaign | None:
    """Read a campaign to the end of its records; None if the first line is incomplete."""
    follower.read()
    while follower.has_more:
        follower.read()
    return follower.campaign


def print_results_list(folder: Path) -> None:
    """Print a line for each campaign in `folder`: when it began, whether it is verified, throughput, what it measured.

    For a command the main metric is printed instead of throughput.

    Raises
    ------
    UsageError
        If the folder cannot be read.
    """
    results, cache = ResultsFolder(folder), CampaignCache()
    entries = results.entries()[::-1]
    if results.problem:
        raise UsageError(results.problem)
    while cache.read_small_campaigns(entries):
        pass
    with print_page_at_exit() as page:
        for entry in entries:
            (began,) = short_time_texts([entry.started], with_time_of_day=True)  # the folder's name has the year
            figures = cache.cached_figures(entry) or CampaignFigures()
            rate = "" if figures.throughput is None else f"{format_number(figures.throughput)} GiB/s"
            metric, rate = figures.main_metric or ("", rate)
            page.add_unwrapped_line(
                f"{began:12}  {campaign_status_text(entry, figures):11}  {rate:>12}  "
                f"{mark_unprintable(str(entry.folder))}"
            )
            title = title_of_result_entry(entry, figures.measured)
            if metric:
                tuning, colon, measured = title.partition(": ") if entry.kind == TUNE else ("", "", title)
                title = f"{tuning}{colon}{metric} of {measured}"
            what = filter(None, (title, unusual_engine_names_text(entry.plans)))
            outcome = f". {figures.outcome}" if figures.outcome else ""
            page.add_paragraph(mark_unprintable(", ".join(what) + outcome), "dim", indent=2)
        commands = any(entry.kind == COMMAND for entry in entries)
        of_best = "throughput, or the main metric of a command, is" if commands else "throughput is"
        page.add_paragraph(f"Times are in UTC; {of_best} that of the fastest config." if entries else _NO_RESULTS)
        if entries:
            page.add_unwrapped_line(
                f"The newest one: merge-bench show {shlex.quote(mark_unprintable(str(entries[-1].folder)))}"
            )
