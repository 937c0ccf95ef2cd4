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
from benchmarks.peer.contenders import REFERENCE, choose
from benchmarks.peer.protocol import Job, PeerError
from benchmarks.peer.ratios import Standing, standings
from benchmarks.peer.store import Store
from benchmarks.peer.table import interval

UCXX, DASK_CUDA = ("ucxx-cudf-merge",), ("dask-cuda-gpu-tcp", "dask-cuda-gpu-ucx")
NEEDED = {UCXX: ("ucxx", "cudf", "cupy"), DASK_CUDA: ("dask_cuda", "dask_cudf", "cudf", "cupy")}
GOAL = Target("ucxx", "times as fast as `ucxx.benchmarks.cudf_merge`", "1e6 and 25e6 rows, interleaved", 1.5)
LAUNCH_LIMIT = 150.0  # seconds for one launch: a peer whose workers die waits for them for ever


def missing(names: tuple[str, ...], there: Callable[[str], object] = importlib.util.find_spec) -> list[str]:
    """The packages without which these peers cannot run here."""
    return [package for package in NEEDED[names] if there(package) is None]


def compare(
    names: Sequence[str], job: Job, folder: Path, blocks: int, left: float, gpus: int, say: Callable[[str], None],
    goal: Target | None = None,
) -> Finding:  # fmt: skip
    """Launch merge_bench and `names` in turn, as many blocks as fit `left` seconds; what their medians say."""
    store = Store(folder)
    contenders = choose(names, gpus=gpus)
    comparison = Comparison(job, contenders, store, min(LAUNCH_LIMIT, left), 1.0, say)
    try:
        done = comparison.run(blocks, job.seed, until=time.monotonic() + left)
    finally:
        table = comparison.finish()
        store.close()
    lines = standings(comparison.samples, [contender.name for contender in contenders], REFERENCE)
    return finding(lines, done, comparison.status, {"records": store.folder.name, "table": table}, goal)


def finding(
    lines: Sequence[Standing], blocks: int, status: int, more: dict[str, str], goal: Target | None = None
) -> Finding:
    """What a comparison says of merge_bench against each peer, and of `goal` for the ratio to all of them."""
    own = next(line for line in lines if line.contender == REFERENCE)
    said = [f"{blocks} blocks", f"merge_bench {_seconds(own)}"]
    for line in lines:
        if line.contender == REFERENCE:
            continue
        if line.ratio is None:
            said.append(f"{line.contender} failed {line.failed} of {line.launches} launches")
        else:
            ratio = f"{line.ratio.median:.2f} times as fast, {interval(line.ratio)}"
            said.append(f"{line.contender} {_seconds(line)}: merge_bench is {ratio}")
    if own.wall is None:
        status = max(status, PeerError.exit_status)
    figures: dict[str, Any] = {**more, "blocks": blocks, "standings": [dataclasses.asdict(line) for line in lines]}
    if goal is not None:
        figures["goal"] = verdict(goal, lines)
        said.append(sentence(figures["goal"]))
    return Finding("; ".join(said), figures, status)


def verdict(goal: Target, lines: Sequence[Standing]) -> dict[str, Any]:
    """A goal for the least ratio to any peer; `met` is None where one has none.

    `sure`: whether the interval, or of few blocks the least and the greatest ratio, says the same as the median.
    """
    ratios = [line.ratio for line in lines if line.contender != REFERENCE]
    known = [ratio for ratio in ratios if ratio is not None]
    found = {
        "goal": goal.shown,
        "what": goal.what,
        "ratio": None,
        "low": None,
        "high": None,
        "met": None,
        "sure": False,
    }
    if not known or len(known) < len(ratios):
        return found
    least = min(known, key=lambda ratio: ratio.median)
    met = goal.holds(least.median)
    sure = goal.holds(least.low) == met == goal.holds(least.high)
    return {**found, "ratio": least.median, "low": least.low, "high": least.high, "met": met, "sure": sure}


def sentence(verdict: Mapping[str, Any]) -> str:
    """A verdict for people."""
    head = f"goal {verdict['goal']} {verdict['what']}"
    if verdict["met"] is None:
        return f"{head}: not measured"
    said = "met" if verdict["met"] else "not met"
    spread = f"{verdict['ratio']:.2f}, {verdict['low']:.2f}–{verdict['high']:.2f}"
    return f"{head}: {said} with {spread}{'' if verdict['sure'] else ', which blocks do not agree on'}"


def _seconds(line: Standing) -> str:
    return "failed" if line.wall is None else f"{line.wall:.4g} s"
