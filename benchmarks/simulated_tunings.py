"""How often `tune` accepts a config, by what its settings really do at each problem size: simulated tunings.

    python -m benchmarks.simulated_tunings --output results/curated/tune-simulated.toml

Search, budget and confirmation are those of the command; only the launches are made up: their speeds from the truth,
with noise, and the seconds that they take. Takes some minutes of a core.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from merge_bench.analysis.compare import METRICS
from merge_bench.campaign.make_plan import PlannedRun
from merge_bench.campaign.planned_launches import PlannedLaunch, make_campaign_line
from merge_bench.records.campaign import Campaign
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.records.schema import AddedConfigLine, Config, RunKey, TuningStepLine
from merge_bench.tune.evaluator import Candidate, LaunchSample, SearchOptions
from merge_bench.tune.space import Setting, SettingValue, TuningSpace
from merge_bench.tune.strategies import strategies
from merge_bench.tune.tune_campaign import (
    ClusterEvaluator,
    TuningBudget,
    fit_search_to_timed_baseline,
    search_and_confirm,
)
from merge_bench.tune.tuning_plan import LAUNCH_MARGIN, AffordableSearch, TuningCosts, fit_search_to_budget

BASELINE = "default"
ROWS = (1_000_000, 25_000_000)
DRIFT = 0.05
"""Standard deviation of the logarithm of what a block does to all its launches."""
OUTLIERS, SLOWER_BY = 0.03, (0.05, 0.30)
"""The share of launches that are slower, and by how much."""


@dataclass(frozen=True)
class Truth:
    """What settings do, and how long launches take.

    `gains`: for each setting its speed-up at each problem size, as ratios; those of a combination are multiplied.
    `noise`: standard deviation of the logarithm of a launch's speed. `seconds`: of a launch at each size.
    """

    gains: Mapping[str, Sequence[float]]
    noise: float
    seconds: Sequence[float] = (3.0, 6.0)

    @property
    def space(self) -> TuningSpace:
        """The settings, each with one value."""
        values = {name: SettingValue(name, "y", ((f"UCX_{name.upper()}", "y"),)) for name in self.gains}
        return TuningSpace(tuple(Setting(name, (value,)) for name, value in values.items()), "0" * 64)

    def speed_of(self, candidate: Candidate, plan: int) -> float:
        """The true speed of a candidate at the problem size `plan`, as a multiple of the baseline's."""
        return math.prod(self.gains[value.setting][plan] for value in candidate.values)


class SimulatedEvaluator(ClusterEvaluator):
    """Makes up the launches of a tuning; its budget and its order of launches are those of real ones."""

    def __init__(self, truth: Truth, seed: int, budget_seconds: float | None, confirm: int) -> None:
        self.truth, self._random = truth, random.Random(seed)
        self._candidates, self._drifts = dict[str, Candidate](), dict[int, float]()
        self._steps, self._added = list[TuningStepLine](), dict[str, AddedConfigLine]()
        unused: Any = None
        super().__init__(
            writer=unused,
            baseline=BASELINE,
            text="",
            prepared=cast("Any", ROWS[: len(truth.seconds)]),
            load=unused,
            launch=unused,
            metric=METRICS[0],
            seed=seed,
            budget=TuningBudget(seconds=budget_seconds, weights=(1.0,) * len(truth.seconds), confirm=confirm),
        )

    def __post_init__(self) -> None:
        """Read no records, because there are none."""

    def read_campaign(self) -> Campaign:
        plans = [{"rows_per_chunk": rows, "tune": {}} for rows in ROWS[: len(self.truth.seconds)]]
        keys = [RunKey(config=BASELINE, plan=plan) for plan in range(len(plans))]
        return Campaign(
            Path("records.jsonl"),
            make_campaign_line([Config(name=BASELINE)], plans, keys, self.seed),
            tuple(map(RecordedPlan.from_options, plans)),
            launches=(),
            truncated=False,
            skipped={},
            added=tuple(self._added.values()),
            tuning=tuple(self._steps),
        )

    def record_step(self, line: TuningStepLine) -> None:
        self._steps.append(line)

    def _plan_candidate(self, candidate: Candidate, name: str) -> Sequence[PlannedRun] | str:
        self._candidates[name] = candidate
        settings = [value.value_id for value in candidate.values]
        self._added[name] = AddedConfigLine(config=Config(name=name), settings=settings)
        return self.prepared

    def _launch_and_store_sample(self, job: PlannedLaunch) -> None:
        drift = self._drifts.setdefault(job.block, self._random.gauss(0.0, DRIFT))
        slow = math.log1p(-self._random.uniform(*SLOWER_BY)) if self._random.random() < OUTLIERS else 0.0
        speed = self.truth.speed_of(self._candidates[job.config], job.plan)
        value = 1e9 * speed * math.exp(drift + self._random.gauss(0.0, self.truth.noise) + slow)
        sample = LaunchSample(value), self.truth.seconds[job.plan]
        self._samples_by_launch[job.config, job.plan, job.block] = sample


@dataclass
class SimulatedTiming:
    """What fits the budget of a simulated tuning, as `TuningTiming` finds it."""

    space: TuningSpace
    budget: float
    confirm: int
    measured: Sequence[float] = ()

    @property
    def relative_launch_seconds(self) -> tuple[float, ...]:
        return tuple(seconds / self.measured[0] for seconds in self.measured) or (1.0,) * len(ROWS)

    def choose_affordable_search(self, launch: float) -> AffordableSearch:
        launches = [LAUNCH_MARGIN * launch * weight for weight in self.relative_launch_seconds]
        costs = TuningCosts(launches, lambda values: len(values) + 2, self.confirm)
        return fit_search_to_budget(self.space.values, costs, self.budget)

    def print_duration_forecast(self, fitting: AffordableSearch) -> None: ...


@dataclass(frozen=True)
class Tuned:
    found: frozenset[str]
    launches: int
    steps: Sequence[TuningStepLine]
    campaign: Campaign
    seconds: float


def tune(truth: Truth, seed: int, budget: float | None = None, options: SearchOptions | None = None) -> Tuned:
    options = options or SearchOptions()
    evaluator = SimulatedEvaluator(truth, seed, budget, options.confirm)
    space = truth.space

    def fit() -> AffordableSearch:
        if budget is None:
            return AffordableSearch(space.values, len(truth.seconds))
        task: Any = SimpleNamespace(values=space.values, prepared=evaluator.prepared, baseline=BASELINE, command=None)
        timing: Any = SimulatedTiming(space, budget, options.confirm)
        return fit_search_to_timed_baseline(task, timing, evaluator)

    found = search_and_confirm(evaluator, strategies()["race"], space, space.values, options, fit)
    return Tuned(
        frozenset(value.setting for value in found.values), evaluator._spent_launches, evaluator._steps,
        evaluator.read_campaign(), evaluator._spent_seconds,
    )
