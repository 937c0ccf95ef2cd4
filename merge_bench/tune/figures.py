"""The drawing of a tuning: the speed-up of every setting with its interval, what was combined, what was confirmed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from merge_bench.errors import UsageError
from merge_bench.outputs import check_writable, replacing
from merge_bench.plot.draw import check_form
from merge_bench.plot.forest import Forest, Point, Section, draw
from merge_bench.record.schema import TuneLine
from merge_bench.tune.result import Result

OWN = ("figure.png", "figure.svg", "figure.html")
"""Drawn into the campaign's folder, as far as the libraries are installed."""
_KINDS = {"kept": "kept", "accepted": "kept", "failed": "failed"}


def check_plots(names: Sequence[str], output: Path) -> tuple[Path, ...]:
    """The files of ``--plot``.

    Raises
    ------
    UsageError
        If one cannot be written or drawn, or is named twice.
    """
    plots = tuple(Path(name) for name in names)
    for plot in plots:
        check_form(plot)
        check_writable("--plot", plot)
    paths = [path.resolve() for path in (output, *plots)]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice} is to be written twice; name each file once")
    return plots


def draw_figures(
    result: Result, folder: Path, plots: Sequence[Path], sizes: Sequence[str], metric: str
) -> list[str]:  # fmt: skip
    """Draw into the campaign's folder and into `plots`; gives what is to be told: where it lies, or what went wrong."""
    found = forest_of(result, sizes, metric)
    if not found.rows:
        return []
    told = []
    for path in (*(folder / name for name in OWN), *plots):
        own = path.parent == folder and path.name in OWN
        try:
            if own:
                check_form(path)
            with replacing(path) as draft:
                draw(found, draft, path)
        except UsageError:  # the library is not installed; whoever asked with --plot was told before
            continue
        except Exception as problem:  # whatever a drawing library raises must not hide what was measured
            print(f"merge_bench: {path} was not written: {problem}", file=sys.stderr)
            continue
        if not own or path.suffix == ".png":
            told.append(f"Figure: {path}")
    return told


def forest_of(result: Result, sizes: Sequence[str], metric: str) -> Forest:
    """Singles, the largest effect first; each setting out of the combination; the confirmation at every size."""
    singles = sorted(result.singles, key=lambda line: -(line.ratio or 0.0))
    sections = [Section("Each alone", tuple(_point(line, str(line.setting)) for line in singles))]
    ablated = {line.setting: line for line in (*result.combined, *result.ablated)}
    sections.append(Section("In the combination", tuple(_point(line, str(name)) for name, line in ablated.items())))
    confirmed = tuple(_point(line, f"all, {sizes[line.plan]}") for line in result.confirmation)
    sections.append(Section("Confirmed", confirmed))
    won = " ".join(result.winner.settings) if result.winner else f"n{result.outcome[1:]}"  # Nothing …
    noise = result.twin
    band = (noise.low, noise.high) if noise and noise.low is not None and noise.high is not None else None
    return Forest(
        f"Speed-up by setting over {result.baseline}: {won}",
        f"{metric}, as a ratio to the same without the setting (1: no difference), with its interval",
        tuple(section for section in sections if section.points), band,
    )  # fmt: skip


def _point(line: TuneLine, label: str) -> Point:
    detail = f"{line.decision}: {line.reason}; {line.launches} blocks"
    return Point(label, _KINDS.get(line.decision, "dropped"), line.ratio, line.low, line.high, detail)
