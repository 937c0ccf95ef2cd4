"""What `--pipeline on` gains where a link is the bottleneck: two hosts, one core and one worker each, links shaped.

    python -m benchmarks.overlap [--rates 2,8] [--chunk 4e6] [--blocks 3] [--iterations 5] [--engine native]

For every rate (Gbit/s) `--pipeline off` and `on` are launched in turn, in random order within each block. Wall-clock is
held against the time that the bytes of a worker need at the link limit measured in the same launch; medians over
launches, with the least and the greatest. Needs root (network namespaces) and two cores. With the defaults it takes
about three minutes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from statistics import median

import click

from benchmarks import command
from benchmarks.goal.bench import Bench, need_hosts, scratch, two_hosts
from benchmarks.processes import adopt_orphans
from benchmarks.wide.figures import PAYLOAD
from merge_bench.analysis import aggregate, metrics
from merge_bench.records.campaign import Launch

HEADINGS = (
    "Gbit/s", "pipeline", "wall (ms)", "on the wire (ms)", "wall ÷ wire (min to max)", "computing", "cores used",
    "limit (MB/s)",
)  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """One launch: medians over its iterations, seconds; `computing`: share of the wall-clock of the slowest worker.

    `cores_used`: share of the wall-clock in which a host's core was busy; with phases apart UCX polls.
    """

    wall: float
    wire: float
    computing: float
    cores_used: float
    limit: float

    @property
    def ratio(self) -> float:
        """Wall-clock ÷ time on the wire."""
        return self.wall / self.wire


def seen(launch: Launch) -> Seen:
    """What one launch showed."""
    assert launch.link is not None
    limit = launch.link.limit_bytes_per_second
    computing = aggregate.of_launch(launch, aggregate.computing)
    cores_used = aggregate.of_launch(launch, aggregate.cores_used)
    assert limit is not None
    assert computing is not None
    assert cores_used is not None
    wall = median(iteration.wall_seconds for iteration in launch.timed)
    return Seen(wall, max(launch.link.bytes) / limit, computing, cores_used, limit)


def measure(bench: Bench, rate: float, **chosen: object) -> dict[str, list[Seen]]:
    """One campaign between two hosts with links of `rate` Gbit/s: its launches with pipeline off and on."""
    base = (command.ROOT / "configs" / "ethernet.cfg").read_text()
    configs = [bench.folder / f"{name}.cfg" for name in ("off", "on")]
    for config in configs:
        config.write_text(f"{base}\nMERGE_BENCH_PIPELINE={config.stem}\n")
    with two_hosts(f"{rate:g}gbit", one_core=True) as hosts:
        ran = bench.merge(configs=",".join(map(str, configs)), start_timeout=120, hosts=hosts, **chosen)
    return {run.config.name.removesuffix(".cfg"): list(map(seen, run.launches)) for run in ran.campaign.runs}


def row(rate: float, name: str, launches: list[Seen]) -> list[str]:
    """One row of the table."""
    ratios = [launch.ratio for launch in launches]
    return [
        f"{rate:g}", name, f"{median(s.wall for s in launches) * 1e3:.0f}",
        f"{median(s.wire for s in launches) * 1e3:.0f}",
        f"{median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})",
        f"{median(s.computing for s in launches):.0%}",
        f"{median(s.cores_used for s in launches):.0%}",
        f"{median(s.limit for s in launches) / 1e6:.0f} of {rate * 1e9 / 8 * PAYLOAD / 1e6:.0f}",
    ]  # fmt: skip


@click.command(context_settings=command.CONTEXT)
@click.option(
    "--rates", type=command.listed("GBIT", float), default="2,8", show_default=True, help="Of every link, each way."
)
@click.option("--chunk", type=command.ROWS, default="4e6", show_default=True, help="Rows of a frame on each host.")
@click.option("--blocks", type=click.IntRange(1), default=3, show_default=True, help="Launches with each setting.")
@click.option("--iterations", type=click.IntRange(1), default=5, show_default=True, help="Timed merges of a launch.")
@click.option("--engine", default="native", show_default=True, help="Engine of the merge.")
def overlap(rates: list[float], chunk: int, blocks: int, iterations: int, engine: str) -> None:
    """Compare pipeline off and on at every rate; status 1 where neither the link nor the cores limit the merge."""
    need_hosts()
    adopt_orphans()
    rows, missed = [], []
    with scratch() as folder:
        bench = Bench(folder)
        for rate in rates:
            found = measure(bench, rate, chunk=chunk, blocks=blocks, iterations=iterations, engine=engine)
            rows += [row(rate, name, found[name]) for name in ("off", "on")]
            ratio, computing, used = (
                median(getattr(launch, name) for launch in found["on"]) for name in ("ratio", "computing", "cores_used")
            )
            if metrics.bottleneck(ratio, computing, used) is None:
                missed.append(rate)
    click.echo(command.aligned(HEADINGS, rows, text=()))
    click.echo("computing: share of the wall-clock in which the slowest worker partitions or joins.")
    click.echo(
        "cores used: share of the wall-clock in which a core is busy; with pipeline off, UCX's polling counts, too."
    )
    for rate in missed:
        click.echo(
            f"missed at {rate:g} Gbit/s: more than {metrics.NEAR_WIRE} × the time on the wire, but cores are idle"
        )
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    command.run(overlap, "overlap")
