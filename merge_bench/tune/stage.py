"""What a tuning does now, while it runs, from its records so far; for progress displays."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from merge_bench.records.campaign import Campaign, Launch
from merge_bench.records.recorded_plan import RecordedTuning
from merge_bench.records.schema import TuningStepLine
from merge_bench.tune.evaluator import (
    ABLATE,
    AGAIN,
    COMBINE,
    CONFIRM,
    SCREEN,
    Candidate,
    PairedComparison,
    SearchOptions,
    make_launch_sample,
    tuned_metric,
)
from merge_bench.tune.result import LEFT_OUT, OPEN, STOPPED, decided_steps
from merge_bench.units import count_with_noun, format_duration, format_limit


@dataclass(frozen=True)
class TuningStage:
    """The present stage of a running tuning, for progress displays.

    `doing`: what is compared now: ``comparing each of 4 candidates alone with default, block 2 of 3 to 8``. `left`: how
    long the rest takes, as a sentence for the terminal; empty if that is unknown. `share`: the part of the budget's
    time that is used up, 0 to 1; None without such a budget. `compared`: a line for each candidate that is compared
    now, with what the blocks show so far.
    """

    doing: str
    left: str = ""
    share: float | None = None
    compared: tuple[TuningStepLine, ...] = ()


@dataclass(frozen=True)
class _LaunchOfBlock:
    config: str
    plan: int
    block: int
    launch: Launch

    @property
    def ended_at(self) -> float:
        lines = (self.launch.line, *self.launch.failures)
        return max((line.time for line in lines if line is not None), default=0.0)

    @property
    def has_ended(self) -> bool:
        return self.launch.end is not None or bool(self.launch.failures)


def tuning_stage_of(campaign: Campaign) -> TuningStage:
    """Find the present stage of a running tuning from the records of its campaign."""
    return _TuningStageFinder(campaign).find_stage()


class _TuningStageFinder:
    def __init__(self, campaign: Campaign) -> None:
        self.campaign = campaign
        self.tuning = campaign.plans[0].tune or RecordedTuning()
        self.most, self.confirm = self.tuning.blocks or SearchOptions.most, self.tuning.confirm or SearchOptions.confirm
        self.baseline = campaign.head.configs[0].name
        self.twin = self.baseline + AGAIN
        self.steps = decided_steps(campaign)
        self.launches = [
            _LaunchOfBlock(*launch.run_key, launch.block_index, launch)
            for launch in campaign.launches_not_replaced
            if launch.run_key is not None and launch.block_index is not None
        ]
        absent = [line for line in campaign.tuning if line.decision == LEFT_OUT]
        missing = {line.plan for line in absent if line.setting is None}
        self.sizes = [at for at in range(len(campaign.plans)) if at not in missing]
        self.left_out = {line.setting for line in absent} - {one.config for one in self.launches}
        self.settings = {line.config.name: line.settings for line in campaign.added}
        self.budget_seconds = self.tuning.budget[1] if len(self.tuning.budget) > 1 else None
        ends = [one.launch.end for one in self.launches if one.launch.end is not None]
        self.spent_seconds = math.fsum(end.seconds or 0.0 for end in ends)

    def find_stage(self) -> TuningStage:
        screened = {line.config for line in self.steps if line.phase == SCREEN}
        over = self.twin in screened if any(one.config == self.twin for one in self.launches) else bool(screened)
        if over or any(line.decision == STOPPED for line in self.campaign.tuning):
            return self._head_to_head_stage()
        return self._screening_stage(screened)

    def _make_stage(
        self, activity: str, time_left: str = "", comparison_steps: Sequence[TuningStepLine | None] = ()
    ) -> TuningStage:
        share = min(self.spent_seconds / self.budget_seconds, 1.0) if self.budget_seconds else None
        return TuningStage(activity, time_left, share, tuple(line for line in comparison_steps if line is not None))

    def _screening_stage(self, decided_configs: set[str]) -> TuningStage:
        """The stage in which each candidate is compared alone with the baseline.

        `decided_configs`: the candidates that are decided already.
        """
        exhaustive = self.tuning.strategy == "exhaustive"
        named = [*([] if exhaustive else self.tuning.values), *(one.config for one in self.launches)]
        gone = {self.baseline, self.twin, *decided_configs, *self.left_out}
        alive = [name for name in dict.fromkeys(named) if name not in gone]
        each_block = len(alive) + (1 if exhaustive else 2)
        # With a budget, the first blocks show how long launches of the baseline take.
        candidates = [one.block for one in self.launches if one.config not in (self.baseline, self.twin)]
        timing = 0 if self.budget_seconds is None else max((one.block + 1 for one in self.launches), default=1)
        first = min(candidates, default=timing)
        block = max(self.launches[-1].block if self.launches else first, first)
        done = sum(one.has_ended for one in self.launches if one.block == block)
        if done >= each_block:
            block, done = block + 1, 0
        number = block - first + 1
        quick = max(SearchOptions.least - number + 1, number <= self.most) * each_block - done
        slow = max(self.most - number + 1, 0) * each_block - done
        limit = self.tuning.budget[0] if self.tuning.budget else None
        if limit is not None:
            slow = max(min(slow, int(limit) - len(self.launches)), 0)
        few = (
            str(self.most)
            if exhaustive or self.most <= SearchOptions.least
            else f"{SearchOptions.least} to {self.most}"
        )
        what = count_with_noun(len(alive), "combination" if exhaustive else "candidate")
        doing = f"comparing each of {what} alone with {self.baseline}, block {min(number, self.most)} of {few}"
        seconds = self._launch_seconds(0)
        left = self._time_left_text(slow * seconds, None)
        if not exhaustive:
            left = self._time_left_text(
                quick * seconds,
                slow * seconds + self._confirmation_seconds,
                f" if each candidate is decided after {max(number, SearchOptions.least)} blocks and none gains",
                f" if they need {self.most} blocks and one is confirmed",
            )
        launches = [one for one in self.launches if one.block >= first]
        compared = [self._undecided_step_so_far(SCREEN, name, self.baseline, 0, launches) for name in alive]
        compared.append(
            self._undecided_step_so_far(SCREEN, self.twin, self.baseline, 0, self.launches)
        )  # with its first timing
        return self._make_stage(doing, left, compared)

    def _head_to_head_stage(self) -> TuningStage:
        """The stage after the screening, in which candidates are compared with each other or confirmed."""
        since = max((line.time for line in self.campaign.tuning), default=0.0)
        recent = [one for one in self.launches if one.ended_at > since]
        distinct = dict.fromkeys(one.config for one in recent)
        names = sorted(distinct, key=lambda name: -len(self.settings.get(name, ())))
        if len(names) < 2:
            doing = f"comparing {names[0]} with another config" if names else "choosing what to compare next"
            return self._make_stage(doing)
        at = recent[-1].plan
        blocks = len({one.block for one in recent if one.plan == at})
        confirming = self.baseline in names
        against = self.baseline if confirming else names[1]
        tested = [name for name in names if name != against] if confirming else names[:1]
        candidate = tested[0]
        rows = self.campaign.plans[at].rows_per_chunk
        where = f" at {rows:,} rows per chunk" if rows is not None and len(self.campaign.plans) > 1 else ""
        combined = any(line.phase == COMBINE and line.config == candidate for line in self.steps)
        phase = CONFIRM if confirming else ABLATE if combined or at else COMBINE
        if confirming:
            most = self.confirm if blocks <= self.confirm else 2 * self.confirm  # more, where a loss is not excluded
            doing = f"confirming {', '.join(tested)} against {against}{where}, block {blocks} of {most}"
            done = Counter(one.plan for one in recent if one.has_ended)
            waiting = {size: max(len(names) * self.confirm - done[size], 0) for size in self.sizes}
            if most > self.confirm:
                waiting = {
                    at: (most - blocks + 1) * len({one.config for one in recent if one.block == recent[-1].block})
                }
            seconds = (count * self._launch_seconds(size) for size, count in waiting.items())
            left = self._time_left_text(math.fsum(seconds), None)
        else:
            doing = f"comparing {candidate} with {against}{where}, block {blocks}"
            left = self._time_left_text(self._confirmation_seconds, None, " or more")
        of = recent if confirming else self.launches  # blocks of the search do not count for the confirmation
        plans = dict.fromkeys(one.plan for one in recent)
        compared = [self._undecided_step_so_far(phase, name, against, plan, of) for name in tested for plan in plans]
        return self._make_stage(doing, left, compared)

    def _undecided_step_so_far(
        self, phase: str, candidate: str, reference: str, plan: int, launches: Sequence[_LaunchOfBlock]
    ) -> TuningStepLine | None:
        """What the complete blocks of two configs show so far, as an undecided step; None without a complete block."""
        comparison = PairedComparison(Candidate(), Candidate(), plan=plan)
        blocks: dict[int, dict[str, Launch]] = {}
        for entry in launches:
            if entry.has_ended and entry.plan == plan and entry.config in (candidate, reference):
                blocks.setdefault(entry.block, {})[entry.config] = entry.launch
        metric = tuned_metric(self.campaign.plans[0])
        for pair in blocks.values():
            if len(pair) == 2:
                comparison.add_block(
                    make_launch_sample(pair[candidate], metric), make_launch_sample(pair[reference], metric)
                )
        if comparison.effect is None:
            return None
        differing = set(self.settings.get(candidate, ())) ^ set(self.settings.get(reference, ()))
        return TuningStepLine(
            time=launches[-1].ended_at,
            phase=phase,
            config=candidate,
            against=reference,
            plan=plan,
            setting=differing.pop() if len(differing) == 1 and phase != CONFIRM else None,
            decision=OPEN,
            reason=f"{count_with_noun(len(comparison.ratios), 'block')} so far",
            **comparison.ratio_fields(),
        )

    @property
    def _confirmation_seconds(self) -> float:
        return 2 * self.confirm * math.fsum(map(self._launch_seconds, self.sizes))

    def _launch_seconds(self, plan: int) -> float:
        """Seconds of a launch at this problem size: the median so far, else by the rule of thumb.

        `plan`: the index of the size's plan.
        """
        seconds = [
            one.launch.end.seconds
            for one in self.launches
            if one.plan == plan and one.launch.complete and one.launch.end and one.launch.end.seconds
        ]
        if seconds or not plan:
            return statistics.median(seconds) if seconds else math.nan
        sizes = [self.campaign.plans[at] for at in (0, plan)]
        if None in [size.rows_per_chunk for size in sizes]:
            return self._launch_seconds(0)
        from merge_bench.campaign.planned_launches import rule_of_thumb_seconds

        small, large = (rule_of_thumb_seconds(size.rows_per_chunk or 0, size.iterations or 0) for size in sizes)
        return self._launch_seconds(0) * (large / small)

    def _time_left_text(
        self, quick_seconds: float, slow_seconds: float | None, quick_condition: str = "", slow_condition: str = ""
    ) -> str:
        """How long the rest takes, as a sentence with two times and the conditions on which they hold.

        With a budget, times beyond its end are left out, and its rest is added.
        """
        if math.isnan(quick_seconds):
            return ""
        rest = None if self.budget_seconds is None else max(self.budget_seconds - self.spent_seconds, 0.0)
        parts = (
            [f"about {format_duration(quick_seconds)} left{quick_condition}"]
            if rest is None or quick_seconds < rest
            else []
        )
        if slow_seconds is not None and (rest is None or slow_seconds < rest):
            parts.append(f"about {format_duration(slow_seconds)}{slow_condition}")
        if rest is not None:
            whole = format_limit(self.budget_seconds or 0.0)
            parts.append(f"at most {format_duration(rest)} until its budget of {whole} is used up")
        return ", ".join(parts).capitalize()
