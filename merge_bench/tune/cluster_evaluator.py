"""The evaluator of a tuning on real clusters: a campaign to which configs are added as the strategy asks for them.

Launches that are in the records are not made again. An interrupted tuning is resumed by running its strategy from the
start, through the launches that were made, to the first that is missing.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
import shlex
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from merge_bench.campaign.make_plan import PlannedRun
from merge_bench.campaign.planned_launches import Job
from merge_bench.cluster import signals
from merge_bench.errors import NotRecorded, RunFailed, UsageError, WrongResult, say
from merge_bench.records.campaign import Campaign
from merge_bench.records.follow import Follower
from merge_bench.records.outputs import replacing
from merge_bench.records.schema import Config, ConfigLine, TuneLine
from merge_bench.records.writer import CampaignWriter
from merge_bench.tune.evaluator import BudgetSpent, Candidate, Options, Sample, sample_of
from merge_bench.tune.space import Value

CONFIGS = "configs"
LONGEST_NAME = 120
MOST_BASELINE_FAILURES = 2
LATEST = 6
"""So many latest launches count alone if they took longer than all: the host may have become slower."""
MARGIN = 1.1
"""Factor by which launches may become slower before a candidate that waits for its turn no longer fits."""
RESUME = "run the same command to resume"
Load = Callable[[Path], list[PlannedRun]]
"""Reads a config file; returns a plan for each size."""
MakeLaunch = Callable[[Job, int], int]
LaunchKey = tuple[str, int, int]
"""What identifies a launch: its config, the index of its plan, and its block."""


@dataclass
class Budget:
    """What a tuning may cost; None means no limit.

    `launches`: launches of the search; `seconds`: seconds of all launches; `weights`: how long a launch takes at each
    size, as a multiple of the first; `confirm`: blocks of the confirmation, for which the search leaves time.
    """

    launches: int | None = None
    seconds: float | None = None
    weights: Sequence[float] = ()
    confirm: int = 0

    def fits(self, spent: float, launch: float, launches: int, plan: int = 0, *, keep: int) -> bool:
        """Whether there is time for so many `launches` of a plan after `spent` seconds.

        `launch`: seconds of a launch at the first size; `keep`: candidates whose confirmation has to fit as well.
        """
        if self.seconds is None:
            return True
        block = launches * (self.weights[plan] if plan < len(self.weights) else 1.0)
        return spent + launch * (block + self.confirmation_launches(self.confirm, keep)) <= self.seconds

    def confirmation_launches(self, blocks: int, candidates: int) -> float:
        """Launches of a confirmation with so many blocks at each size, in units of a launch at the first size."""
        return (candidates + 1) * blocks * sum(self.weights) if candidates else 0.0


@dataclass
class ClusterEvaluator:
    """Makes the launches of a tuning on real clusters, and records them.

    `text`: the text of the baseline's config file; `waiting`: values that the budget had no time for at first.
    """

    writer: CampaignWriter
    baseline: str
    text: str
    prepared: Sequence[PlannedRun]
    load: Load
    launch: MakeLaunch
    metric: str
    seed: int
    budget: Budget
    waiting: Sequence[Value] = ()
    timed: Sequence[tuple[Sample, Sample]] = ()
    _searching: bool = True
    _search_launches: int = 0
    _spent_seconds: float = 0.0
    _spent_launches: int = 0
    _first_size_seconds: list[float] = field(default_factory=list)
    _block: int = 0
    _samples_by_launch: dict[LaunchKey, tuple[Sample, float]] = field(default_factory=dict)
    _next_index: int = 0
    _baseline_failures: int = 0

    def __post_init__(self) -> None:
        self._records = Follower(self.writer.folder, limit=sys.maxsize)
        self._configs: dict[str, Sequence[PlannedRun] | str] = {self.baseline: self.prepared}
        campaign = self._read_campaign()
        self._recorded_configs = {line.config.name for line in campaign.added}
        self._recorded_steps = [msgspec.structs.replace(line, time=0.0) for line in campaign.tuning]
        self._store_results(campaign)

    @property
    def plans(self) -> int:
        return len(self.prepared)

    @property
    def limited(self) -> bool:
        return self.budget.seconds is not None or self.budget.launches is not None

    @property
    def launch_seconds(self) -> float:
        """Seconds of a launch at the first size: the median of all so far, or of the latest if that is longer."""
        lengths = self._first_size_seconds
        return max(statistics.median(lengths), statistics.median(lengths[-LATEST:])) if lengths else 0.0

    @property
    def seconds(self) -> float:
        """Seconds of all launches so far."""
        return self._spent_seconds

    def block(
        self, candidates: Sequence[Candidate], *, plan: int = 0, search: bool = True, keep: int = 1
    ) -> list[Sample]:
        """One launch of each candidate, in random order; a launch that is in the records is not made again."""
        self._searching = search
        if search:
            self._charge_budget(len(candidates), plan, keep=keep)
        block = self._block
        self._block += 1
        order = list(range(len(candidates)))
        random.Random(f"{self.seed}/{block}").shuffle(order)
        samples = {at: self._sample_of_launch(candidates[at], plan, block) for at in order}
        return [samples[at] for at in range(len(candidates))]

    def time_baseline(self) -> float:
        """Seconds of a launch of the baseline at the first size: the shorter of two, made unless they are recorded.

        The first of all launches often takes longer, because files are read and loops compiled that later ones find.
        """
        own, twin = self.block([Candidate(), Candidate(twin=True)])
        self.timed = [(twin, own)]
        return min(self._first_size_seconds)

    def time_sizes(self, sizes: int) -> list[float]:
        """Seconds of a launch of the baseline at each of the first `sizes` after the first, made unless recorded."""
        seconds = []
        for plan in range(1, sizes):
            before = self._spent_seconds
            self.block([Candidate()], plan=plan)
            seconds.append(self._spent_seconds - before)
        return seconds

    def joining_values(self, pending: int) -> Sequence[Value]:
        """The waiting values that can still be judged in the budget, with time for a confirmation left."""
        for count in range(len(self.waiting), 0, -1):
            launches = pending + Options.least * (count + 2)
            if self.budget.fits(self._spent_seconds, MARGIN * self.launch_seconds, launches, keep=1):
                joined, self.waiting = self.waiting[:count], self.waiting[count:]
                say(f"there is time for {count} more of the candidates: {', '.join(value.id for value in joined)}")
                return joined
        return ()

    def can_confirm(self, blocks: int, candidates: int = 1) -> bool:
        """Whether the budget has time to confirm so many candidates with so many blocks."""
        launches = math.ceil(self.budget.confirmation_launches(blocks, candidates))
        return self.budget.fits(self._spent_seconds, self.launch_seconds, launches, keep=0)

    def confirmable_count(self, most: int) -> int:
        """How many candidates, of `most`, the budget has time to confirm with all blocks."""
        return next((count for count in range(most, 0, -1) if self.can_confirm(self.budget.confirm, count)), 0)

    def note(self, line: TuneLine) -> None:
        content = msgspec.structs.replace(line, time=0.0)
        if content in self._recorded_steps:
            self._recorded_steps.remove(content)
        else:
            self.writer.write(line)

    def _charge_budget(self, launches: int, plan: int, *, keep: int) -> None:
        """Count so many launches of the search; raises BudgetSpent if the budget has no time for them.

        Only launches and seconds of the records count, so that a resumed tuning ends where it would have ended.
        """
        keep = max(self.confirmable_count(keep), min(keep, 1))
        over = self.budget.launches is not None and self._search_launches + launches > self.budget.launches
        if over or not self.budget.fits(self._spent_seconds, self.launch_seconds, launches, plan, keep=keep):
            why = "its budget is used up" if over or not keep else "the rest of the budget is for a confirmation"
            raise BudgetSpent(f"the search ended after {self._search_launches} launches; {why}")
        self._search_launches += launches

    def _sample_of_launch(self, candidate: Candidate, plan: int, block: int) -> Sample:
        """The result of a launch, from the records or made now; its time counts. Raises BudgetSpent."""
        name = candidate.name(self.baseline)
        key = (name, plan, block)
        if self.budget.seconds is not None and self._spent_seconds >= self.budget.seconds:
            raise BudgetSpent(f"the budget was used up after {self._spent_launches} launches")
        if key not in self._samples_by_launch:
            prepared = self._plans_of(candidate, name)
            if isinstance(prepared, str):
                return Sample(None, prepared)
            self._make_launch(Job(prepared[plan], name, plan, block))
            if not candidate.values:
                self._check_baseline(self._samples_by_launch[key][0])
        sample, seconds = self._samples_by_launch[key]
        self._spent_seconds += seconds
        self._spent_launches += 1
        if plan == 0:
            self._first_size_seconds.append(seconds)
        return sample

    def _make_launch(self, job: Job) -> None:
        status = self.launch(job, self._next_index)
        if (interrupted := signals.interruption()) is not None:
            raise interrupted
        self._store_results(self._read_campaign())
        if (job.config, job.plan, job.block) not in self._samples_by_launch:
            raise RunFailed(f"a launch ended with status {status}, but its result could not be recorded; {RESUME}")

    def label(self, job: Job) -> str:
        """What progress calls the launch that is made next: ``search, launch 36, 1:52/5:00, message-size=4m``."""
        used = (
            f", {_minutes_text(self._spent_seconds)}/{_minutes_text(self.budget.seconds)}"
            if self.budget.seconds
            else ""
        )
        return f"{'search' if self._searching else 'confirm'}, launch {self._next_index}{used}, {job.config}"

    def _check_baseline(self, sample: Sample) -> None:
        if sample.wrong:
            raise WrongResult(f"the baseline {self.baseline} gave a wrong merge result, so it cannot be tuned")
        self._baseline_failures = 0 if sample.value is not None else self._baseline_failures + 1
        if self._baseline_failures > MOST_BASELINE_FAILURES:
            raise RunFailed(f"the baseline failed {self._baseline_failures} times in a row: {sample.reason}")

    def _read_campaign(self) -> Campaign:
        """The campaign as its records are now; only what is new in them is read."""
        self._records.read()
        while self._records.behind:
            self._records.read()
        campaign = self._records.campaign
        if self._records.problem or campaign is None:
            raise RunFailed(self._records.problem or f"{self.writer.records} is empty")
        return campaign

    def _store_results(self, campaign: Campaign) -> None:
        for launch in campaign.launches:
            self._next_index = max(self._next_index, launch.index + 1)
            # A launch that failed because the disk was full says nothing about its config.
            unrecorded = any(failure.code == NotRecorded.code for failure in launch.failures)
            if launch.key is None or launch.block is None or launch.interrupted or unrecorded:
                continue
            key = (*launch.key, launch.block)
            if key not in self._samples_by_launch:
                self._samples_by_launch[key] = (
                    sample_of(launch, self.metric),
                    launch.end.seconds or 0.0 if launch.end else 0.0,
                )

    def _plans_of(self, candidate: Candidate, name: str) -> Sequence[PlannedRun] | str:
        """The candidate's plans, or why its config cannot be used; its config is written before its first launch."""
        if name in self._configs:
            return self._configs[name]
        path = self.writer.folder / CONFIGS / f"{file_name(name)}.cfg"
        try:
            path.parent.mkdir(exist_ok=True)
            with replacing(path) as stream:
                stream.write(config_text(self.text, candidate).encode())
        except OSError as error:
            raise RunFailed(f"cannot write the config {path}: {error.strerror}") from error
        variables: dict[str, str] = {}
        try:
            prepared = self.load(path)
            self._configs[name] = prepared
            variables = dict(prepared[0].settings.environment)
        except UsageError as error:  # nothing else: an interruption says nothing about a config
            self._configs[name] = str(error)
        if name not in self._recorded_configs:
            self._recorded_configs.add(name)
            config = Config(name=name, path=str(path), variables=variables)
            self.writer.write(ConfigLine(config=config, settings=[value.id for value in candidate.values]))
        return self._configs[name]


def _minutes_text(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def config_text(baseline: str, candidate: Candidate) -> str:
    """The text of a candidate's config: that of the baseline, then the settings, which take precedence."""
    lines = [baseline.rstrip("\n"), ""] if baseline.strip() else []
    settings: Mapping[str, str] = {name: text for value in candidate.values for name, text in value.variables}
    lines += [f"export {name}={shlex.quote(text)}" for name, text in settings.items()]
    return "\n".join(lines) + "\n"


def file_name(name: str) -> str:
    """A file name for a candidate; a name that has to be changed gets a part of its checksum."""
    plain = re.sub(r"[^A-Za-z0-9_=+. -]", "-", name)[:LONGEST_NAME].lstrip(".")
    checksum = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:8]
    return plain if plain == name else f"{plain}-{checksum}"
