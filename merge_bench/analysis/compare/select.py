"""Which runs are compared with which: within one campaign by config, between campaigns by problem and config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from merge_bench.analysis.compare import facts
from merge_bench.analysis.compare.facts import Difference, Facts
from merge_bench.analysis.compare.samples import found_wrong
from merge_bench.errors import UsageError, WrongResult
from merge_bench.records.campaign import Campaign, Run


@dataclass(frozen=True, eq=False)
class Source:
    """A run, the campaign that it is of, and what people call it: its config, behind the result's letter if several."""

    campaign: Campaign
    run: Run
    label: str
    facts: Facts

    @property
    def measured(self) -> bool:
        """Whether it has a complete launch."""
        return any(launch.complete and launch.timed for launch in self.run.launches)


@dataclass(frozen=True, eq=False)
class Pair:
    """A candidate and the baseline that it is held against."""

    baseline: Source
    candidate: Source

    @property
    def one_campaign(self) -> bool:
        """Whether their launches were made together."""
        return self.baseline.campaign is self.candidate.campaign

    @property
    def same_config(self) -> bool:
        """Whether it is an A/A comparison: one campaign, and no difference but the name."""
        one, other = self.baseline.run, self.candidate.run
        return self.one_campaign and one.config.variables == other.config.variables and one.options == other.options


@dataclass(frozen=True)
class Selection:
    """The pairs, and what was left out and why."""

    pairs: tuple[Pair, ...]
    notes: tuple[str, ...]


def select(campaigns: Sequence[Campaign], *, anyway: bool) -> Selection:
    """Find a baseline for every other run.

    One campaign: the runs of its first config, each for the runs of the same problem. Several: the first campaign's
    run of the same problem and config, or of its first config if it has no such config.

    Raises
    ------
    UsageError
        If there is nothing to compare, or runs are not comparable and `anyway` is not said; the sentence names why.
    WrongResult
        If the merge's result was wrong in a baseline.
    """
    _check_campaigns(campaigns)
    sources = [_sources(campaign, index, len(campaigns)) for index, campaign in enumerate(campaigns)]
    notes: list[str] = []
    pairs = _within(sources[0], notes) if len(sources) == 1 else _between(sources[0], sources[1:], notes)
    started = [pair for pair in pairs if _startable(pair, notes)]
    if not started:
        raise UsageError("; ".join(dict.fromkeys(notes)))
    reasons = _reasons(started)
    if reasons and not anyway:
        raise UsageError(f"not comparable: {'; '.join(reasons)}; use --anyway to compare them despite this")
    notes += [f"compared although they differ: {reason}" for reason in reasons]
    for source in dict.fromkeys(source for pair in started for source in (pair.baseline, pair.candidate)):
        notes += _gaps(source, alone=len(campaigns) == 1)
    for campaign in campaigns:
        if nameless := campaign.unattributed_failures:
            notes.append(f"{campaign.folder}: {len(nameless)} failures of which no line says what had been launched")
    return Selection(tuple(started), tuple(dict.fromkeys(notes)))


def _check_campaigns(campaigns: Sequence[Campaign]) -> None:
    for index, campaign in enumerate(campaigns):
        if campaign.probe:
            raise UsageError(f"{campaign.folder} holds the network measurement {campaign.probe}, and no merges")
        if any(campaign.records.samefile(other.records) for other in campaigns[:index]):
            raise UsageError(f"{campaign.folder} is named twice: a result is not compared with itself")
    if len(campaigns) == 1 and len(campaigns[0].runs) < 2:
        raise UsageError(f"{campaigns[0].folder} holds one run: name a second result to compare it with")


def letter(index: int, count: int) -> str | None:
    """What stands for a whole result: A, B, …; ``None`` for the only one."""
    if count == 1:
        return None
    return chr(ord("A") + index) if count <= 26 else str(index + 1)


def _sources(campaign: Campaign, index: int, count: int) -> list[Source]:
    short = letter(index, count)
    names = [run.config.name for run in campaign.runs]
    found = []
    for run in campaign.runs:
        label = f"{short}: {run.config.name}" if short else run.config.name
        twins = [other for other in campaign.runs if other.config.name == run.config.name and other is not run]
        if names.count(run.config.name) > 1:
            label += _told_apart(run, [twin for twin in twins if facts.same_problem(run, twin)])
        found.append(Source(campaign, run, label, facts.facts_of(campaign, run)))
    return found


def _told_apart(run: Run, twins: Sequence[Run]) -> str:
    """What tells a run from those of the same config and problem: options of its plan."""
    names = [
        name
        for name, value in run.options.items()
        if isinstance(value, (str, int, float)) and any(twin.options.get(name) != value for twin in twins)
    ]
    return f" ({', '.join(f'{name} {run.options[name]}' for name in names)})" if names else ""


def _within(sources: Sequence[Source], notes: list[str]) -> list[Pair]:
    first = sources[0].run.config.name
    pairs: list[Pair] = []
    left = list(sources)
    while left:
        alike = [source for source in left if facts.same_problem(left[0].run, source.run)]
        left = [source for source in left if source not in alike]
        baseline = next((source for source in alike if source.run.config.name == first), alike[0])
        pairs += [Pair(baseline, source) for source in alike if source is not baseline]
        if len(alike) == 1:
            notes.append(f"{baseline.label} is left out: no other run has its problem")
    if not pairs:
        raise UsageError(
            "no two runs of this campaign can be compared: each has other rows per chunk, workers or tables"
        )
    return pairs


def _between(first: Sequence[Source], others: Sequence[Sequence[Source]], notes: list[str]) -> list[Pair]:
    pairs: list[Pair] = []
    strangers: list[Source] = []
    for candidate in (source for sources in others for source in sources):
        alike = [source for source in first if facts.same_problem(source.run, candidate.run)]
        if alike:
            pairs.append(Pair(_same_name(alike, candidate), candidate))
        else:
            strangers.append(candidate)
    if not pairs:  # refused with the reasons, unless wanted anyway
        return [Pair(_same_name(first, candidate), candidate) for candidate in strangers]
    notes += [f"{source.label} is left out: no run of the baseline has its problem" for source in strangers]
    return pairs


def _same_name(baselines: Sequence[Source], candidate: Source) -> Source:
    name = candidate.run.config.name
    return next((source for source in baselines if source.run.config.name == name), baselines[0])


def _startable(pair: Pair, notes: list[str]) -> bool:
    """Whether there is something to compare; `notes` gets why not."""
    if found_wrong(pair.baseline.run):
        raise WrongResult(f"the merge result of {pair.baseline.label} was wrong, so nothing can be compared with it")
    if not pair.baseline.measured:
        notes.append(f"{pair.baseline.label} has no complete launch, so nothing can be compared with it")
    elif not pair.candidate.run.launches:
        notes.append(f"{pair.candidate.label} has no launches yet and is left out")
    else:
        return True
    return False


def _reasons(pairs: Sequence[Pair]) -> list[str]:
    found: dict[str, None] = {}
    for pair in pairs:
        reasons = facts.incomparable(pair.baseline.facts, pair.candidate.facts, one_campaign=pair.one_campaign)
        if reasons:
            named = ", ".join(map(_named, reasons))
            found[f"{pair.baseline.label} and {pair.candidate.label} differ in {named}"] = None
    return list(found)


def _named(difference: Difference) -> str:
    name = f"{difference.kind} {difference.name}" if difference.kind == facts.UCX else difference.name
    return f"{name.replace('_', ' ')} ({difference.baseline} and {difference.candidate})"


def _gaps(source: Source, *, alone: bool) -> list[str]:
    """What of a run is missing or unknown, as sentences; runs of one campaign had the same machine."""
    notes = []
    run = source.run
    made = sum(launch.complete or launch.failed for launch in run.launches)
    if made < run.planned_launches:
        notes.append(f"{source.label}: the records stop after {made} of {run.planned_launches} launches")
    missing = facts.unknown(source.facts)
    if missing and not alone:
        notes.append(f"{source.label}: nothing is recorded of its {', '.join(missing)}, which may differ")
    return notes
