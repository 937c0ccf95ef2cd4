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
    comparison_side,
    estimate_candidate_effect,
    main_metric,
    metrics_of_command,
)
from merge_bench.analysis.documents import Failure
from merge_bench.analysis.statistics import EffectEstimate
from merge_bench.campaign import CallingProgram, ProgressDisplay
from merge_bench.campaign.planned_launches import PlannedLaunch, load_sweep
from merge_bench.campaign.resume import find_campaign_of_same_command, missing_launches
from merge_bench.campaign.run_campaign import complete_campaign_line, dry_run_text, run_sweep
from merge_bench.command import command_campaign
from merge_bench.command.bisect import (
    LEAST,
    BisectDocument,
    ReleaseLaunchFailed,
    SettingChange,
    bisect_releases,
    planned_interim_looks,
)
from merge_bench.command.options import MERGE_KEYS, MOST_LAUNCHES, BisectOptions, ExecOptions
from merge_bench.config.option import COMMAND_LINE, DEFAULT
from merge_bench.config.options import RunOptions
from merge_bench.config.parsers import RANGE
from merge_bench.config.ucx_info import effective_settings, find_ucx_info, read_installed_ucx
from merge_bench.config.ucx_releases import find_or_install_release, releases_between
from merge_bench.errors import (
    GateNotMet,
    RecordsNotWritten,
    RunFailed,
    UsageError,
    WrongResult,
    print_message,
)
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.records.schema import CampaignLine
from merge_bench.units import count_with_noun


@dataclass(frozen=True)
class PlannedPairCampaign:
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
        """The releases to compare, the oldest first; raises UsageError if there are fewer than two."""
        return expand_release_range(self.bisect.ucx)

    @property
    def most_launches(self) -> int:
        """The most launches of each release in a comparison; raises UsageError if they cannot give a verdict."""
        most_launches = self.options.launches if self.options.value_source("launches") != DEFAULT else MOST_LAUNCHES
        if most_launches < LEAST:
            raise UsageError(f"--launches {most_launches}: a verdict needs at least {LEAST} launches of each release")
        return most_launches

    def plan_pair_campaign(
        self, pair: tuple[str, str], launches: int, extended_folder: Path | None = None, *, anew: bool = False
    ) -> PlannedPairCampaign:
        """Plan the campaign of two releases.

        `extended_folder`: the folder of the one that gets the launches; `anew`: no unfinished campaign is continued.
        """
        changed = {"ucx": pair, "launches": launches, "extend": extended_folder and str(extended_folder)}
        changed |= {"fresh": True} if anew else {}
        options = self.options.with_command_line_values(**changed)
        if not self.argv and (alone := list(self.own.sources)):
            raise UsageError(f"--{alone[0].replace('_', '-')} is an option of a command, and none is given")
        if self.argv:
            return self._plan_command_pair(options)
        sweep = load_sweep(options)
        if len(sweep.prepared) != len(pair):
            raise UsageError("bisect measures one merge: use one value of each option")
        return PlannedPairCampaign(
            sweep.campaign_line(),
            sweep.ordered_launches(),
            sweep.results_folder,
            lambda progress, caller: run_sweep(sweep, progress, caller=caller, print_estimate=False),
            lambda: dry_run_text(sweep),
        )

    def _plan_command_pair(self, options: RunOptions) -> PlannedPairCampaign:
        given = [key for key in MERGE_KEYS if options.value_source(key) == COMMAND_LINE]
        if given:
            raise UsageError(f"--{given[0]} is an option of the merge, which is measured if there is no command")
        planned = command_campaign.plan_command_campaign(self.argv, self.own, options)
        return PlannedPairCampaign(
            planned.head,
            planned.jobs,
            planned.results_folder,
            lambda progress, caller: command_campaign.run_command_campaign(planned, options, progress, caller=caller),
            lambda: command_campaign.dry_run_text(planned),
        )

    def dry_run_text(self) -> str:
        """What ``--dry-run`` prints: the releases, the launches of the ends, and how many comparisons may follow."""
        releases, most_launches = self.releases, self.most_launches
        steps = max(0, len(releases) - 2).bit_length()
        later = f"; then at most {count_with_noun(steps + 1, 'comparison')} more of two releases each" if steps else ""
        looks = ", ".join(str(count) for count, _ in planned_interim_looks(most_launches))
        lines = [
            f"## releases: {', '.join(releases)}",
            f"## launches of each release in a comparison, until they tell: {looks}",
            f"## first {releases[0]} and {releases[-1]}{later}",
        ]
        return "\n".join([*lines, self.plan_pair_campaign((releases[0], releases[-1]), LEAST).shown()])


def expand_release_range(typed_releases: Sequence[str]) -> list[str]:
    """List the releases that ``--ucx`` names, with those between the ends of FIRST..LAST.

    Raises UsageError if an end is no release.
    """
    if RANGE not in typed_releases:
        if not typed_releases:
            raise UsageError("name the releases to compare, such as --ucx 1.19.0..1.22.0")
        return list(typed_releases)
    first, _, last = typed_releases
    releases = releases_between(first, last)
    if missing := [end for end in (first, last) if end not in releases]:
        raise UsageError(
            f"--ucx {first}..{last}: there is no release {missing[0]}; between them: {', '.join(releases)}"
        )
    if len(releases) < 2:
        raise UsageError(f"--ucx {first}..{last}: that is one release; name an older and a newer one")
    return releases


@dataclass
class ReleasePairMeasurer:
    """Measures pairs of releases within the budget of a call; what is stored already costs nothing.

    A stored pair of which launches failed is measured again, in a new campaign.
    """

    task: BisectTask
    progress: ProgressDisplay
    caller: CallingProgram
    seconds: float = 0.0
    launches: int = 0
    folders: dict[tuple[str, str], Path] = field(default_factory=dict)

    def measure_pair(self, baseline: str, candidate: str, launches: int) -> tuple[EffectEstimate, str] | None:
        """Make the launches that two releases lack; returns the effect and the folder of the records.

        None: the budget has no time for them. Raises ReleaseLaunchFailed if launches fail; RunFailed, WrongResult or
        GateNotMet if the campaign ended early.
        """
        pair = (baseline, candidate)
        planned = self.task.plan_pair_campaign(pair, launches)
        stored = self._find_stored_campaign(pair, planned)
        failed = stored if stored is not None and any(launch.failed for launch in stored.launches) else None
        if failed is not None:
            stored = None
        left = missing_launches(stored, planned.jobs) if stored is not None else planned.jobs
        if left:
            if not self._fits_into_budget(len(left)):
                return None
            if failed is not None:
                what = f"launches of {baseline} and {candidate} failed before, and are made again"
                print_message(f"{what}: {failed.folder}")
                planned = self.task.plan_pair_campaign(pair, launches, anew=True)
            stored = self._make_missing_launches(pair, launches, stored, planned, len(left))
        assert stored is not None
        if not left and pair not in self.folders:
            print_message(f"measured before: {baseline} and {candidate}, {stored.folder}")
        self.folders[pair] = stored.folder
        return _pair_effect(stored, launches), str(stored.folder)

    def _find_stored_campaign(self, pair: tuple[str, str], planned: PlannedPairCampaign) -> Campaign | None:
        if pair in self.folders:
            return read_campaign(self.folders[pair])
        if self.task.options.fresh:
            return None
        line = complete_campaign_line(planned.head, planned.jobs, self.caller)
        return find_campaign_of_same_command(planned.results, line)

    def _fits_into_budget(self, launches: int) -> bool:
        budget = self.task.bisect.budget
        return budget is None or not self.launches or self.seconds * (1 + launches / self.launches) <= budget

    def _make_missing_launches(
        self, pair: tuple[str, str], launches: int, stored: Campaign | None, planned: PlannedPairCampaign, left: int
    ) -> Campaign:
        if stored is not None:
            launches = max(launches, stored.runs[0].planned_launches)
            planned = self.task.plan_pair_campaign(pair, launches, stored.folder)
        print_message(f"measuring {pair[0]} and {pair[1]}: {count_with_noun(left, 'launch')}")
        options = {**(self.caller.options or {}), "ucx": ",".join(pair), "launches": str(launches)}
        options.pop("budget", None)
        began = time.monotonic()
        folder, status = planned.run(self.progress, replace(self.caller, options=options))
        self.seconds += time.monotonic() - began
        self.launches += left
        campaign = read_campaign(folder)
        if status == 0:
            return campaign
        failure = find_failed_release(campaign)
        if failure is not None and not missing_launches(campaign, planned.jobs):
            raise failure
        kind = {WrongResult.exit_status: WrongResult, GateNotMet.exit_status: GateNotMet}.get(status, RunFailed)
        why = next((f": {each.message}" for launch in campaign.launches for each in launch.failures), "")
        raise kind(f"not all launches of {pair[0]} and {pair[1]} went well{why}: {folder}")


_NO_FAILURE_OF_RELEASE = (WrongResult.code, GateNotMet.code, RecordsNotWritten.code)
"""Codes of failures that end the bisection, whatever the release."""


def find_failed_release(campaign: Campaign) -> ReleaseLaunchFailed | None:
    """The first of a campaign's two releases with which launches failed, as an error; None if there is none."""
    for run in campaign.runs:
        firsts = [failure for launch in run.launches if launch.failed for failure in launch.failures[:1]]
        failures = [failure for failure in firsts if failure.code not in _NO_FAILURE_OF_RELEASE]
        if failures:
            counts = f"{len(failures)} of {count_with_noun(len(run.launches), 'launch')} failed"
            tail = next((failure.log_tail for failure in failures if failure.log_tail), None)
            return ReleaseLaunchFailed(
                run.plan.ucx or "", f"{counts}: {failures[0].message}", str(campaign.folder), tail
            )
    return None


def _pair_effect(campaign: Campaign, block_count: int) -> EffectEstimate:
    """The effect of a campaign's second release against its first one, in the blocks below `block_count`.

    Raises RunFailed if there are no figures.
    """
    (pair,) = select_run_pairs([campaign], allow_incomparable=False).pairs
    metric = main_metric(pair.baseline.run)
    sides = [
        ComparisonSide(tuple(each for each in comparison_side(one.run, metric).samples if each.block < block_count))
        for one in (pair.baseline, pair.candidate)
    ]
    effect, _ = estimate_candidate_effect(sides[0], sides[1], metric, one_campaign=True)
    if effect is None:
        raise RunFailed(f"there are no values of {metric.name} to compare: {campaign.folder}")
    return effect


def run_bisection(
    task: BisectTask, progress: ProgressDisplay, caller: CallingProgram
) -> tuple[BisectDocument, ReleaseLaunchFailed | None]:
    """Bisect the releases of a task, and say what differs between those that it ends with.

    The second value: the failure of the first or the last release, with which nothing can be found.
    """
    releases, threshold = task.releases, task.options.threshold
    measurer = ReleasePairMeasurer(task, progress, caller)
    outcome = bisect_releases(releases, measurer.measure_pair, threshold=threshold, most_launches=task.most_launches)
    outcome_fields = outcome._asdict()
    failure = outcome_fields.pop("failure")
    document = BisectDocument(
        releases=releases,
        metric=_main_metric_of_task(task).name,
        threshold=threshold,
        **outcome_fields,
        differences=[],
        settings=[],
        error=None if failure is None else Failure(failure.code, str(failure)),
    )
    if outcome.decisive_step is None or outcome.between is None:
        return document, failure
    differences = compare_campaigns([read_campaign(outcome.decisive_step.records)], threshold=threshold).differences
    settings = changed_setting_defaults(*outcome.between)
    return msgspec.structs.replace(document, differences=differences, settings=settings), None


def _main_metric_of_task(task: BisectTask) -> Metric:
    if not task.argv:
        return METRICS[0]
    return metrics_of_command(command_campaign.make_command_plan(task.argv, task.own).metrics)[0]


def changed_setting_defaults(baseline: str, candidate: str) -> list[SettingChange]:
    """List UCX's settings whose defaults differ between two releases, or that only one has.

    Empty if a release has no `ucx_info`. UCX prints some times as it measures them at its start: those that differ in a
    second reading are left out.
    """
    both: list[Mapping[str, str]] = []
    varying: set[str] = set()
    for release in map(find_or_install_release, (baseline, candidate)):
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
    old, new = both
    names = sorted({*old, *new} - varying)
    changes = (SettingChange(name=name, baseline=old.get(name), candidate=new.get(name)) for name in names)
    return [change for change in changes if change.baseline != change.candidate]
