"""How often `tune` accepts a config, by what its settings really do at each problem size: simulated tunings.

    python -m benchmarks.simulated_tunings --output results/curated/tune-simulated.toml

Search, budget and confirmation are those of the command; only the launches are made up: their speeds from the truth,
with noise, and the seconds that they take. Takes some minutes of a core.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click

from benchmarks import command
from merge_bench.analysis.compare import METRICS
from merge_bench.campaign.make_plan import PlannedRun
from merge_bench.campaign.planned_launches import PlannedLaunch, make_campaign_line
from merge_bench.campaign.run_campaign import git_state
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

    @property
    def launches_made(self) -> int:
        """The number of launches so far."""
        return self._spent_launches

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
        """The seconds of a launch at each size, as multiples of those at the first."""
        return tuple(seconds / self.measured[0] for seconds in self.measured) or (1.0,) * len(ROWS)

    def choose_affordable_search(self, launch: float) -> AffordableSearch:
        """What fits the budget; `launch`: seconds of a launch at the first size."""
        launches = [LAUNCH_MARGIN * launch * weight for weight in self.relative_launch_seconds]
        costs = TuningCosts(launches, lambda values: len(values) + 2, self.confirm)
        return fit_search_to_budget(self.space.values, costs, self.budget)

    def print_duration_forecast(self, fitting: AffordableSearch) -> None:
        """Print nothing."""


@dataclass(frozen=True)
class SimulatedTuning:
    """What a simulated tuning found: the settings of the config that it accepted, its launches, and its records."""

    settings: frozenset[str]
    launches: int
    campaign: Campaign


def tune(truth: Truth, seed: int, budget_seconds: float | None = None) -> SimulatedTuning:
    """Simulate a tuning with the strategy `race`; `budget_seconds`: its ``--budget``, None without one."""
    options, space = SearchOptions(), truth.space
    evaluator = SimulatedEvaluator(truth, seed, budget_seconds, options.confirm)

    def fit_search() -> AffordableSearch:
        if budget_seconds is None:
            return AffordableSearch(space.values, len(truth.seconds))
        task: Any = SimpleNamespace(values=space.values, prepared=evaluator.prepared, baseline=BASELINE, command=None)
        timing: Any = SimulatedTiming(space, budget_seconds, options.confirm)
        return fit_search_to_timed_baseline(task, timing, evaluator)

    found = search_and_confirm(evaluator, strategies()["race"], space, space.values, options, fit_search)
    settings = frozenset(value.setting for value in found.values)
    return SimulatedTuning(settings, evaluator.launches_made, evaluator.read_campaign())


@dataclass(frozen=True)
class Case:
    """A truth to simulate: what the settings ``a``, ``b`` do at both sizes, beside those that do nothing.

    `counted`: whether what a tuning accepted, the names of settings, counts.
    """

    title: str
    gains: Mapping[str, Sequence[float]]
    counted: Callable[[frozenset[str]], bool]


def _has_a(settings: frozenset[str]) -> bool:
    return "a" in settings


SETTINGS = 5
NOISES, BUDGETS = (0.02, 0.035, 0.05), (None, 300.0)
CASES = (
    *(
        Case(
            f"{first:+.0%}, {second:+.0%}".replace("+0%", "0").replace("%", " %"),
            {"a": (1 + first, 1 + second)},
            _has_a,
        )
        for first, second in ((0.08, -0.04), (0.15, -0.05), (0.08, -0.02), (0.08, 0.0), (0.08, 0.08), (0.05, 0.05))
    ),
    Case("no setting has an effect: any accepted", {}, bool),
    Case("+50 % and +15 %: exactly both accepted", {"a": (1.5, 1.5), "b": (1.15, 1.15)}, frozenset("ab").__eq__),
)


def count_accepted(case: Case, noise: float, budget_seconds: float | None, tunings: int, seed: int) -> int:
    """Simulate tunings of a case; returns how many accepted what counts."""
    names = [*case.gains, *(f"none{number}" for number in range(SETTINGS - len(case.gains)))]
    truth = Truth({name: case.gains.get(name, (1.0, 1.0)) for name in names}, noise)
    found = (tune(truth, seed * 100_000 + number, budget_seconds) for number in range(tunings))
    return sum(case.counted(each.settings) for each in found)


def table_of_curated_result(counts: Sequence[Sequence[int]], tunings: int, seed: int) -> str:
    """The table of `results/curated/`, as TOML; `counts`: for each case those of each budget and noise."""
    state = git_state()
    state_of_sources = " with local changes" if state is not None and state.dirty else ""
    commit = f"{state.commit[:7]}{state_of_sources}" if state is not None and state.commit else ""
    budgets = ["no budget", "5m"]
    columns = ["true effects", *(f"{budget}, {noise:.1%}" for budget in budgets for noise in NOISES)]
    rows = [
        [case.title, *(f"{100 * count / tunings:g}" for count in row)] for case, row in zip(CASES, counts, strict=True)
    ]
    lines = [
        'title = "Simulated tunings"',
        "place = 69",
        f'command = "python -m benchmarks.simulated_tunings --tunings {tunings} --seed {seed}"',
        'machine = "no machine: the launches are made up"',
        f'when = "{date.today():%-d %B %Y}"',
        f'commit = "{commit}"',
        f'''about = """
In how many of 100 tunings a setting with these effects at the first and at the second size was accepted, beside \\
settings without effect ({SETTINGS} in all); {tunings} tunings a cell, without a budget and with `--budget 5m`, \\
launches of 3 and 6 s. The columns have the standard deviation of a launch; 3 % of launches are 5 to 30 % slower."""''',
        f"columns = {json.dumps(columns)}",
        "rows = [",
        *(f"    {json.dumps(row, ensure_ascii=False)}," for row in rows),
        "]",
    ]
    return "\n".join(lines)


@click.command(context_settings=command.CONTEXT)
@command.option("--tunings", click.IntRange(1), 200, "Tunings of each cell.")
@command.option("--jobs", click.IntRange(1), 1, "Cells that are simulated side by side.")
@command.option("--output", command.FILE, None, "Write the table to this file.")
@command.SEED
def simulated_tunings(tunings: int, jobs: int, output: Path | None, seed: int) -> None:
    """Count how often simulated tunings accept a config, by the true effects of its settings."""
    cells = list(itertools.product(CASES, BUDGETS, NOISES))
    with ProcessPoolExecutor(jobs) as pool:
        running = [pool.submit(_count_cell, number, tunings, seed) for number in range(len(cells))]
        flat = [each.result() for each in running]
    width = len(cells) // len(CASES)
    text = table_of_curated_result([flat[at : at + width] for at in range(0, len(flat), width)], tunings, seed)
    command.write(output, text)
    click.echo(text)


def _count_cell(number: int, tunings: int, seed: int) -> int:
    case, budget_seconds, noise = list(itertools.product(CASES, BUDGETS, NOISES))[number]
    return count_accepted(case, noise, budget_seconds, tunings, seed)


if __name__ == "__main__":
    command.run(simulated_tunings, "simulated_tunings")
