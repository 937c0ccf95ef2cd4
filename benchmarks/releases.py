"""What releases of UCX do to merges and to transfers between two workers: one table of stored results.

    python -m merge_bench --config default.cfg --ucx 1.19.0,1.22.0 --launches 8 --results results/releases
    python -m merge_bench probe p2p --config default.cfg --ucx 1.19.0,1.22.0 --launches 8 --results results/releases
    python -m benchmarks.releases results/releases/*

Every result is a campaign of several releases, launched in turn; the first release is the baseline. Verdicts are made
as `compare` makes them, over the family of the other releases.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from benchmarks import command
from merge_bench.analysis.compare import METRICS, side_of_run
from merge_bench.analysis.statistics import paired_effect
from merge_bench.analysis.statistics.verdict import judge_effects
from merge_bench.errors import UsageError
from merge_bench.records.campaign import Campaign, Launch, Run
from merge_bench.records.reader import read_campaign
from merge_bench.records.schema import ProbeLine

THRESHOLD = 0.02
HEADINGS = ("what", "release", "lanes", "median", "least to greatest", "times the first", "verdict")
Values = Mapping[int, float]
"""The value of a run in each block; more is better."""


def measured_tables(
    campaign: Campaign,
) -> Iterator[tuple[str, Sequence[Values], Callable[[float], float], Callable[[Launch], set[str]]]]:
    """Yield what was measured, its values of each run, what makes a shown number of one, and the lanes of a launch."""
    sizes = {plan.rows_per_chunk for plan in campaign.plans}
    if len(sizes) > 1:
        raise UsageError(f"{campaign.folder}: one size of chunks is needed, and it has {len(sizes)}")
    if campaign.probe is None:
        title = f"merge of {campaign.plans[0].rows_per_chunk:,} rows per chunk, GiB/s"
        yield title, [_throughputs(run) for run in campaign.runs], _gibibytes, _merge_lanes
        return
    lines = [line for launch in campaign.launches for line in launch.probes]
    for test, size in dict.fromkeys((line.test, line.size) for line in lines):
        latency = test.endswith("lat")
        unit, shown = ("µs one way", _microseconds) if latency else ("MB/s", _megabytes)

        def chosen(launch: Launch, test: str = test, size: int = size) -> list[ProbeLine]:
            return [line for line in launch.probes if (line.test, line.size) == (test, size)]

        def lanes(launch: Launch, chosen: Callable[[Launch], list[ProbeLine]] = chosen) -> set[str]:
            return {name for line in chosen(launch) for name in line.selected or ()}

        values = [_probe_values(run, chosen, latency=latency) for run in campaign.runs]
        yield f"{test} of {size:,} B, {unit}", values, shown, lanes


def _microseconds(per_second: float) -> float:
    return 1e6 / per_second


def _megabytes(per_second: float) -> float:
    return per_second / 1e6


def _gibibytes(per_second: float) -> float:
    return per_second / 2**30


def _throughputs(run: Run) -> Values:
    return {sample.block: sample.value for sample in side_of_run(run, METRICS[0]).samples}


def _merge_lanes(launch: Launch) -> set[str]:
    return {name for pair in launch.lanes.pairs for name in pair.transports} if launch.lanes else set()


def _probe_values(run: Run, chosen: Callable[[Launch], list[ProbeLine]], *, latency: bool) -> Values:
    values = {}
    for launch in run.launches:
        for line in chosen(launch):
            value = (1.0 / line.seconds if line.seconds else None) if latency else line.bandwidth_bytes_per_second
            if value is not None and launch.block_index is not None:
                values[launch.block_index] = value
    return values


def release_rows(campaign: Campaign) -> Iterator[list[str]]:
    """Yield a row of cells (see `HEADINGS`) for each release and each thing that was measured."""
    for title, values, shown, lanes_of in measured_tables(campaign):
        first, *others = values
        effects = [
            paired_effect([math.log(other[block] / first[block]) for block in sorted(first.keys() & other.keys())])
            for other in others
        ]
        verdicts = [("-", "-")]
        for judgement in judge_effects(effects, threshold=THRESHOLD):
            ratio = f"{math.exp(judgement.effect.estimate):.3f}"
            if judgement.interval is not None:
                low, high = map(math.exp, judgement.interval)
                ratio += f" ({low:.3f} to {high:.3f})"
            verdicts.append((ratio, judgement.verdict.value))
        for run, label, own, verdict in zip(campaign.runs, campaign.run_labels, values, verdicts, strict=True):
            lanes = sorted({name for launch in run.launches for name in lanes_of(launch)})
            numbers = sorted(map(shown, own.values()))
            extremes = f"{numbers[0]:.3g} to {numbers[-1]:.3g}"
            yield [title, label, " ".join(lanes), f"{statistics.median(numbers):.3g}", extremes, *verdict]


@click.command(context_settings=command.CONTEXT)
@click.argument("results", metavar="RESULT...", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
def releases(results: Sequence[Path]) -> None:
    """Print one table of campaigns whose runs differ in the release of UCX."""
    rows = [row for path in results for row in release_rows(read_campaign(path))]
    click.echo(command.table(HEADINGS, rows, text=(0, 1, 2, 5, 6)))


if __name__ == "__main__":
    command.run(releases, "releases")
