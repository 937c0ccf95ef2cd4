"""What the Tuning tab shows, as plain data: the steps as they were made, what they decided, and the config to keep."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from merge_bench import published
from merge_bench.config.shell import NAME, parse
from merge_bench.dashboard.library import Loaded
from merge_bench.plot import merge
from merge_bench.plot.charts import Chart
from merge_bench.plot.style import shown
from merge_bench.record.campaign import Campaign
from merge_bench.record.schema import ConfigLine, TuneLine
from merge_bench.record.writer import safe_name
from merge_bench.report.full.tuning import published_effects
from merge_bench.tune.result import Result, result_of

NUMBERS = ("Speed-up", "Low", "High")
COLUMNS = ("Step", "Phase", "Setting", "Config", "Against", "Problem", *NUMBERS, "Launches", "Decision", "Why")
TERMS = {
    "Phase": "Phase", "Config": "Config", "Speed-up": "Speed-up", "Low": "95 % interval", "High": "95 % interval",
    "Launches": "Launch", "Decision": "Verdict",
}  # fmt: skip
MOST_STEPS = 2000


@dataclass(frozen=True)
class Step:
    """A step in the order made: minutes since the campaign began, its speed-up with its interval, and the rest."""

    number: int
    minutes: float
    ratio: float
    low: float
    high: float
    phase: str
    decision: str
    look: int
    what: str
    why: str


@dataclass(frozen=True)
class Tuned:
    """See the module. `config` is the text of the file to keep, None where nothing was confirmed."""

    outcome: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    race: tuple[Step, ...] = ()
    frame: pd.DataFrame | None = None
    config: str | None = None
    file_name: str = "tuned.cfg"
    problems: tuple[str, ...] = ()


def tuned(loaded: Loaded | None) -> Tuned:
    """What a campaign of `tune` came to, or has come to so far; without one, what others have published."""
    if loaded is None:
        return Tuned(outcome=("No tuning was made into this folder yet.",), charts=_published())
    problems: tuple[str, ...] = (f"{loaded.entry.folder.name}: {loaded.problem}",) if loaded.problem else ()
    campaign = loaded.campaign
    if campaign is None or not campaign.tuning:
        return Tuned(outcome=("This campaign has no step of tuning yet.",), problems=problems)
    steps = campaign.tuning[:MOST_STEPS]
    if len(campaign.tuning) > MOST_STEPS:
        problems += (f"Only the first {MOST_STEPS:,} of {len(campaign.tuning):,} steps are shown.",)
    result = result_of(campaign)
    text = config_text(campaign, result) if result.winner is not None else None
    if result.winner is not None and text is None:
        problems += ("The config that was found holds a name or value that no config file can hold.",)
    return Tuned(
        outcome=tuple(_outcome(campaign, result)),
        charts=tuple(_charts(campaign, steps)),
        race=tuple(_race(campaign, steps)),
        frame=frame(campaign, steps),
        config=text,
        file_name=f"{safe_name(result.winner.config.name)}.cfg" if result.winner else "tuned.cfg",
        problems=problems,
    )


def config_text(campaign: Campaign, result: Result) -> str | None:
    """The confirmed config as a file; None if what it holds would not be read back as it is."""
    if result.winner is None:
        return None
    lines = [
        f"# Found by merge_bench tune, from {shown(result.baseline)}; campaign {shown(campaign.head.campaign_id)}.",
        *(f"# {shown(_speedup(line))} at {_size(campaign, line.plan)}." for line in result.confirmation),
    ]
    worth = result.contributions
    lines += [f"# {shown(name)}: {shown(_speedup(worth[name]))}" for name in result.winner.settings if name in worth]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in result.winner.config.variables.items()]
    text = "\n".join(lines) + "\n"
    return text if _reads_back(text, result.winner) else None


def _reads_back(text: str, winner: ConfigLine) -> bool:
    if not all(NAME.fullmatch(name) for name in winner.config.variables):
        return False
    try:
        found = [assignment.name for statement in parse(text) for assignment in statement.assignments]
    except ValueError:
        return False
    return found == list(winner.config.variables)


def frame(campaign: Campaign, steps: Sequence[TuneLine]) -> pd.DataFrame:
    """The steps in the order made."""
    columns = {
        "Step": list(range(1, len(steps) + 1)),
        "Phase": [shown(step.phase) for step in steps],
        "Setting": [shown(step.setting or "") for step in steps],
        "Config": [shown(step.config) for step in steps],
        "Against": [shown(step.against) for step in steps],
        "Problem": [_size(campaign, step.plan) for step in steps],
        "Speed-up": [step.ratio for step in steps],
        "Low": [step.low for step in steps],
        "High": [step.high for step in steps],
        "Launches": [step.launches for step in steps],
        "Decision": [shown(step.decision) for step in steps],
        "Why": [shown(step.reason) for step in steps],
    }
    whole = ("Step", "Launches")
    kinds = {name: float if name in NUMBERS else int if name in whole else object for name in COLUMNS}
    return pd.DataFrame(columns, columns=list(COLUMNS)).astype(kinds)


def _outcome(campaign: Campaign, result: Result) -> list[str]:
    if result.winner is not None:
        sizes = "; ".join(f"{_speedup(line)} at {_size(campaign, line.plan)}" for line in result.confirmation)
        named = " ".join(result.winner.settings) or result.winner.config.name
        return [f"Found: {named}. Confirmed against {result.baseline}: {sizes}."]
    if campaign.end is None:
        return [f"Not over yet: {len(campaign.tuning)} steps so far."]
    return [f"Nothing that beats {result.baseline} was confirmed."]


def _charts(campaign: Campaign, steps: Sequence[TuneLine]) -> list[Chart]:
    keys = dict.fromkeys((step.phase, step.plan) for step in steps)
    made = [merge.tuning(steps, phase, plan, _size(campaign, plan)) for phase, plan in keys]
    return [chart for chart in made if not chart.empty]


def _race(campaign: Campaign, steps: Sequence[TuneLine]) -> list[Step]:
    decisions = list(dict.fromkeys(step.decision for step in steps))  # as the charts below count them
    return [
        Step(
            number=number,
            minutes=(step.time - campaign.head.time) / 60.0,
            ratio=step.ratio,
            low=step.low if step.low is not None else step.ratio,
            high=step.high if step.high is not None else step.ratio,
            phase=shown(step.phase),
            decision=shown(step.decision),
            look=decisions.index(step.decision),
            what=shown(f"{step.setting or step.config} against {step.against}"),
            why=shown(step.reason),
        )
        for number, step in enumerate(steps, 1)
        if step.ratio is not None
    ]


def _published() -> tuple[Chart, ...]:
    found = [name for name, data in published.datasets().items() if data.kind == published.SETTINGS]
    effects = [[each for each in published.settings_effects(name) if each.metric == "throughput"] for name in found]
    return tuple(published_effects(each) for each in effects if each)


def _speedup(line: TuneLine | None) -> str:
    if line is None or line.ratio is None:
        return "not measured"
    interval = f" ({line.low:.3f} to {line.high:.3f})" if line.low is not None and line.high is not None else ""
    return f"{line.ratio:.3f} ×{interval}"


def _size(campaign: Campaign, plan: int) -> str:
    count = campaign.head.plans[plan].get("rows_per_chunk") if plan < len(campaign.head.plans) else None
    return f"{count:,} rows per chunk" if isinstance(count, int) else f"plan {plan}"
