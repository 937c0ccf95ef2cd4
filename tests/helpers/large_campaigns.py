"""Many campaigns, and campaigns of many workers, for tests and benchmarks of the dashboard."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.helpers.synthetic_campaigns import Script, iteration, launches, plan, write_campaign


def make_many(results: Path, count: int) -> None:
    """`count` campaigns of six launches each; copies of one, since their contents do not matter for the view."""
    first = write_campaign(results, *launches(6))
    for number in range(count - 1):
        shutil.copytree(first, results / f"{first.name}-{number}")


def make_large(results: Path, workers: int, iterations: int) -> Path:
    """An unfinished campaign: a launch of that many workers and iterations, whose pairs differ."""
    script = Script(plan=plan(workers, iterations=2 * iterations), walls=(), measure_link=False, end_status=None)
    folder = write_campaign(results, script, end=None)
    append(folder, workers, range(iterations))
    return folder


def append(folder: Path, workers: int, numbers: Sequence[int]) -> None:
    """Write iterations of these numbers, as a driver does."""
    script = Script(plan=plan(workers))
    with (folder / "records.jsonl").open("ab") as stream:
        for number in numbers:
            line = iteration(script, number, 0.1 + 0.001 * (number % 7))
            pairs = [
                msgspec.structs.replace(
                    pair, seconds=0.02 + 0.0001 * ((pair.from_rank * 7 + pair.to_rank + number) % 50)
                )
                for pair in line.pairs
            ]
            stream.write(msgspec.json.encode(msgspec.structs.replace(line, pairs=pairs)) + b"\n")
