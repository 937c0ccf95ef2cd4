"""How often gates that compare with earlier nights fail: after a loss that ended, while one stays, and without any.

    python -m benchmarks.history_gates [--series 100] [--part ended,stays,against]

Results are records of a real command, a merge without a cluster, whose times are made up; the gates read them as they
read any others. The default takes some ten minutes of a core.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks import command
from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import RECORDS
from merge_bench.regressions.gates import RegressionGate

LAUNCHES, NOISE = 8, 0.02
"""Launches of a result, and the noise from launch to launch."""
LOSSES = (0.05, 0.10)
BEFORE, EPISODE, GOOD = 30, 6, (0, 3, 6, 14, 40)
"""Good results, then a loss that lasts so many, then so many good ones before the gate that is asked."""
STAYS = 10
NIGHTLY = (0.0, 0.005, 0.01, 0.02)
"""Noise from night to night."""
KNOWN = 20
"""Earlier results of a folder in which `--against RESULT` knows the nights."""
DAY, FIRST_NIGHT = 86400.0, 1_760_000_000.0
WORSE, OTHER = frozenset({"SLOWER"}), frozenset({"SLOWER", "FASTER"})

Logs = NDArray[np.float64]
"""Logarithms of factors of the time, one for each launch of a result."""


class MadeUpResults:
    """Results in a folder, made of the records of one real command by changing times."""

    def __init__(self, folder: Path, template: Path) -> None:
        """`template`: a campaign of one run with `LAUNCHES` launches."""
        self.folder = folder
        self._head, *self._lines = [json.loads(line) for line in (template / RECORDS).read_text().splitlines()]
        self._night = self._made = 0
        walls = {line["launch"]: line["wall_seconds"] for line in self._lines if _is_timed(line)}
        usual = statistics.median(walls.values())
        self._even = np.log([usual / walls[launch] for launch in range(LAUNCHES)])

    def add(self, logs: Logs) -> Path:
        """Add the result of the next night, and return its folder."""
        path = self.folder / f"{self._night:04d}-{self._made}"
        path.mkdir(parents=True)
        start = FIRST_NIGHT + DAY * self._night
        self._night += 1
        self._made += 1
        lines = [self._head | {"time": start, "campaign_id": path.name}]
        lines += [_stretched(line, self._even + logs) for line in self._lines]
        (path / RECORDS).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return path

    def drop(self, path: Path) -> None:
        """Remove the newest result."""
        shutil.rmtree(path)
        self._night -= 1


def _is_timed(line: Mapping[str, Any]) -> bool:
    return line["kind"] == "iteration" and not line["warmup"]


def _stretched(line: dict[str, Any], logs: Logs) -> dict[str, Any]:
    """A record whose times are longer by the factor of its launch."""
    return _scaled(line, float(np.exp(logs[line["launch"]]))) if line["kind"] == "iteration" else line


def _scaled(value: Any, factor: float, *, seconds: bool = False) -> Any:
    if isinstance(value, dict):
        return {name: _scaled(part, factor, seconds=seconds or "seconds" in name) for name, part in value.items()}
    if isinstance(value, list):
        return [_scaled(part, factor, seconds=seconds) for part in value]
    return value * factor if seconds and isinstance(value, float) else value


def _verdict(results: MadeUpResults, logs: Logs, against: Path) -> str:
    """The verdict on a result with these times, which is removed again; `against`: a result, or the folder."""
    path = results.add(logs)
    try:
        baseline = against if against == results.folder else read_campaign(against)
        gate = RegressionGate(baseline, ("slower",), 0.02)
        document, _ = gate.judge_campaign(read_campaign(path))
        return document.comparisons[0].verdict if document.comparisons else "none"
    finally:
        results.drop(path)


def _night(random: np.random.Generator, loss: float = 0.0, nightly: float = 0.0) -> Logs:
    """The launches of a night that is slower by `loss`, with `nightly` noise that they have in common."""
    night = random.normal(0.0, nightly) if nightly else 0.0
    return np.asarray(random.normal(0.0, NOISE, LAUNCHES) + night - np.log1p(-loss))


def after_an_episode(results: MadeUpResults, random: np.random.Generator, loss: float) -> Iterator[tuple[str, str]]:
    """Verdicts on the same loss again, by how many good results came after the first one, and with none before."""
    for _ in range(BEFORE):
        results.add(_night(random))
    yield "no loss before", _verdict(results, _night(random, loss), results.folder)
    yield "no loss before, unchanged", _verdict(results, _night(random), results.folder)
    for _ in range(EPISODE):
        results.add(_night(random, loss))
    for good in range(GOOD[-1] + 1):
        if good in GOOD:
            yield f"{good} good nights", _verdict(results, _night(random, loss), results.folder)
            yield f"{good} good nights, unchanged", _verdict(results, _night(random), results.folder)
        results.add(_night(random))


def while_a_loss_stays(results: MadeUpResults, random: np.random.Generator, loss: float) -> Iterator[tuple[str, str]]:
    """Verdicts on each night of a loss that nobody accepts."""
    for _ in range(2 * BEFORE):
        results.add(_night(random))
    for night in range(1, STAYS + 1):
        logs = _night(random, loss)
        yield f"night {night}", _verdict(results, logs, results.folder)
        results.add(logs)


def against_a_result(results: MadeUpResults, random: np.random.Generator, nightly: float) -> Iterator[tuple[str, str]]:
    """Verdicts on an unchanged merge against one earlier result, alone and among others of the series."""
    earlier = results.add(_night(random, nightly=nightly))
    later = _night(random, nightly=nightly)
    yield "alone", _verdict(results, later, earlier)
    for _ in range(KNOWN):
        results.add(_night(random, nightly=nightly))
    yield f"beside {KNOWN} others", _verdict(results, later, earlier)


PARTS: Mapping[str, tuple[Any, Sequence[float], frozenset[str], str]] = {
    "ended": (after_an_episode, LOSSES, WORSE, f"SLOWER, of 100, {EPISODE} nights of loss after {BEFORE} good ones"),
    "stays": (while_a_loss_stays, LOSSES, WORSE, "SLOWER, of 100, on each night of a loss that stays"),
    "against": (against_a_result, NIGHTLY, OTHER, "SLOWER or FASTER, of 100 unchanged merges, against one result"),
}


def make_template(folder: Path) -> Path:
    """Measure a small merge with `LAUNCHES` launches in this process; returns its campaign."""
    import merge_bench
    from merge_bench.testing import fake_cluster

    with fake_cluster():
        result = merge_bench.run(chunk=1000, workers=1, iterations=1, launches=LAUNCHES, results=folder)
    return Path(result.folder)


@click.command(context_settings=command.CONTEXT)
@command.option("--series", click.IntRange(1), 100, "Series of each kind.")
@command.option("--part", command.NAMES, ",".join(PARTS), f"Tables: {', '.join(PARTS)}.")
@command.SEED
def history_gates(series: int, part: Sequence[str], seed: int) -> None:
    """Print tables, in 100 series."""
    chosen = command.chosen(part, PARTS, "--part")
    with tempfile.TemporaryDirectory() as made:
        os.environ["XDG_CACHE_HOME"] = f"{made}/cache"
        template = make_template(Path(made) / "template")
        for name in (each for each in PARTS if each in chosen):
            judge, values, counted, title = PARTS[name]
            counts: dict[str, list[int]] = {}
            for column, value in enumerate(values):
                for number in range(series):
                    random = np.random.default_rng([seed, column, number])
                    results = MadeUpResults(Path(made) / name / f"{column}-{number}", template)
                    for case, verdict in judge(results, random, value):
                        counts.setdefault(case, [0] * len(values))[column] += verdict in counted
                    shutil.rmtree(results.folder)
            click.echo(f"| {title} | {' | '.join(f'{100 * value:g} %' for value in values)} |")
            click.echo("| --- |" + " --- |" * len(values))
            for case, row in counts.items():
                click.echo(f"| {case} | {' | '.join(f'{100 * count / series:.0f}' for count in row)} |")


if __name__ == "__main__":
    command.run(history_gates, "history_gates")
