"""How often `exec` finds a difference between two configs that are alike, of processes with noise of their own.

    python -m benchmarks.command_false_alarms --output FILE.json
    python -m benchmarks.command_false_alarms --gain 1.4 --campaigns 20    # how often it finds one that is there

Each campaign launches `noise.sh` under two configs, whose settings of UCX it ignores. Two metrics are judged, as
`compare` does: the time that the script prints, and the wall-clock of the process, which has the noise of this machine
as well. `exec` runs in worker processes of this benchmark, and does not look at other processes for 0.2 s before each
launch. The goal is a verdict FASTER or SLOWER in at most 5 % of the campaigns of each kind of noise. Exit status: 0
met, or the configs are not alike; 1 not met; 2 wrong usage; 3 a launch failed, or it was interrupted.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import click

from benchmarks import command
from merge_bench.analysis.compare import compare_campaigns
from merge_bench.campaign import ProgressDisplay
from merge_bench.command.command_campaign import plan_command_campaign, run_command_campaign
from merge_bench.command.options import ExecOptions
from merge_bench.config.options import RunOptions
from merge_bench.errors import RunFailed
from merge_bench.host import other_load
from merge_bench.records.reader import read_campaign

SCHEMA = 1
SCRIPT = Path(__file__).with_name("noise.sh")
KINDS = ("normal", "heavy-tails", "two-states")
METRICS = ("time", "wall")
DIFFERENT = ("FASTER", "SLOWER")
VERDICTS = (*DIFFERENT, "EQUIVALENT", "INCONCLUSIVE")
GOAL = 0.05
MISSED = 1
HEADINGS = ("noise", "metric", "campaigns", *VERDICTS, "different (%)")
Counts: TypeAlias = Mapping[str, Mapping[str, Counter[str]]]
"""Numbers of verdicts by kind of noise and metric."""


@dataclass(frozen=True)
class Experiment:
    """What is measured: `campaigns` of each of the `kinds` of noise, with `launches` of each config.

    `gain`: how many times as fast the second config is; 1: they are alike.
    """

    kinds: Sequence[str] = KINDS
    campaigns: int = 200
    launches: int = 8
    gain: float = 1.0
    seed: int = 0


def run_campaign(experiment: Experiment, kind: str, number: int) -> dict[str, str]:
    """Make a campaign of `exec`; returns the verdict on the second config in each metric.

    Raises RunFailed if a launch fails.
    """
    seed = zlib.crc32(f"{experiment.seed}/{kind}/{number}".encode())
    with tempfile.TemporaryDirectory(prefix="command-false-alarms-") as name:
        folder = Path(name)
        (folder / "one.cfg").write_text("UCX_TCP_TX_SEG_SIZE=8k\nNOISE_GAIN=1\n")
        (folder / "two.cfg").write_text(f"UCX_TCP_TX_SEG_SIZE=64k\nNOISE_GAIN={experiment.gain:g}\n")
        (folder / "state").write_text("0\n")
        options = RunOptions().with_command_line_values(
            configs=(f"{name}/one.cfg", f"{name}/two.cfg"),
            launches=experiment.launches,
            seed=seed,
            results=f"{name}/results",
            trust_config=True,  # no known library reads NOISE_GAIN
        )
        metric = ExecOptions().with_command_line_values(metric=(r"time=re:^time: ([\d.]+) s$",), unit=("s",))
        words = [str(SCRIPT), kind, str(seed), "{launch}", f"{name}/state"]
        results, status = run_command_campaign(
            plan_command_campaign(words, metric, options), options, ProgressDisplay()
        )
        if status:
            raise RunFailed(f"a campaign with the noise {kind} ended with status {status}")
        return {each.metric: each.verdict for each in compare_campaigns([read_campaign(results)]).comparisons}


def _begin_worker() -> None:
    """Leave signals to the main process, and look at no other processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    other_load.measure_other_load = lambda *_, **__: other_load.OtherProcessLoad()


def measure(experiment: Experiment, jobs: int, note: Callable[[Counts], None]) -> None:
    """Make all campaigns, `jobs` side by side; `note` gets the verdicts so far after each.

    Raises RunFailed if a launch fails.
    """
    counts = {kind: {metric: Counter[str]() for metric in METRICS} for kind in experiment.kinds}
    total = experiment.campaigns * len(experiment.kinds)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _begin_worker) as pool:
        running = {
            pool.submit(run_campaign, experiment, kind, number): kind
            for number in range(experiment.campaigns)
            for kind in experiment.kinds
        }
        try:
            for done, ended in enumerate(as_completed(running), 1):
                for metric, verdict in ended.result().items():
                    counts[running[ended]][metric][verdict] += 1
                note(counts)
                if done % 10 == 0:
                    command.say(f"{done} of {total} campaigns")
        finally:
            pool.shutdown(cancel_futures=True)


def rows(counts: Counts) -> list[dict[str, Any]]:
    """For each kind of noise and metric: the number of campaigns, of each verdict, and the share of differences."""
    found = []
    for kind, metrics in counts.items():
        for metric, verdicts in metrics.items():
            campaigns = sum(verdicts.values())
            share = sum(verdicts[verdict] for verdict in DIFFERENT) / campaigns if campaigns else None
            by_verdict = {verdict: verdicts[verdict] for verdict in VERDICTS}
            found.append({"noise": kind, "metric": metric, "campaigns": campaigns, **by_verdict, "different": share})
    return found


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a table in Markdown."""
    cells = [
        [
            *(str(row[name]) for name in HEADINGS[:-1]),
            "" if row["different"] is None else f"{100 * row['different']:.1f}",
        ]
        for row in found
    ]
    return command.table(HEADINGS, cells, text=(0, 1))


def is_met(found: Sequence[Mapping[str, Any]]) -> bool:
    """Whether at most 5 % of the campaigns of alike configs have a verdict, in every row."""
    return all(row["different"] is not None and row["different"] <= GOAL for row in found)


@click.command(context_settings=command.CONTEXT)
@command.option("--campaigns", click.IntRange(1), 200, "Campaigns of each kind of noise.")
@command.option("--launches", click.IntRange(6), 8, "Launches of each config in a campaign.")
@command.option("--only", command.NAMES, None, f"Kinds of noise: {', '.join(KINDS)}.")
@command.option("--gain", click.FloatRange(0, min_open=True), 1.0, "How many times as fast the second config is.")
@command.option("--jobs", click.IntRange(1), len(os.sched_getaffinity(0)), "Campaigns side by side.")
@command.SEED
@command.OUTPUT
def false_alarms(
    campaigns: int, launches: int, only: Sequence[str] | None, gain: float, jobs: int, seed: int, output: Path | None
) -> None:
    """Count the verdicts on two configs that are alike, of processes with noise of their own."""
    wanted = command.chosen(only, KINDS)
    experiment = Experiment([kind for kind in KINDS if kind in wanted], campaigns, launches, gain, seed)
    document = command.head(SCHEMA, experiment=asdict(experiment), jobs=jobs, seconds=0.0, rows=[])
    began = time.monotonic()

    def note(counts: Counts) -> None:
        document.update(seconds=time.monotonic() - began, rows=rows(counts))
        command.write(output, document)

    status = command.until_interrupted(lambda: measure(experiment, jobs, note))
    click.echo(table(document["rows"]))
    click.echo(f"{launches} launches of each config, {document['seconds']:.0f} s, {document['hardware']['cpu_model']}")
    sys.exit(status or (MISSED if gain == 1.0 and not is_met(document["rows"]) else 0))


if __name__ == "__main__":
    command.run(false_alarms, "command_false_alarms")
