"""What a note of a timeline costs, and how much longer the first iteration of a launch takes than the next ones.

    python -m benchmarks.timeline_cost [--repeats 200] [--launches 3] [--chunk 1e6]

The cost is measured as each worker measures it before it iterates. Takes less than a minute with the defaults; use a
quiet machine.
"""

from __future__ import annotations

import click

from benchmarks import command
from benchmarks.goal.bench import scratch
from merge_bench.analysis.statistics import median
from merge_bench.merge.timeline_recording import measure_note_seconds


@click.command(context_settings=command.CONTEXT)
@command.option("--repeats", click.IntRange(1), 200, "Number of measurements of a note's cost.")
@command.option("--launches", click.IntRange(1), 3, "Number of merges whose first iterations are measured.")
@command.option("--chunk", command.ROWS, "1e6", "Rows of each frame on each of two workers.")
def timeline_cost(repeats: int, launches: int, chunk: int) -> None:
    """Print both with their least and greatest values."""
    costs = [1e6 * measure_note_seconds() for _ in range(repeats)]
    click.echo(f"one note: {median(costs):.3f} µs ({min(costs):.3f} to {max(costs):.3f})")
    with scratch() as bench:
        campaign = bench.merge(
            workers=2, chunk=chunk, iterations=10, warmup=1, launches=launches, link_rounds=0
        ).campaign
    found = []
    for launch in campaign.launches:
        (first,) = [each.wall_seconds for each in launch.iterations if each.warmup]
        found.append(first / median([each.wall_seconds for each in launch.timed_iterations]))
        if (line := launch.timeline) is not None:
            click.echo(f"launch {launch.index}: {line.because}, {line.notes} notes, {line.share:.4%} of an iteration")
    click.echo(f"first ÷ median of the next: {median(found):.1f} ({min(found):.1f} to {max(found):.1f})")


if __name__ == "__main__":
    command.run(timeline_cost, "timeline_cost")
