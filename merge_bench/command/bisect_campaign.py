"""Measures pairs of releases of UCX for `bisect`: each pair is a campaign in the folder of results.

A pair that was measured before by the same command is found there, and gets the launches that it lacks.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from merge_bench.analysis.comparable_runs import select_run_pairs
from merge_bench.analysis.compare import (
    METRICS,
    ComparisonSide,
    Metric,
    compare_campaigns,
    effect_of_launches,
    main_metric,
    metrics_of_command,
    side_of_run,
)
from merge_bench.analysis.statistics import Effect
from merge_bench.campaign import CallingProgram, ProgressDisplay
from merge_bench.campaign.campaign import complete_campaign_line, dry_run_text, run_sweep
from merge_bench.campaign.planned_launches import PlannedLaunch, load_sweep
from merge_bench.campaign.resume import find_campaign_of_same_command, missing_launches
from merge_bench.command import command_campaign
from merge_bench.command.bisect import (
    LEAST,
    BisectDocument,
    SettingChange,
    bisect_releases,
    planned_looks,
)
from merge_bench.command.options import MERGE_KEYS, MOST_LAUNCHES, BisectOptions, ExecOptions
from merge_bench.config.option import COMMAND_LINE, DEFAULT
from merge_bench.config.options import RunOptions
from merge_bench.config.parsers import RANGE
from merge_bench.config.ucx_info import effective_settings, find_ucx_info, read_installed_ucx
from merge_bench.config.ucx_releases import find_release, releases_between
from merge_bench.errors import (
    GateNotMet,
    RunFailed,
    UsageError,
    WrongResult,
    print_message,
)
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.records.schema import CampaignLine
from merge_bench.units import plural


@dataclass(frozen=True)
class PlannedPair:
    """The campaign of two releases: its first record, its launches, its folder of results.

    `run`: makes the launches; `shown`: what ``--dry-run`` prints of them.
    """

    head: CampaignLine
    jobs: Sequence[PlannedLaunch]
    results: Path
    run: Callable[[ProgressDisplay, CallingProgram], tuple[Path, int]]
    shown: Callable[[], str]


@dataclass
class BisectTask:
    """What `bisect` does: `argv`, the command, empty for the merge; the options of what is measured, and its own."""

    argv: Sequence[str]
    own: ExecOptions
    options: RunOptions
    bisect: BisectOptions

    @functools.cached_property
    def releases(self) -> list[str]:
        """The releases in order; raises UsageError if there are no two."""
        return expand_releases(self.bisect.ucx)

    @property
    def most(self) -> int:
        """The most launches of each release in a comparison; raises UsageError if they cannot give a verdict."""
        most = self.options.launches if self.options.value_source("launches") != DEFAULT else MOST_LAUNCHES
        if most < LEAST:
            raise UsageError(f"--launches {most}: a verdict needs at least {LEAST} launches of each release")
        return most

    def plan_pair(self, pair: tuple[str, str], launches: int, extend: Path | None = None) -> PlannedPair:
        """Plan the campaign of two releases; `extend`: the folder of the one that gets the launches."""
        changed = {"ucx": pair, "launches": launches, "extend": None if extend is None else str(extend)}
        options = self.options.with_given_values(**changed)
        if not self.argv and (alone := list(self.own.sources)):
            raise UsageError(f"--{alone[0].replace('_', '-')} is an option of a command, and none is given")
        if self.argv:
            return self._plan_command(options)
        sweep = load_sweep(options)
        if len(sweep.prepared) != len(pair):
            raise UsageError("bisect measures one merge: use one value of each option")
        return PlannedPair(
            sweep.campaign_line(),
            sweep.ordered_launches(),
            sweep.results_folder,
            lambda progress, caller: run_sweep(sweep, progress, caller=caller, print_estimate=False),
            lambda: dry_run_text(sweep),
        )

    def _plan_command(self, options: RunOptions) -> PlannedPair:
        given = [key for key in MERGE_KEYS if options.value_source(key) == COMMAND_LINE]
        if given:
            raise UsageError(f"--{given[0]} is an option of the merge, which is measured if there is no command")
        planned = command_campaign.plan_command_campaign(self.argv, self.own, options)
        return PlannedPair(
            planned.head,
            planned.jobs,
            planned.results,
            lambda progress, caller: command_campaign.run_command_campaign(planned, options, progress, caller=caller),
            lambda: command_campaign.dry_run_text(planned),
        )

    def dry_run_text(self) -> str:
        """What ``--dry-run`` prints: the releases, the launches of the ends, and how many comparisons may follow."""
        releases, most = self.releases, self.most
        steps = max(0, len(releases) - 2).bit_length()
        later = f"; then at most {plural(steps + 1, 'comparison')} more of two releases each" if steps else ""
        looks = ", ".join(str(count) for count, _ in planned_looks(most))
        lines = [
            f"## releases: {', '.join(releases)}",
            f"## launches of each release in a comparison, until they tell: {looks}",
            f"## first {releases[0]} and {releases[-1]}{later}",
        ]
        return "\n".join([*lines, self.plan_pair((releases[0], releases[-1]), LEAST).shown()])


def expand_releases(parsed: Sequence[str]) -> list[str]:
    """The releases that were typed, with those between two ends; raises UsageError if an end is no release."""
    if RANGE not in parsed:
        if not parsed:
            raise UsageError("name the releases to compare, such as --ucx 1.19.0..1.22.0")
        return list(parsed)
    first, _, last = parsed
    releases = releases_between(first, last)
    if missing := [end for end in (first, last) if end not in releases]:
        raise UsageError(
            f"--ucx {first}..{last}: there is no release {missing[0]}; between them: {', '.join(releases)}"
        )
    if len(releases) < 2:
        raise UsageError(f"--ucx {first}..{last}: that is one release; name an older and a newer one")
    return releases


@dataclass
class PairMeasurer:
    """Measures pairs of releases within the budget of a call; what is stored already costs nothing."""

    task: BisectTask
    progress: ProgressDisplay
    caller: CallingProgram
    seconds: float = 0.0
    launches: int = 0
    folders: dict[tuple[str, str], Path] = field(default_factory=dict)

    def measure(self, baseline: str, candidate: str, launches: int) -> tuple[Effect, str] | None:
        """Make the launches that two releases lack; returns the effect and the folder of the records.

        None: the budget has no time for them. Raises RunFailed, WrongResult or GateNotMet if launches fail.
        """
        pair = (baseline, candidate)
        planned = self.task.plan_pair(pair, launches)
        stored = self._find_stored(pair, planned)
        left = missing_launches(stored, planned.jobs) if stored is not None else planned.jobs
        if left:
            if not self._fits(len(left)):
                return None
            stored = self._make_launches(pair, launches, stored, planned, len(left))
        assert stored is not None
        if not left and pair not in self.folders:
            print_message(f"measured before: {baseline} and {candidate}, {stored.folder}")
        self.folders[pair] = stored.folder
        return _effect(stored, launches), str(stored.folder)

    def _find_stored(self, pair: tuple[str, str], planned: PlannedPair) -> Campaign | None:
        if pair in self.folders:
            return read_campaign(self.folders[pair])
        if self.task.options.fresh:
            return None
        line = complete_campaign_line(planned.head, planned.jobs, self.caller)
        return find_campaign_of_same_command(planned.results, line)

    def _fits(self, launches: int) -> bool:
        budget = self.task.bisect.budget
        return budget is None or not self.launches or self.seconds * (1 + launches / self.launches) <= budget

    def _make_launches(
        self, pair: tuple[str, str], launches: int, stored: Campaign | None, planned: PlannedPair, left: int
    ) -> Campaign:
        if stored is not None:
            launches = max(launches, stored.runs[0].planned_launches)
            planned = self.task.plan_pair(pair, launches, stored.folder)
        print_message(f"measuring {pair[0]} and {pair[1]}: {plural(left, 'launch')}")
        options = {**(self.caller.options or {}), "ucx": ",".join(pair), "launches": str(launches)}
        options.pop("budget", None)
        began = time.monotonic()
        folder, status = planned.run(self.progress, replace(self.caller, options=options))
        self.seconds += time.monotonic() - began
        self.launches += left
        if status != 0:
            kind = {WrongResult.exit_status: WrongResult, GateNotMet.exit_status: GateNotMet}.get(status, RunFailed)
            raise kind(f"not all launches of {pair[0]} and {pair[1]} went well: {folder}")
        return read_campaign(folder)


def _effect(campaign: Campaign, launches: int) -> Effect:
    """The effect of a campaign's second release against its first one, in the blocks below `launches`.

    Raises RunFailed if launches failed, or there are no figures.
    """
    (pair,) = select_run_pairs([campaign], anyway=False).pairs
    for side in (pair.baseline, pair.candidate):
        if side.failed_launches:
            failed = f"{side.failed_launches} of {len(side.run.launches)} launches with {side.label} failed"
            raise RunFailed(f"{failed}: {campaign.folder}; to measure them again, use --fresh")
    metric = main_metric(pair.baseline.run)
    sides = [
        ComparisonSide(tuple(each for each in side_of_run(one.run, metric).samples if each.block < launches))
        for one in (pair.baseline, pair.candidate)
    ]
    effect, _ = effect_of_launches(sides[0], sides[1], metric, one_campaign=True)
    if effect is None:
        raise RunFailed(f"there are no values of {metric.name} to compare: {campaign.folder}")
    return effect


def run_bisection(task: BisectTask, progress: ProgressDisplay, caller: CallingProgram) -> BisectDocument:
    """Bisect the releases of a task, and say what differs between those that it ends with."""
    releases, threshold = task.releases, task.options.threshold
    measurer = PairMeasurer(task, progress, caller)
    outcome = bisect_releases(releases, measurer.measure, threshold=threshold, most=task.most)
    document = BisectDocument(
        releases=releases,
        metric=_metric_of(task).name,
        threshold=threshold,
        **outcome._asdict(),
        differences=[],
        settings=[],
    )
    if outcome.decisive_step is None or outcome.between is None:
        return document
    differences = compare_campaigns([read_campaign(outcome.decisive_step.records)], threshold=threshold).differences
    return msgspec.structs.replace(document, differences=differences, settings=changed_settings(*outcome.between))


def _metric_of(task: BisectTask) -> Metric:
    if not task.argv:
        return METRICS[0]
    return metrics_of_command(command_campaign.make_command_plan(task.argv, task.own).metrics)[0]


def changed_settings(*releases: str) -> list[SettingChange]:
    """The settings whose defaults differ between two releases, or that only one has; none if one has no `ucx_info`.

    UCX prints some times as it measures them at its start: those that differ in a second reading are left out.
    """
    both: list[Mapping[str, str]] = []
    varying: set[str] = set()
    for release in map(find_release, releases):
        try:
            installed = read_installed_ucx(find_ucx_info(str(release.folder)))
            again = effective_settings(installed, {})
        except UsageError as error:
            print_message(f"settings are not compared: {error}")
            return []
        current_settings = {name: each for name, each in installed.settings.items() if not each.deprecated}
        times = (name for name, each in current_settings.items() if each.syntax.startswith("time"))
        varying |= {name for name in times if current_settings[name].default != again.get(name)}
        both.append({name: each.default.replace(str(release.folder), "…") for name, each in current_settings.items()})
    baseline, candidate = both
    names = sorted({*baseline, *candidate} - varying)
    changes = (SettingChange(name=name, baseline=baseline.get(name), candidate=candidate.get(name)) for name in names)
    return [change for change in changes if change.baseline != change.candidate]
