"""Comparisons with other programs' merges on GPUs, through the machinery of `benchmarks/peers.py`."""

from __future__ import annotations

import dataclasses
import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.goal.targets import Target
from benchmarks.on_gpu import peer_variants
from benchmarks.on_gpu.steps import Finding
from benchmarks.peer.comparison import Comparison
from benchmarks.peer.contenders import REFERENCE, Contender
from benchmarks.peer.protocol import Job, PeerError
from benchmarks.peer.ratios import Standing
from benchmarks.peer.ucxx_variants import Variant

UCXX = ("ucxx-cudf-merge",)
NEEDED = ("ucxx", "cudf", "cupy")
GOAL = Target("ucxx", "times as fast as `ucxx.benchmarks.cudf_merge`", "1e6 and 25e6 rows, interleaved", 1.5)
# Seconds of a launch: a peer whose workers die may wait for them without end. A launch of 25e6 rows takes 20 s.
LAUNCH_LIMIT, LARGEST_LIMIT, LARGE = 60.0, 150.0, 25_000_000
PATIENCE = 2  # launches of a peer that may fail


def missing(there: Callable[[str], object] = importlib.util.find_spec) -> list[str]:
    """The packages without which UCXX's program cannot run here."""
    return [package for package in NEEDED if there(package) is None]


def compare(
    names: Sequence[str], job: Job, folder: Path, blocks: int, left: float, gpus: int, goal: Target | None = None
) -> Finding:
    """Launch merge_bench and `names` in turn, as many blocks as fit `left` seconds; judge their medians.

    UCXX's program runs as the fastest variant that worked here; if that one fails, as the next.
    """
    until = time.monotonic() + left
    variants = peer_variants.chosen(folder) if UCXX[0] in names else [Variant("as it is")]
    for variant in variants:
        found = _compare(names, job, folder, blocks, until, gpus, goal, variant)
        if not variant.environment:
            return found
        found = dataclasses.replace(found, figures={**found.figures, "variant": variant.name})
        measured = any(each["contender"] == UCXX[0] and each["ratio"] for each in found.figures["standings"])
        if measured or until - time.monotonic() < LAUNCH_LIMIT:
            break
    return found


def _compare(
    names: Sequence[str],
    job: Job,
    folder: Path,
    blocks: int,
    until: float,
    gpus: int,
    goal: Target | None,
    variant: Variant,
) -> Finding:
    limit = LAUNCH_LIMIT if job.rows_per_chunk <= LARGE and UCXX[0] in names else LARGEST_LIMIT
    comparison = Comparison.of(names, job, folder, min(limit, until - time.monotonic()), gpus)
    comparison.patience = PATIENCE
    comparison.contenders = [with_variant(contender, variant) for contender in comparison.contenders]
    try:
        done = comparison.run(blocks, job.seed, until=until)
    finally:
        table = comparison.finish()
    more = {"records": comparison.store.folder.name, "table": table}
    return finding(comparison.standings(), done, comparison.status, more, goal)


def with_variant(contender: Contender, variant: Variant) -> Contender:
    """UCXX's program with the environment of a variant; any other contender as it is."""
    if contender.name != UCXX[0]:
        return contender
    return dataclasses.replace(contender, environment={**contender.environment, **variant.environment})


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
