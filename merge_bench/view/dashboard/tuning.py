"""The Tuning tab: how a config was found, step by step, and the file to keep."""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import panel as pn

from merge_bench.analysis import published
from merge_bench.config.shell import NAME, parse
from merge_bench.records.campaign import Campaign
from merge_bench.records.schema import ConfigLine, TuneLine
from merge_bench.records.writer import safe_name
from merge_bench.tune.result import Result, result_of
from merge_bench.view.dashboard.answers import Answers
from merge_bench.view.dashboard.components import (
    chart_card,
    complaints,
    frame_of,
    html,
    select,
    side_by_side,
    table,
)  # fmt: skip
from merge_bench.view.dashboard.index import TUNE, Entry
from merge_bench.view.dashboard.library import Library, Loaded
from merge_bench.view.numbers import with_interval
from merge_bench.view.plot import merge
from merge_bench.view.plot.forest import Estimate, race
from merge_bench.view.plot.marks import Chart
from merge_bench.view.report.full.tuning import published_effects
from merge_bench.view.report.tuning import size_of
from merge_bench.view.text import as_html, visible

MOST_STEPS = 2000

_LISTED = 100
_TERMS = {"Low": "95 % interval", "High": "95 % interval", "Decision": "Verdict"}


@dataclass(frozen=True)
class Tuned:
    """What the tab shows. `config` is the text of the file to keep, None where nothing was confirmed."""

    outcome: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    race: Chart | None = None
    frame: pd.DataFrame | None = None
    config: str | None = None
    file_name: str = "tuned.cfg"
    problems: tuple[str, ...] = ()


def tuned(loaded: Loaded | None) -> Tuned:
    """What a campaign of `tune` came to, or has come to so far; without one, what others have published."""
    if loaded is None:
        return Tuned(outcome=("No tuning was made into this folder yet.",), charts=_published())
    problems: tuple[str, ...] = (loaded.problem,) if loaded.problem else ()
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
        charts=tuple(merge.tunings(steps, partial(size_of, campaign))),
        race=_race(campaign, steps),
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
        f"# Found by merge_bench tune, from {visible(result.baseline)}; campaign {visible(campaign.head.campaign_id)}.",
        *(f"# {visible(_speedup(line))} at {size_of(campaign, line.plan)}." for line in result.confirmation),
    ]
    worth = result.contributions
    lines += [visible(f"# {name}: {_speedup(worth[name])}") for name in result.winner.settings if name in worth]
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
    columns: dict[str, list[Any]] = {
        "Step": list(range(1, len(steps) + 1)),
        "Phase": [step.phase for step in steps],
        "Setting": [step.setting or "" for step in steps],
        "Config": [step.config for step in steps],
        "Against": [step.against for step in steps],
        "Problem": [size_of(campaign, step.plan) for step in steps],
        "Speed-up": [step.ratio for step in steps],
        "Low": [step.low for step in steps],
        "High": [step.high for step in steps],
        "Launches": [step.launches for step in steps],
        "Decision": [step.decision for step in steps],
        "Why": [step.reason for step in steps],
    }
    return frame_of(columns, numbers=("Speed-up", "Low", "High"), whole=("Step", "Launches"))


def _outcome(campaign: Campaign, result: Result) -> list[str]:
    if result.winner is not None:
        sizes = "; ".join(f"{_speedup(line)} at {size_of(campaign, line.plan)}" for line in result.confirmation)
        named = " ".join(result.winner.settings) or result.winner.config.name
        return [f"Found: {named}. Confirmed against {result.baseline}: {sizes}."]
    if campaign.end is None:
        return [f"Not over yet: {len(campaign.tuning)} steps so far."]
    return [f"Nothing that beats {result.baseline} was confirmed."]


def _race(campaign: Campaign, steps: Sequence[TuneLine]) -> Chart:
    """Speed-ups with their intervals over the time at which they were decided."""
    found = [(number, step) for number, step in enumerate(steps, 1) if step.ratio is not None]
    labels = [f"step {at}, {one.phase}: {one.setting or one.config} against {one.against}" for at, one in found]
    estimates = [
        Estimate(label, step.decision, step.ratio, step.low, step.high, f"{step.decision}: {step.reason}")
        for label, (_, step) in zip(labels, found, strict=True)
    ]
    minutes = [(step.time - campaign.head.time) / 60.0 for _, step in found]
    return race(
        minutes, estimates, title="The race as it ran", kinds=list(dict.fromkeys(step.decision for step in steps))
    )


def _published() -> tuple[Chart, ...]:
    found = [name for name, data in published.datasets().items() if data.kind == published.SETTINGS]
    effects = [[each for each in published.settings_effects(name) if each.metric == "throughput"] for name in found]
    return tuple(published_effects(each) for each in effects if each)


def _speedup(line: TuneLine | None) -> str:
    return with_interval(line.ratio, line.low, line.high, " ×") if line else "not measured"


class TuningView:
    """The tab."""

    def __init__(self, entries: Callable[[], Sequence[Entry]], library: Library) -> None:
        self._listed = entries
        self._answers = Answers(
            lambda chosen: tuned(library.load([chosen])[0] if chosen is not None else None),
            lambda problem: Tuned(problems=(problem,)),
        )
        self._shown = Tuned()
        self.choice = select("Tuning", {"none yet": ""}, width=460)
        self.download = pn.widgets.FileDownload(
            callback=lambda: io.StringIO(self._shown.config or ""), filename="tuned.cfg", label="Download the config",
            color="primary", width=220, disabled=True, embed=False,
        )  # fmt: skip
        self._outcome = html(height=70)
        self._rest = pn.Column(sizing_mode="stretch_width", min_height=300, margin=0)
        self.layout = pn.Column(
            side_by_side(self.choice, self.download), self._outcome, self._rest,
            sizing_mode="stretch_width",
        )  # fmt: skip

    def refresh(self) -> tuple[Sequence[Entry], Tuned]:
        """Read the chosen campaign as far as it goes, and what there is to choose from; in a thread."""
        entries = tuple(entry for entry in self._listed() if entry.kind == TUNE)[:_LISTED]
        chosen = next((entry for entry in entries if entry.id == self.choice.value), next(iter(entries), None))
        return entries, self._answers(chosen)

    def show(self, found: tuple[Sequence[Entry], Tuned]) -> None:
        """Show it; under the document's lock."""
        entries, answer = found
        options = {entry.folder.name: entry.id for entry in entries} or {"none yet": ""}
        if options != self.choice.options:
            value = self.choice.value if self.choice.value in options.values() else next(iter(options.values()))
            self.choice.param.update(options=options, value=value)
        if answer is not self._shown:
            self._shown = answer
            self.download.param.update(disabled=answer.config is None, filename=answer.file_name)
            outcome = "".join(f"<p><b>{as_html(each)}</b></p>" for each in answer.outcome)
            self._outcome.value = complaints(answer.problems) + outcome
            self._rest.objects = _laid_out(answer)


def _laid_out(found: Tuned) -> list[Any]:
    race = [chart_card(found.race, ["Speed-up", "95 % interval", "Phase"])] if found.race else []
    parts: list[Any] = [*race, *map(chart_card, found.charts)]
    if found.frame is not None:
        options = {"pagination": "local", "page_size": 10, "widths": {"Why": 360, "Config": 200}}
        parts.append(table(found.frame, height=430, terms=_TERMS, **options))
    return parts
