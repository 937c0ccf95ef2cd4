"""What `--pipeline on` gains where a link is the bottleneck: two hosts, one core and one worker each, links shaped.

    python -m benchmarks.overlap [--rates 2,8] [--chunk 4e6] [--blocks 3] [--iterations 5] [--engine native]

For every rate (Gbit/s) `--pipeline off` and `on` are launched in turn, in random order within each block. Wall-clock is
held against the time that the bytes of a worker need at the link limit measured in the same launch; medians over
launches, with the least and the greatest. Needs root (network namespaces) and two cores. With the defaults it takes
about three minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from benchmarks import command
from benchmarks.goal.bench import Bench, need_hosts, scratch, two_hosts
from benchmarks.width import PAYLOAD
from merge_bench.analysis import aggregate, bottleneck
from merge_bench.analysis.statistics import median
from merge_bench.records.campaign import Launch

HEADINGS = (
    "Gbit/s",
    "pipeline",
    "wall (ms)",
    "on the wire (ms)",
    "wall ÷ wire (min to max)",
    "computing",
    "cores used",
    "limit (MB/s)",
)


def measure(bench: Bench, rate: float, **chosen: object) -> dict[str, Sequence[Launch]]:
    """One campaign between two hosts with links of `rate` Gbit/s: its launches with pipeline off and on."""
    base = (command.ROOT / "configs" / "ethernet.cfg").read_text()
    configs = [bench.folder / f"{name}.cfg" for name in ("off", "on")]
    for config in configs:
        config.write_text(f"{base}\nMERGE_BENCH_PIPELINE={config.stem}\n")
    with two_hosts(f"{rate:g}gbit", one_core=True) as hosts:
        ran = bench.merge(configs=",".join(map(str, configs)), start_timeout=120, hosts=hosts, **chosen)
    return {run.config.name.removesuffix(".cfg"): run.launches for run in ran.campaign.runs}


def row(rate: float, name: str, launches: Sequence[Launch]) -> list[str]:
    """One row of the table, of medians over launches.

    `computing`: share of the wall-clock in which the busiest worker computes; `cores used`: share of it in which a
    host's core was busy, which with phases apart it is with polling, too.
    """
    walls, ratios, computing, cores_used = (
        aggregate.launch_medians(launches, value)
        for value in (
            aggregate.wall_seconds,
            aggregate.wall_to_link_time_ratio,
            aggregate.computing_share,
            aggregate.busy_cores_share,
        )
    )
    wires = [wall / ratio for wall, ratio in zip(walls, ratios, strict=True)]
    limit = aggregate.link_limit(launches) or float("nan")
    return [
        f"{rate:g}",
        name,
        f"{median(walls) * 1e3:.0f}",
        f"{median(wires) * 1e3:.0f}",
        f"{median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})",
        f"{median(computing):.0%}",
        f"{median(cores_used):.0%}",
        f"{limit / 1e6:.0f} of {rate * 1e9 / 8 * PAYLOAD / 1e6:.0f}",
    ]


@click.command(context_settings=command.CONTEXT)
@command.option("--rates", command.listed("GBIT", float), "2,8", "Rates of each link in Gbit/s, each way.")
@command.option("--chunk", command.ROWS, "4e6", "Rows of each frame on each host.")
@command.option("--blocks", click.IntRange(1), 3, "Number of launches with each setting.")
@command.option("--iterations", click.IntRange(1), 5, "Number of timed merges per launch.")
@command.option("--engine", str, "native", "Engine of the merge.")
def overlap(rates: list[float], chunk: int, blocks: int, iterations: int, engine: str) -> None:
    """Compare pipeline off and on at each rate; exit 1 if neither the link nor the cores limit a merge."""
    need_hosts()
    rows, missed = [], []
    with scratch() as bench:
        for rate in rates:
            found = measure(bench, rate, chunk=chunk, blocks=blocks, iterations=iterations, engine=engine)
            rows += [row(rate, name, found[name]) for name in ("off", "on")]
            limits = (aggregate.wall_to_link_time_ratio, aggregate.computing_share, aggregate.busy_cores_share)
            if (
                bottleneck.limit_of_overlapping_phases(*(aggregate.run_median(found["on"], value) for value in limits))
                is None
            ):
                missed.append(rate)
    click.echo(command.aligned(HEADINGS, rows, text=()))
    click.echo("computing: share of the wall-clock in which the slowest worker partitions or joins.")
    click.echo(
        "cores used: share of the wall-clock in which a core is busy; with pipeline off, this includes polling by UCX."
    )
    for rate in missed:
        click.echo(
            f"missed at {rate:g} Gbit/s: the merge takes more than {bottleneck.NEAR_WIRE} × the time on the wire, "
            "but cores are idle"
        )
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    command.run(overlap, "overlap")
