"""What a running tuning does now, from its records alone: what it compares, what is known so far, what remains."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from merge_bench.campaign.expected_time import rule_of_thumb_seconds
from merge_bench.records.campaign import Campaign, Launch
from merge_bench.records.recorded_plan import Tuning
from merge_bench.records.schema import TuneLine
from merge_bench.tune.evaluator import ABLATE, AGAIN, COMBINE, CONFIRM, SCREEN, Candidate, Options, sample_of
from merge_bench.tune.head_to_head import Contest
from merge_bench.tune.result import LEFT_OUT, STOPPED
from merge_bench.units import format_duration, plural

OPEN = "not decided yet"
"""The decision of a line about a candidate that is compared now; such lines are not in records."""


@dataclass(frozen=True)
class Stage:
    """What a tuning does now.

    `doing`: what it compares: ``comparing each of 4 candidates alone with default, block 2 of 3 to 8``. `left`: how
    long the rest takes, in the words of the terminal; empty if nothing is known about that. `share`: the part of the
    budget's time that is used up, 0 to 1; None without such a budget. `compared`: a line for each candidate that is
    compared now, with what the blocks show so far.
    """

    doing: str
    left: str = ""
    share: float | None = None
    compared: tuple[TuneLine, ...] = ()


@dataclass(frozen=True)
class _LaunchOfBlock:
    """A recorded launch with its config, plan and block."""

    config: str
    plan: int
    block: int
    launch: Launch

    @property
    def time(self) -> float:
        lines = (self.launch.line, *self.launch.failures)
        return max((line.time for line in lines if line is not None), default=0.0)

    @property
    def over(self) -> bool:
        return self.launch.end is not None or bool(self.launch.failures)


def steps_of(campaign: Campaign) -> list[TuneLine]:
    """The decisions so far, without the lines that say what the budget leaves out and where it ends the search."""
    return [line for line in campaign.tuning if line.decision not in (LEFT_OUT, STOPPED)]


def stage_of(campaign: Campaign) -> Stage:
    """What the tuning of this campaign does now."""
    return _StageReader(campaign).stage()


class _StageReader:
    """Finds out from the records of a tuning what it does now."""

    def __init__(self, campaign: Campaign) -> None:
        self.campaign = campaign
        self.tuning = campaign.plans[0].tune or Tuning()
        self.most, self.confirm = self.tuning.blocks or Options.most, self.tuning.confirm or Options.confirm
        self.baseline = campaign.head.configs[0].name
        self.steps = steps_of(campaign)
        self.launches = [
            _LaunchOfBlock(*launch.key, launch.block, launch)
            for launch in campaign.standing
            if launch.key is not None and launch.block is not None
        ]
        absent = [line for line in campaign.tuning if line.decision == LEFT_OUT]
        missing = {line.plan for line in absent if line.setting is None}
        self.sizes = [at for at in range(len(campaign.plans)) if at not in missing]
        self.left_out = {line.setting for line in absent} - {one.config for one in self.launches}
        self.settings = {line.config.name: line.settings for line in campaign.added}

    def stage(self) -> Stage:
        screened = {line.config for line in self.steps if line.phase == SCREEN}
        twin = self.baseline + AGAIN
        over = twin in screened if any(one.config == twin for one in self.launches) else bool(screened)
        if over or any(line.decision == STOPPED for line in self.campaign.tuning):
            return self._head_to_head_stage()
        return self._screening_stage(screened)

    def _screening_stage(self, screened: set[str]) -> Stage:
        """The stage in which each candidate is compared alone with the baseline; `screened`: those decided."""
        exhaustive = self.tuning.strategy == "exhaustive"
        twin = self.baseline + AGAIN
        named = [*([] if exhaustive else self.tuning.values), *(one.config for one in self.launches)]
        gone = {self.baseline, twin, *screened, *self.left_out}
        alive = [name for name in dict.fromkeys(named) if name not in gone]
        each_block = len(alive) + (1 if exhaustive else 2)
        # With a budget, the first blocks show how long launches of the baseline take.
        candidates = [one.block for one in self.launches if one.config not in (self.baseline, twin)]
        timing = 0 if self._budget_seconds is None else max((one.block + 1 for one in self.launches), default=1)
        first = min(candidates, default=timing)
        block = max(self.launches[-1].block if self.launches else first, first)
        done = sum(one.over for one in self.launches if one.block == block)
        if done >= each_block:
            block, done = block + 1, 0
        number = block - first + 1
        quick = max(Options.least - number + 1, number <= self.most) * each_block - done
        slow = max(self.most - number + 1, 0) * each_block - done
        limit = self.tuning.budget[0] if self.tuning.budget else None
        if limit is not None:
            slow = max(min(slow, int(limit) - len(self.launches)), 0)
        few = str(self.most) if exhaustive or self.most <= Options.least else f"{Options.least} to {self.most}"
        what = plural(len(alive), "combination" if exhaustive else "candidate")
        doing = f"comparing each of {what} alone with {self.baseline}, block {min(number, self.most)} of {few}"
        left = (
            self._time_left_text(
                quick * self._launch_seconds(0),
                slow * self._launch_seconds(0) + self._confirmation_seconds,
                f" if each candidate is decided after {max(number, Options.least)} blocks and none gains",
                f" if they need {self.most} blocks and one is confirmed",
            )
            if not exhaustive
            else self._time_left_text(slow * self._launch_seconds(0), None)
        )
        launches = [one for one in self.launches if one.block >= first]
        compared = [self._step_so_far(SCREEN, name, self.baseline, 0, launches) for name in alive]
        compared.append(self._step_so_far(SCREEN, twin, self.baseline, 0, self.launches))  # and the block that timed it
        return Stage(doing, left, self._budget_share, tuple(line for line in compared if line is not None))

    def _head_to_head_stage(self) -> Stage:
        """The stage after the screening, in which candidates are compared with each other or confirmed."""
        since = max((line.time for line in self.campaign.tuning), default=0.0)
        recent = [one for one in self.launches if one.time > since]
        names = list(dict.fromkeys(one.config for one in recent))
        names.sort(key=lambda name: -len(self.settings.get(name, ())))
        if not names:
            return Stage("choosing what to compare next", share=self._budget_share)
        at = recent[-1].plan
        blocks = len({one.block for one in recent if one.plan == at})
        confirming = self.baseline in names
        if len(names) == 1:
            return Stage(f"comparing {names[0]} with another config", share=self._budget_share)
        against = self.baseline if confirming else names[1]
        tested = [name for name in names if name != against] if confirming else names[:1]
        candidate = tested[0]
        rows = self.campaign.plans[at].rows_per_chunk
        where = f" at {rows:,} rows per chunk" if rows is not None and len(self.campaign.plans) > 1 else ""
        combined = any(line.phase == COMBINE and line.config == candidate for line in self.steps)
        phase = CONFIRM if confirming else ABLATE if combined or at else COMBINE
        if confirming:
            doing = f"confirming {', '.join(tested)} against {against}{where}, block {blocks} of {self.confirm}"
            counts = [sum(one.over for one in recent if one.plan == size) for size in self.sizes]
            waiting = [max(len(names) * self.confirm - count, 0) for count in counts]
            rest = math.fsum(
                count * self._launch_seconds(size) for count, size in zip(waiting, self.sizes, strict=True)
            )
            left = self._time_left_text(rest, None)
        else:
            doing = f"comparing {candidate} with {against}{where}, block {blocks}"
            left = self._time_left_text(self._confirmation_seconds, None, " or more")
        of = recent if confirming else self.launches  # blocks of the search do not count for the confirmation
        plans = dict.fromkeys(one.plan for one in recent)
        compared = [self._step_so_far(phase, name, against, plan, of) for name in tested for plan in plans]
        return Stage(doing, left, self._budget_share, tuple(line for line in compared if line is not None))

    def _step_so_far(
        self, phase: str, candidate: str, against: str, plan: int, launches: Sequence[_LaunchOfBlock]
    ) -> TuneLine | None:
        """What the complete blocks of both configs show so far, as an undecided step; None without such a block."""
        contest = Contest(Candidate(), Candidate(), plan=plan)
        blocks: dict[int, dict[str, Launch]] = {}
        for entry in launches:
            if entry.over and entry.plan == plan and entry.config in (candidate, against):
                blocks.setdefault(entry.block, {})[entry.config] = entry.launch
        metric = self.tuning.metric or "throughput"
        for pair in blocks.values():
            if len(pair) == 2:
                contest.add(sample_of(pair[candidate], metric), sample_of(pair[against], metric))
        if contest.effect is None:
            return None
        differing = set(self.settings.get(candidate, ())) ^ set(self.settings.get(against, ()))
        count = len(contest.ratios)
        return TuneLine(
            phase=phase,
            config=candidate,
            against=against,
            plan=plan,
            time=launches[-1].time,
            setting=differing.pop() if len(differing) == 1 and phase != CONFIRM else None,
            decision=OPEN,
            reason=f"{plural(count, 'block')} so far",
            **contest.step_figures(),
        )

    @property
    def _budget_seconds(self) -> float | None:
        return self.tuning.budget[1] if len(self.tuning.budget) > 1 else None

    @property
    def _spent_seconds(self) -> float:
        return math.fsum(one.launch.end.seconds or 0.0 for one in self.launches if one.launch.end is not None)

    @property
    def _budget_share(self) -> float | None:
        return None if not self._budget_seconds else min(self._spent_seconds / self._budget_seconds, 1.0)

    @property
    def _confirmation_seconds(self) -> float:
        return 2 * self.confirm * math.fsum(map(self._launch_seconds, self.sizes))

    def _launch_seconds(self, plan: int) -> float:
        """Seconds of a launch of this plan: the median so far, or by the rule of thumb before one has ended."""
        seconds = [
            one.launch.end.seconds
            for one in self.launches
            if one.plan == plan and one.launch.complete and one.launch.end and one.launch.end.seconds
        ]
        if seconds or not plan:
            return statistics.median(seconds) if seconds else math.nan
        small, large = self.campaign.plans[0], self.campaign.plans[plan]
        if None in (small.rows_per_chunk, large.rows_per_chunk):
            return self._launch_seconds(0)
        return self._launch_seconds(0) * (
            rule_of_thumb_seconds(large.rows_per_chunk or 0, large.iterations or 0)
            / rule_of_thumb_seconds(small.rows_per_chunk or 0, small.iterations or 0)
        )

    def _time_left_text(self, quick: float, slow: float | None, of_quick: str = "", of_slow: str = "") -> str:
        """How long the rest takes, as a sentence: `quick` seconds on the condition `of_quick`, else `slow` seconds."""
        if math.isnan(quick):
            return ""
        rest = None if self._budget_seconds is None else max(self._budget_seconds - self._spent_seconds, 0.0)
        parts = [f"about {format_duration(quick)} left{of_quick}"] if rest is None or quick < rest else []
        if slow is not None and (rest is None or slow < rest):
            parts.append(f"about {format_duration(slow)}{of_slow}")
        if rest is not None:
            whole = format_duration(self._budget_seconds or 0.0)
            parts.append(f"at most {format_duration(rest)} until its budget of {whole} is used up")
        return ", ".join(parts).capitalize()
