"""Comparisons with other programs' merges on GPUs, through the machinery of `benchmarks/peers.py`."""

from __future__ import annotations

import dataclasses
import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.goal.targets import Target
from benchmarks.on_gpu.steps import Finding
from benchmarks.peer.comparison import Comparison
from benchmarks.peer.contenders import REFERENCE
from benchmarks.peer.protocol import Job, PeerError
from benchmarks.peer.ratios import Standing

UCXX = ("ucxx-cudf-merge",)
NEEDED = ("ucxx", "cudf", "cupy")
GOAL = Target("ucxx", "times as fast as `ucxx.benchmarks.cudf_merge`", "1e6 and 25e6 rows, interleaved", 1.5)
LAUNCH_LIMIT = 150.0  # seconds for one launch: a peer whose workers die waits for them without end


def missing(there: Callable[[str], object] = importlib.util.find_spec) -> list[str]:
    """The packages without which UCXX's program cannot run here."""
    return [package for package in NEEDED if there(package) is None]


def compare(
    names: Sequence[str], job: Job, folder: Path, blocks: int, left: float, gpus: int, goal: Target | None = None
) -> Finding:
    """Launch merge_bench and `names` in turn, as many blocks as fit `left` seconds; judge their medians."""
    comparison = Comparison.of(names, job, folder, min(LAUNCH_LIMIT, left), gpus)
    try:
        done = comparison.run(blocks, job.seed, until=time.monotonic() + left)
    finally:
        table = comparison.finish()
    more = {"records": comparison.store.folder.name, "table": table}
    return finding(comparison.standings(), done, comparison.status, more, goal)


def finding(
    lines: Sequence[Standing], blocks: int, status: int, more: dict[str, str], goal: Target | None = None
) -> Finding:
    """The result of a comparison: the ratio to each peer, and whether `goal` is met against all of them."""
    own = next(line for line in lines if line.contender == REFERENCE)
    parts = [f"{blocks} blocks", f"merge_bench {_seconds(own)}"]
    for line in lines:
        if line.contender == REFERENCE:
            continue
        if line.ratio is None:
            parts.append(f"{line.contender} failed {line.failed} of {line.launches} launches")
        else:
            ratio = f"{line.ratio.median:.2f} times as fast, {line.ratio}"
            parts.append(f"{line.contender} {_seconds(line)}: merge_bench is {ratio}")
    if own.wall is None:
        status = max(status, PeerError.exit_status)
    figures: dict[str, Any] = {**more, "blocks": blocks, "standings": [dataclasses.asdict(line) for line in lines]}
    if goal is not None:
        figures["goal"] = verdict(goal, lines)
        parts.append(sentence(figures["goal"]))
    return Finding("; ".join(parts), figures, status)


def verdict(goal: Target, lines: Sequence[Standing]) -> dict[str, Any]:
    """A goal for the least ratio to any peer; `met` is None where one has none.

    `sure`: whether the interval, or of few blocks the least and the greatest ratio, agrees with the median.
    """
    ratios = [line.ratio for line in lines if line.contender != REFERENCE]
    least = min((ratio for ratio in ratios if ratio), key=lambda ratio: ratio.median, default=None)
    values: dict[str, Any] = {"ratio": None, "low": None, "high": None, "met": None, "sure": False}
    if least is not None and None not in ratios:
        met, sure = goal.judge(least)
        values = {"ratio": least.median, "low": least.low, "high": least.high, "met": met, "sure": sure}
    return {"goal": goal.shown, "what": goal.what, **values}


def sentence(verdict: Mapping[str, Any]) -> str:
    """A verdict in words."""
    head = f"goal {verdict['goal']} {verdict['what']}"
    if verdict["met"] is None:
        return f"{head}: not measured"
    outcome = "met" if verdict["met"] else "not met"
    spread = f"ratio {verdict['ratio']:.2f}, range {verdict['low']:.2f}–{verdict['high']:.2f}"
    return f"{head}: {outcome} ({spread}{'' if verdict['sure'] else '; blocks disagree'})"


def _seconds(line: Standing) -> str:
    return "failed" if line.wall is None else f"{line.wall:.4g} s"
