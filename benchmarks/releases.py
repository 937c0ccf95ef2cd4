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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from benchmarks import command
from merge_bench.analysis.compare import METRICS, comparison_side
from merge_bench.analysis.statistics import paired_effect
from merge_bench.analysis.statistics.verdict import judge_effects
from merge_bench.errors import UsageError
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign

THRESHOLD = 0.02
HEADINGS = ("what", "release", "lanes", "median", "least to greatest", "times the first", "verdict")


class Quantity(NamedTuple):
    """What a campaign measured of each release, in the order of its runs.

    `title`: with the unit; `values`: of each run, by block, in that unit; `lanes`: UCX's, of each run.
    """

    title: str
    more_is_better: bool
    values: list[dict[int, float]]
    lanes: list[set[str]]


def measured_quantities(campaign: Campaign) -> Iterator[Quantity]:
    """Yield the throughput of merges, or each test and size of `probe p2p`.

    Raises UsageError if the campaign has several sizes of chunks.
    """
    sizes = {plan.rows_per_chunk for plan in campaign.plans}
    if len(sizes) > 1:
        raise UsageError(f"{campaign.folder}: one size of chunks is needed, and it has {len(sizes)}")
    if campaign.probe is None:
        yield Quantity(
            f"merge of {campaign.plans[0].rows_per_chunk:,} rows per chunk, GiB/s",
            True,
            [
                {sample.block: sample.value / 2**30 for sample in comparison_side(run, METRICS[0]).samples}
                for run in campaign.runs
            ],
            [
                {
                    name
                    for launch in run.launches
                    if launch.lanes
                    for pair in launch.lanes.pairs
                    for name in pair.transports
                }
                for run in campaign.runs
            ],
        )
        return
    tests = dict.fromkeys((line.test, line.size) for launch in campaign.launches for line in launch.probes)
    for test, size in tests:
        latency = test.endswith("lat")
        lines_by_run = [
            {
                launch.block_index: line
                for launch in run.launches
                for line in launch.probes
                if (line.test, line.size) == (test, size) and launch.block_index is not None
            }
            for run in campaign.runs
        ]
        yield Quantity(
            f"{test} of {size:,} B, {'µs one way' if latency else 'MB/s'}",
            not latency,
            [
                {
                    block: 1e6 * line.seconds if latency else (line.bandwidth_bytes_per_second or 0.0) / 1e6
                    for block, line in lines.items()
                    if line.seconds
                }
                for lines in lines_by_run
            ],
            [{name for line in lines.values() for name in line.selected or ()} for lines in lines_by_run],
        )


def release_rows(campaign: Campaign) -> Iterator[list[str]]:
    """Yield a row of cells (see `HEADINGS`) for each quantity and release."""
    for quantity in measured_quantities(campaign):
        first, *others = quantity.values
        sign = 1.0 if quantity.more_is_better else -1.0
        effects = [
            paired_effect(
                [sign * math.log(other[block] / first[block]) for block in sorted(first.keys() & other.keys())]
            )
            for other in others
        ]
        verdicts = [("-", "-")]
        for judgement in judge_effects(effects, threshold=THRESHOLD):
            ratio = f"{math.exp(judgement.effect.estimate):.3f}"
            if judgement.interval is not None:
                low, high = map(math.exp, judgement.interval)
                ratio += f" ({low:.3f} to {high:.3f})"
            verdicts.append((ratio, judgement.verdict.value))
        rows = zip(campaign.run_labels, quantity.values, quantity.lanes, verdicts, strict=True)
        for label, values, lanes, verdict in rows:
            numbers = sorted(values.values())
            extremes = f"{numbers[0]:.3g} to {numbers[-1]:.3g}"
            median = f"{statistics.median(numbers):.3g}"
            yield [quantity.title, label, " ".join(sorted(lanes)), median, extremes, *verdict]


@click.command(context_settings=command.CONTEXT)
@click.argument("results", metavar="RESULT...", nargs=-1, required=True, type=click.Path(path_type=Path))
def releases(results: Sequence[Path]) -> None:
    """Print one table of campaigns whose runs differ in the release of UCX."""
    rows = [row for path in results for row in release_rows(read_campaign(path))]
    click.echo(command.table(HEADINGS, rows, text=(0, 1, 2, 5, 6)))


if __name__ == "__main__":
    command.run(releases, "releases")
