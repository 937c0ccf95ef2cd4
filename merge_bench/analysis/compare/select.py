"""Which runs are compared with which: within one campaign by config, between campaigns by problem and config."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from merge_bench.analysis.aggregate import State, complete_launches, state_of
from merge_bench.analysis.compare import properties
from merge_bench.analysis.compare.properties import Difference, Properties
from merge_bench.errors import UsageError, WrongResult
from merge_bench.records.campaign import INTERRUPTED, WAYS, Campaign, Run, labels


class NothingToCompare(UsageError):
    """Nothing can be compared: there is no other run, none with a complete launch, or none that is comparable."""


class NotComparable(NothingToCompare):
    """The runs differ in what they merged; `compare --anyway` compares them nevertheless."""


@dataclass(frozen=True, eq=False)
class Source:
    """A run with its campaign; `label`: its config, preceded by the result's letter if there are several results."""

    campaign: Campaign
    run: Run
    label: str
    properties: Properties

    @property
    def measured(self) -> bool:
        """Whether the run has a complete launch."""
        return any(launch.complete and launch.timed for launch in self.run.launches)

    @cached_property
    def failed(self) -> int:
        """How many launches of the run failed."""
        return sum(launch.failed for launch in self.run.launches)

    @cached_property
    def verified(self) -> bool:
        """Whether the merge's result was checked as the plan asks for, and right."""
        return state_of(self.run, complete_launches(self.run)) is State.VERIFIED

    @cached_property
    def wrong(self) -> bool:
        """Whether the merge's result was wrong in any launch."""
        codes = {failure.code for launch in self.run.launches for failure in launch.failures}
        return state_of(self.run, complete_launches(self.run)) is State.WRONG or WrongResult.code in codes


@dataclass(frozen=True, eq=False)
class Pair:
    """A candidate and the baseline that it is compared with."""

    baseline: Source
    candidate: Source

    @property
    def one_campaign(self) -> bool:
        """Whether both are runs of one campaign, so that their launches were interleaved."""
        return self.baseline.campaign is self.candidate.campaign

    @property
    def same_config(self) -> bool:
        """Whether this is an A/A comparison: two runs of one campaign that differ only in the config's name."""
        old, new = self.baseline.run, self.candidate.run
        return self.one_campaign and old.config.variables == new.config.variables and old.options == new.options

    @cached_property
    def incomparable(self) -> tuple[Difference, ...]:
        """The known differences that make a ratio of the two runs meaningless."""
        rules = properties.MUST_AGREE if self.one_campaign else (*properties.MUST_AGREE, *properties.MUST_AGREE_APART)
        return tuple(
            each
            for each in properties.differences(self.baseline.properties, self.candidate.properties)
            if None not in (each.baseline_value, each.candidate_value)
            and any(each.kind == kind and name in (None, each.name) for kind, name in rules)
        )


@dataclass(frozen=True)
class Selection:
    """The pairs of runs to compare, and sentences about what was left out and why."""

    pairs: tuple[Pair, ...]
    notes: tuple[str, ...]


def select_pairs(campaigns: Sequence[Campaign], *, anyway: bool) -> Selection:
    """Find a baseline for every other run.

    One campaign: the runs of its first config, each for the runs of the same problem. Several: the first campaign's
    run of the same problem and config, or of its first config if it has no such config.

    Raises NothingToCompare if there is nothing to compare, or runs are not comparable and `anyway` is False; the
    message says why; UsageError if a result contains no merges, or is named twice; WrongResult if the merge's result
    was wrong in a baseline.
    """
    _check_campaigns(campaigns)
    sources = _sources_by_campaign(campaigns)
    notes: list[str] = []
    pairs = _pairs_within(sources[0], notes) if len(sources) == 1 else _pairs_between(sources[0], sources[1:], notes)
    usable = [pair for pair in pairs if _can_be_compared(pair, notes)]
    if not usable:
        raise NothingToCompare("; ".join(dict.fromkeys(notes)))
    apart = {pair: ", ".join(map(_difference_text, pair.incomparable)) for pair in usable if pair.incomparable}
    differ = (f"{pair.baseline.label} and {pair.candidate.label} differ in {text}" for pair, text in apart.items())
    reasons = list(dict.fromkeys(differ))
    if reasons and not anyway:
        names = {(each.kind, each.name) for pair in apart for each in pair.incomparable}
        reasons += [
            f"to compare {name}s, run one campaign with all of them, such as --{name} A,B"
            for kind, name in properties.MUST_AGREE_APART
            if (kind, name) in names
        ]
        raise NotComparable(f"not comparable: {'; '.join(reasons)}")
    notes += [f"compared despite this difference: {reason}" for reason in reasons]
    for source in dict.fromkeys(source for pair in usable for source in (pair.baseline, pair.candidate)):
        notes += _missing_records_notes(source, alone=len(campaigns) == 1)
    for campaign in campaigns:
        if nameless := [each for each in campaign.unattributed_failures if each.code != INTERRUPTED]:
            notes.append(f"{campaign.folder}: {len(nameless)} failures belong to no known launch")
    return Selection(tuple(usable), tuple(dict.fromkeys(notes)))


def planned_pairs(campaign: Campaign) -> list[Pair]:
    """The pairs within one campaign, whether it has launches yet or not; none if no two runs can be compared."""
    try:
        return _pairs_within(_sources_by_campaign([campaign])[0], [])
    except NothingToCompare:
        return []


def _check_campaigns(campaigns: Sequence[Campaign]) -> None:
    for index, campaign in enumerate(campaigns):
        if campaign.probe:
            raise UsageError(f"{campaign.folder} contains no merges, only the network measurement {campaign.probe}")
        if any(campaign.records.samefile(other.records) for other in campaigns[:index]):
            raise UsageError(f"{campaign.folder} is named twice; name two different results")
    if len(campaigns) == 1 and len(campaigns[0].runs) < 2:
        raise NothingToCompare(f"{campaigns[0].folder} contains only one run; name a second result to compare it with")


def letter_of(index: int, count: int) -> str | None:
    """The letter of a result in labels: A, B, …; ``None`` if there is only one."""
    if count == 1:
        return None
    return chr(ord("A") + index) if count <= 26 else str(index + 1)


def run_labels(campaigns: Sequence[Campaign]) -> list[list[str]]:
    """A label for each run, by campaign: the campaign's letter, and a name that tells the run from all others."""
    every = [run for campaign in campaigns for run in campaign.runs]
    names = iter(labels([(run.config.name, run.options) for run in every]))
    letters = [letter_of(index, len(campaigns)) for index in range(len(campaigns))]
    return [
        [f"{short}: {next(names)}" if short else next(names) for _ in campaign.runs]
        for short, campaign in zip(letters, campaigns, strict=True)
    ]


def _sources_by_campaign(campaigns: Sequence[Campaign]) -> list[list[Source]]:
    """The runs of each campaign, with their labels and properties."""
    by_campaign = []
    for campaign, names in zip(campaigns, run_labels(campaigns), strict=True):
        named_runs = list(zip(names, campaign.runs, strict=True))
        sources = []
        for name, run in named_runs:
            twins = [each for other, each in named_runs if other == name and properties.same_problem(run, each)]
            label = name + _distinguishing_options(run, twins)
            sources.append(Source(campaign, run, label, properties.properties_of(campaign, run)))
        by_campaign.append(sources)
    return by_campaign


def _distinguishing_options(run: Run, twins: Sequence[Run]) -> str:
    """A text with the options in which a run differs from `twins`, the runs of the same name and problem."""
    names = [
        name
        for name, value in run.options.items()
        if isinstance(value, (str, int, float)) and any(each.options.get(name) != value for each in twins)
    ]
    return f" ({', '.join(f'{name} {run.options[name]}' for name in names)})" if names else ""


def _pairs_within(sources: Sequence[Source], notes: list[str]) -> list[Pair]:
    """The pairs of one campaign's runs; why a run has no pair is added to `notes`."""
    first_config = sources[0].run.config.name
    pairs: list[Pair] = []
    left = list(sources)
    while left:
        alike = [source for source in left if properties.same_problem(left[0].run, source.run)]
        left = [source for source in left if source not in alike]
        baseline = next((source for source in alike if source.run.config.name == first_config), alike[0])
        pairs += [Pair(baseline, source) for source in alike if source is not baseline]
        if len(alike) == 1:
            notes.append(f"{baseline.label} is not compared: no other run merges equal tables on as many workers")
    if not pairs:
        raise NothingToCompare(
            "no two runs of this campaign can be compared: they differ in rows per chunk, workers or tables"
        )
    return pairs


def _pairs_between(first: Sequence[Source], others: Sequence[Sequence[Source]], notes: list[str]) -> list[Pair]:
    """The runs of other campaigns, each with its baseline in the first; why a run has none is added to `notes`."""
    pairs: list[Pair] = []
    unmatched: list[Source] = []
    for candidate in (source for sources in others for source in sources):
        alike = [source for source in first if properties.same_problem(source.run, candidate.run)]
        if alike:
            pairs.append(Pair(_closest_baseline(alike, candidate), candidate))
        else:
            unmatched.append(candidate)
    if not pairs:  # refused with the reasons, unless --anyway is given
        return [Pair(_closest_baseline(first, candidate), candidate) for candidate in unmatched]
    notes += [
        f"{source.label} is not compared: no run of the baseline merges equal tables on as many workers"
        for source in unmatched
    ]
    return pairs


def _closest_baseline(baselines: Sequence[Source], candidate: Source) -> Source:
    """The baseline with the same config and, of several, the same engine and exchange; else the first."""
    run = candidate.run

    def shared(source: Source) -> tuple[bool, int]:
        ways = sum(source.run.options.get(way) == run.options.get(way) for way in WAYS)
        return source.run.config.name == run.config.name, ways

    return max(baselines, key=shared)


def _can_be_compared(pair: Pair, notes: list[str]) -> bool:
    """Whether there is something to compare; if not, the reason is added to `notes`."""
    if pair.baseline.wrong:
        raise WrongResult(f"the merge result of {pair.baseline.label} was wrong, so nothing can be compared with it")
    if not pair.baseline.measured:
        notes.append(f"{pair.baseline.label} has no complete launch, so nothing can be compared with it")
    elif not pair.candidate.run.launches:
        notes.append(f"{pair.candidate.label} is not compared: it has no launches yet")
    else:
        return True
    return False


def _difference_text(difference: Difference) -> str:
    name = f"{difference.kind} {difference.name}" if difference.kind == properties.UCX else difference.name
    return f"{name.replace('_', ' ')} ({difference.baseline_value} and {difference.candidate_value})"


def _missing_records_notes(source: Source, *, alone: bool) -> Iterator[str]:
    """Sentences about missing launches, and missing properties unless `alone`: one campaign has one machine."""
    run = source.run
    launches = sum(launch.complete or launch.failed for launch in run.launches)
    if launches < run.planned_launches:
        yield f"{source.label}: the records stop after {launches} of {run.planned_launches} launches"
    kinds = {
        properties.MACHINE: "machine",
        properties.UCX: "UCX",
        properties.UCX_SETTING: "UCX settings",
        properties.PACKAGE: "packages",
    }
    missing = [name for kind, name in kinds.items() if kind not in source.properties]  # an imported run lacks all
    if missing and not alone:
        yield f"{source.label}: the records do not describe {', '.join(missing)}; these may differ"
