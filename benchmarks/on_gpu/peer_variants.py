"""Which ways of running `ucxx.benchmarks.cudf_merge` work on this machine, and the fastest of them for comparisons."""

from __future__ import annotations

import re
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import command
from benchmarks.on_gpu.steps import Finding
from benchmarks.peer.protocol import Job, PeerError, read_outcome
from benchmarks.peer.ucxx_variants import VARIANTS, Variant
from benchmarks.processes import Ended, run_limited, surroundings
from merge_bench.errors import RunFailed
from merge_bench.units import format_rate, format_seconds

PROGRAM = "ucxx.benchmarks.cudf_merge"
ARGV = (sys.executable, "-m", "benchmarks.peer.ucxx_merge")
CHOICE = "peer-variant.json"  # in the folder of the result
JOB = Job(1_000_000, 2, 2, iterations=5, warmup=2, fraction=0.3, seed=0)
ENOUGH = 2  # variants that work, of which the fastest is chosen
LIMIT_SECONDS, LEAST_SECONDS = 40.0, 8.0  # of a launch; none is begun with less time left than the second
STACK_LINES, ERRORS = 40, 6  # at most so many are kept of each launch
ERROR = re.compile(rf"(\w+\.)*\w*(Error|Exception|Interrupt)(: .*)?|Fatal Python error: .*|{re.escape(PROGRAM)}: .*")
SIGNAL = re.compile(r".*(Caught signal \d+ .*)")
LOST_PEER = (
    "UCXXCanceledError",
    "UCXXConnectionResetError",
    "UCXXEndpointTimeoutError",
)  # what a dead worker's peers say
Tried = dict[str, Any]


def find(
    folder: Path,
    left: float,
    variants: Sequence[Variant] = VARIANTS,
    argv: Sequence[str] = ARGV,
    limit: float = LIMIT_SECONDS,
) -> Finding:
    """Run the variants in turn until two have worked, the list ends or `left` seconds are over.

    Each may take `limit` seconds. How each ended is in ``peer-variant.json`` as soon as it has ended, its output in
    ``logs/peer-<name>.out`` and ``.err``.
    """
    until = time.monotonic() + left
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    tried: list[Tried] = []
    for variant in variants:
        rest = until - time.monotonic()
        if rest < LEAST_SECONDS or len(worked(tried)) == ENOUGH:
            break
        tried.append(attempt(variant, folder / "logs" / f"peer-{variant.name}", argv, min(limit, rest)))
        command.write(folder / CHOICE, {"program": PROGRAM, "tried": tried})
    return finding(tried)


def attempt(variant: Variant, stem: Path, argv: Sequence[str], limit: float) -> Tried:
    """Run one variant; gives how it ended, as it is stored."""
    ended = run_limited([*argv, *JOB.argv()], {**surroundings(), **variant.environment}, stem, limit)
    text = ended.errors.read_text(errors="replace")
    walls, failure = _walls(ended)
    found: Tried = {
        "name": variant.name,
        "environment": dict(variant.environment),
        "status": ended.status,
        "seconds": ended.seconds,
        "timed_out": ended.timed_out,
        "failure": failure,
        "errors": errors(text),
        "signal": next((match[1] for line in text.splitlines() if (match := SIGNAL.fullmatch(line))), None),
        "stack": c_stack(text),
        "wall_seconds": walls,
        "wall_median": None,
        "throughput_bytes_per_second": None,
    }
    if walls:
        median = statistics.median(walls)
        found |= {"wall_median": median, "throughput_bytes_per_second": JOB.data_bytes / median}
    return found


def worked(tried: Sequence[Tried]) -> list[Tried]:
    """Those that ended well with times, the fastest first."""
    return sorted((each for each in tried if each["wall_median"] is not None), key=lambda each: each["wall_median"])


def finding(tried: Sequence[Tried]) -> Finding:
    """What has been tried, and how each of them ended; a failure if nothing worked."""
    best = worked(tried)
    figures = {"tried": list(tried), "chosen": best[0]["name"] if best else None}
    if not best:
        return Finding(_none(tried), figures, RunFailed.exit_status)
    speed = f"{format_seconds(best[0]['wall_median'])}, {format_rate(best[0]['throughput_bytes_per_second'])}"
    parts = [f"{best[0]['name']} is used: {speed}"]
    parts += [f"{each['name']} {format_seconds(each['wall_median'])}" for each in best[1:]]
    parts += [in_words(each) for each in tried if each["wall_median"] is None]
    return Finding("; ".join(parts), figures)


def chosen(folder: Path) -> list[Variant]:
    """The variants that worked in this result, the fastest first; before any was tried, the first of the table.

    Raises
    ------
    RunFailed
        If some were tried and none worked.
    """
    if not (folder / CHOICE).exists():
        return [VARIANTS[0]]
    tried = command.read(folder / CHOICE)["tried"]
    if not worked(tried):
        raise RunFailed(f"not compared: {_none(tried)}")
    return [Variant(each["name"], each["environment"]) for each in worked(tried)]


def errors(text: str) -> list[str]:
    """The lines of a log that name an error, each once, those that a dead worker causes in others last."""
    lines = dict.fromkeys(line.strip() for line in text.splitlines() if ERROR.fullmatch(line.strip()))
    return sorted(lines, key=lambda line: any(name in line for name in LOST_PEER))[:ERRORS]


def c_stack(text: str) -> list[str]:
    """The first stack in a log that UCX printed: from its ``==== backtrace`` to the line of ``=`` below."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith("==== backtrace")), len(lines))
    stack: list[str] = []
    for line in lines[start : start + STACK_LINES]:
        if stack and not line.strip("="):
            break
        stack.append(line)
    return stack


def in_words(each: Tried) -> str:
    """How a variant failed."""
    reason = each["failure"] if each["timed_out"] else each["signal"] or next(iter(each["errors"]), each["failure"])
    return f"{each['name']}: {reason}"


def _none(tried: Sequence[Tried]) -> str:
    return f"no variant of {PROGRAM} worked here ({'; '.join(map(in_words, tried)) or 'no time to try one'})"


def _walls(ended: Ended) -> tuple[list[float], str | None]:
    if ended.failure:
        return [], ended.failure
    try:
        return read_outcome(ended.output.read_text(errors="replace"), JOB.iterations).wall_seconds, None
    except PeerError as error:
        return [], str(error)
