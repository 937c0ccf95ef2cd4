"""The chart of a tuning: the speed-up of each setting with its interval, alone, combined and confirmed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from merge_bench.errors import say
from merge_bench.records.campaign import Campaign
from merge_bench.records.schema import TuneLine
from merge_bench.tune.evaluator import NO_GAIN_SEEN, UNDECIDED
from merge_bench.tune.result import GAINED, Result, decision_of
from merge_bench.view.plot.draw import attempt, draw, drawable
from merge_bench.view.plot.forest import Estimate, forest
from merge_bench.view.plot.marks import Chart
from merge_bench.view.text import short, uncapitalized

FILES = ("figure.png", "figure.svg", "figure.html")
"""Files in the campaign's folder; those are drawn whose libraries are installed."""
_KINDS = {
    GAINED: GAINED, "kept": "kept", "accepted": "kept", "rejected": "rejected", "failed": "failed",
    UNDECIDED: UNDECIDED, NO_GAIN_SEEN: NO_GAIN_SEEN,
}  # fmt: skip
_LETTERS = 36
"""Of a row's label; a drawing shortens longer ones in their middle, where the size begins."""


def draw_figures(
    result: Result, campaign: Campaign, plots: Sequence[Path], sizes: Sequence[str], metric: str
) -> list[str]:
    """Draw into the folder of `campaign`, and into `plots`; returns lines that name the files.

    Problems are printed on standard error.
    """
    chart = forest_of(result, sizes, metric)
    if chart.empty:
        return []
    own = [path for path in (campaign.folder / name for name in FILES) if drawable(path)]
    lines = []
    for path in dict.fromkeys([*own, *plots]):
        if problem := attempt(partial(draw, [chart], campaigns=[campaign]), path):
            say(problem)
        elif path not in own or path.suffix == ".png":
            lines.append(f"Figure: {path}")
    return lines


def forest_of(result: Result, sizes: Sequence[str], metric: str) -> Chart:
    """Each setting alone, the largest effect first; each one in the combination; the confirmation at every size."""
    singles = sorted(result.singles, key=lambda line: -(line.ratio or 0.0))
    ablated = {line.setting: line for line in (*result.combined, *result.ablated)}
    sections = {
        "Each alone": [_estimate(line, str(line.setting)) for line in singles],
        "In combination": [_estimate(line, str(name)) for name, line in ablated.items()],
        "Confirmation": [_estimate(line, _label(line.config, sizes[line.plan])) for line in result.confirmation],
    }
    outcome = " ".join(result.winner.settings) if result.winner else uncapitalized(result.outcome)
    return forest(
        sections,
        title=f"Speed-up by setting over {result.baseline}: {outcome}",
        axis=f"Speed-up in {metric} over the config without the setting (1 = no difference), with interval",
        kinds=(GAINED, "kept", "dropped", NO_GAIN_SEEN, UNDECIDED, "rejected", "failed"),
        noise=result.noise_floor,
    )


def _label(config: str, size: str) -> str:
    """``a=y+b=y, 1,000,000 rows``: of the config as much as a drawing has room for beside the whole size."""
    size = size.removesuffix(" per chunk")
    return f"{short(config, max(_LETTERS - len(f', {size}'), 12))}, {size}"


def _estimate(line: TuneLine, label: str) -> Estimate:
    decision = decision_of(line)
    detail = f"{decision}: {line.reason}; {line.launches} blocks"
    return Estimate(label, _KINDS.get(decision, "dropped"), line.ratio, line.low, line.high, detail)
