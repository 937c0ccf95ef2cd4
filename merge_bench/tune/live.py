"""The bench of a real tuning: a campaign to which configs are added as the strategy asks for them.

Whatever the records hold already is not launched again: so an interrupted tuning goes on by running its strategy from
the start, through the launches that were made, to the first that was not.
"""

from __future__ import annotations

import hashlib
import random
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from merge_bench.analysis.compare.samples import METRICS
from merge_bench.campaign.jobs import Job
from merge_bench.campaign.prepare import Prepared
from merge_bench.cluster import signals
from merge_bench.errors import NotRecorded, RunFailed, UsageError, WrongResult
from merge_bench.records.campaign import Campaign, Launch
from merge_bench.records.follow import Follower
from merge_bench.records.schema import Config, ConfigLine, TuneLine
from merge_bench.records.writer import CampaignWriter
from merge_bench.tune.bench import BudgetSpent, Candidate, Sample

CONFIGS = "configs"
LONGEST_NAME = 120
MOST_BASELINE_FAILURES = 2
Load = Callable[[Path], list[Prepared]]
"""Reads a config file and gives a plan for each size."""
MakeLaunch = Callable[[Job, int], int]


@dataclass
class Budget:
    """What searching may cost: launches, and seconds of them; None: no limit."""

    launches: int | None = None
    seconds: float | None = None


@dataclass
class LiveBench:
    """See the module. `text`: the baseline's config file."""

    writer: CampaignWriter
    baseline: str
    text: str
    prepared: Sequence[Prepared]
    load: Load
    launch: MakeLaunch
    metric: str
    seed: int
    budget: Budget
    told: Callable[[str], None]
    _searched: int = 0
    _seconds: float = 0.0
    _block: int = 0
    _configs: dict[str, Sequence[Prepared] | str] = field(default_factory=dict)
    _samples: dict[tuple[str, int, int], Sample] = field(default_factory=dict)
    _spent: dict[tuple[str, int, int], float] = field(default_factory=dict)
    _noted: list[TuneLine] = field(default_factory=list)
    _added: set[str] = field(default_factory=set)
    _next: int = 0
    _baseline_failures: int = 0

    def __post_init__(self) -> None:
        self._records = Follower(self.writer.folder, limit=sys.maxsize)
        self._of_launch = next(each.of_launch for each in METRICS if each.name == self.metric)
        self._configs[self.baseline] = self.prepared
        campaign = self._read()
        self._added = {line.config.name for line in campaign.added}
        self._noted = [msgspec.structs.replace(line, time=0.0) for line in campaign.tuning]
        self._remember(campaign)

    @property
    def plans(self) -> int:
        """How many sizes there are."""
        return len(self.prepared)

    def block(self, candidates: Sequence[Candidate], *, plan: int = 0, search: bool = True) -> list[Sample]:
        """One launch of each, in random order; those that the records have are taken from there."""
        if search:
            self._pay(len(candidates))
        block = self._block
        self._block += 1
        order = list(range(len(candidates)))
        random.Random(f"{self.seed}/{block}").shuffle(order)
        found: dict[int, Sample] = {}
        for at in order:
            found[at] = self._one(candidates[at], plan, block)
        return [found[at] for at in range(len(candidates))]

    def note(self, line: TuneLine) -> None:
        """Write a decision down, unless it was written before."""
        content = msgspec.structs.replace(line, time=0.0)
        if content in self._noted:
            self._noted.remove(content)
        else:
            self.writer.write(line)
        self.told(f"{line.phase}: {line.config}: {line.decision}, {line.reason}")

    def _pay(self, launches: int) -> None:
        """Launches and seconds come from the records alone, so that a tuning that goes on ends where it would have."""
        over = self.budget.launches is not None and self._searched + launches > self.budget.launches
        if over or (self.budget.seconds is not None and self._seconds >= self.budget.seconds):
            raise BudgetSpent(f"the budget is spent after {self._searched} launches of searching")
        self._searched += launches

    def _one(self, candidate: Candidate, plan: int, block: int) -> Sample:
        name = candidate.name(self.baseline)
        key = (name, plan, block)
        if key in self._samples:
            self._seconds += self._spent[key]
            return self._samples[key]
        prepared = self._prepare(candidate, name)
        if isinstance(prepared, str):
            return Sample(None, prepared)
        self.told(f"launch {self._next}: {name}, {prepared[plan].plan.rows_per_chunk or 'real'} rows, block {block}")
        status = self.launch(Job(prepared[plan], name, plan, block), self._next)
        if signals.received():
            raise signals.Interrupted("interrupted; the same command goes on")
        self._remember(self._read())
        if key not in self._samples:
            raise RunFailed(f"a launch ended with status {status} and could not be recorded; the same command goes on")
        self._seconds += self._spent[key]
        if not candidate.values:
            self._check_baseline(self._samples[key])
        return self._samples[key]

    def _check_baseline(self, sample: Sample) -> None:
        if sample.wrong:
            raise WrongResult(f"the result of the baseline itself, {self.baseline}, was wrong: nothing can be tuned")
        self._baseline_failures = 0 if sample.value is not None else self._baseline_failures + 1
        if self._baseline_failures > MOST_BASELINE_FAILURES:
            raise RunFailed(
                f"the baseline itself failed {self._baseline_failures} times one after the other: {sample.reason}"
            )

    def _read(self) -> Campaign:
        """The campaign with what is new in its records, so that a long one takes no longer from launch to launch."""
        self._records.read()
        while self._records.behind:
            self._records.read()
        campaign = self._records.campaign
        if self._records.problem or campaign is None:
            raise RunFailed(self._records.problem or f"{self.writer.records} is empty")
        return campaign

    def _remember(self, campaign: Campaign) -> None:
        for launch in campaign.launches:
            self._next = max(self._next, launch.index + 1)
            if launch.key is None or launch.block is None or launch.interrupted or _unrecorded(launch):
                continue
            key = (*launch.key, launch.block)
            if key in self._samples:
                continue
            self._samples[key] = self._sample(launch)
            self._spent[key] = launch.end.seconds or 0.0 if launch.end else 0.0

    def _sample(self, launch: Launch) -> Sample:
        wrong = any(not check.ok for check in launch.verifications)
        if wrong or any(failure.code == WrongResult.code for failure in launch.failures):
            return Sample(None, "its result was wrong", wrong=True)
        if not launch.complete:
            return Sample(None, launch.failures[0].message if launch.failures else "it did not end well")
        value = self._of_launch(launch)
        return Sample(value or None, "" if value else f"{self.metric} was not measured")

    def _prepare(self, candidate: Candidate, name: str) -> Sequence[Prepared] | str:
        """The candidate's config, made on its first launch; a sentence where it cannot be used."""
        if name not in self._configs:
            path = self.writer.folder / CONFIGS / f"{file_name(name)}.cfg"
            try:
                path.parent.mkdir(exist_ok=True)
                path.write_text(config_text(self.text, candidate), encoding="utf-8")
            except OSError as error:
                raise RunFailed(f"cannot write the config {path}: {error.strerror}") from error
            try:
                self._configs[name] = self.load(path)
            except UsageError as error:  # and nothing else: an interruption says nothing of a config
                self._configs[name] = str(error)
            variables = {} if isinstance(self._configs[name], str) else _environment(self._configs[name])
            if name not in self._added:
                self._added.add(name)
                config = Config(name=name, path=str(path), variables=variables)
                self.writer.write(ConfigLine(config=config, settings=[value.id for value in candidate.values]))
        return self._configs[name]


def _environment(prepared: Sequence[Prepared] | str) -> dict[str, str]:
    assert not isinstance(prepared, str)
    return dict(prepared[0].settings.environment)


def config_text(baseline: str, candidate: Candidate) -> str:
    """The baseline's text with the candidate's settings after it, where they win."""
    lines = [baseline.rstrip("\n"), ""] if baseline.strip() else []
    settings: Mapping[str, str] = {name: text for value in candidate.values for name, text in value.variables}
    lines += [f"export {name}={shlex.quote(text)}" for name, text in settings.items()]
    return "\n".join(lines) + "\n"


def file_name(name: str) -> str:
    """A candidate's name as that of a file; where it had to be changed, with a part of its checksum."""
    plain = re.sub(r"[^A-Za-z0-9_=+. -]", "-", name)[:LONGEST_NAME].lstrip(".")
    checksum = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:8]
    return plain if plain == name else f"{plain}-{checksum}"


def _unrecorded(launch: Launch) -> bool:
    """Whether it failed because the disk was full, which says nothing of its config."""
    return any(failure.code == NotRecorded.code for failure in launch.failures)
