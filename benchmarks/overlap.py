"""What `--pipeline on` gains where a link is the bottleneck: two hosts, one core and one worker each, links shaped.

    python -m benchmarks.overlap [--rates 2,8] [--chunk 4e6] [--blocks 3] [--iterations 5] [--engine native]

For every rate (Gbit/s) `--pipeline off` and `on` are launched in turn, in random order within each block. Wall-clock is
held against the time that the bytes of a worker need at the link limit measured in the same launch; medians over
launches, with the least and the greatest. Needs root (network namespaces) and two cores. With the defaults it takes
about three minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.goal.bench import two_hosts
from merge_bench.analysis import aggregate, metrics
from merge_bench.records.campaign import Launch
from merge_bench.records.reader import read_campaign
from tests.hosts.make_hosts import why_not

ROOT = Path(__file__).resolve().parents[1]
PAYLOAD = 1448 / 1514  # of what a link carries at an MTU of 1500
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


def seen(launch: Launch) -> Seen:
    """What one launch showed."""
    assert launch.link is not None
    limit = launch.link.limit_bytes_per_second
    computing, cores_used = aggregate.computing([launch]), aggregate.cores_used([launch])
    assert limit is not None
    assert computing is not None
    assert cores_used is not None
    wall = median(iteration.wall_seconds for iteration in launch.timed)
    return Seen(wall, max(launch.link.bytes) / limit, computing, cores_used, limit)


def measure(rate: float, options: argparse.Namespace, folder: Path) -> dict[str, list[Seen]]:
    """One campaign between two hosts with links of `rate` Gbit/s: launches by whether they were pipelined."""
    base = (ROOT / "configs" / "ethernet.cfg").read_text()
    for name in ("off", "on"):
        (folder / f"{name}.cfg").write_text(f"{base}\nMERGE_BENCH_PIPELINE={name}\n")
    with two_hosts(f"{rate:g}gbit", one_core=True) as hosts:
        command = hosts.command(
            sys.executable, "-P", "-m", "merge_bench", "run", "--json", "--hosts", str(hosts.hosts_file),
            "--ssh-config", str(hosts.ssh_config), "--results", str(folder / f"{rate:g}"), "--chunk", options.chunk,
            "--configs", f"{folder}/off.cfg,{folder}/on.cfg", "--blocks", str(options.blocks), "--engine",
            options.engine, "--iterations", str(options.iterations), "--start-timeout", "120",
        )  # fmt: skip
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            text=True, check=False,
        )  # fmt: skip
    document = json.loads(done.stdout)
    if done.returncode:
        raise SystemExit(f"overlap: {document.get('error') or [run['error'] for run in document['runs']]}")
    campaign = read_campaign(Path(document["records"]).parent)
    return {run.config.name.removesuffix(".cfg"): [seen(launch) for launch in run.launches] for run in campaign.runs}


def row(rate: float, name: str, launches: list[Seen]) -> list[str]:
    """One row of the table."""
    ratios = [launch.wall / launch.wire for launch in launches]
    return [
        f"{rate:g}", name, f"{median(s.wall for s in launches) * 1e3:.0f}",
        f"{median(s.wire for s in launches) * 1e3:.0f}",
        f"{median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})",
        f"{median(s.computing for s in launches):.0%}",
        f"{median(s.cores_used for s in launches):.0%}",
        f"{median(s.limit for s in launches) / 1e6:.0f} of {rate * 1e9 / 8 * PAYLOAD / 1e6:.0f}",
    ]  # fmt: skip


def main() -> int:
    """Measure every rate; status 1 where neither the link nor the cores limit the merge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", default="2,8", help="Gbit/s of every link and direction, separated by commas")
    parser.add_argument("--chunk", default="4e6", help="rows of a frame on each host")
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--engine", default="native")
    options = parser.parse_args()
    reason = why_not()
    if reason:
        parser.error(reason)
    table, missed = [list(HEADINGS)], []
    with tempfile.TemporaryDirectory(prefix="merge-bench-overlap-") as folder:
        for rate in map(float, options.rates.split(",")):
            found = measure(rate, options, Path(folder))
            table += [row(rate, name, found[name]) for name in ("off", "on")]
            on = found["on"]
            ratio, computing = median(s.wall / s.wire for s in on), median(s.computing for s in on)
            if metrics.bottleneck(ratio, computing, median(s.cores_used for s in on)) is None:
                missed.append(rate)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        print("  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)))
    print("computing: share of the wall-clock in which the slowest worker partitions or joins.")
    print("cores used: share of the wall-clock in which a core is busy; with phases apart, polling is that, too.")
    for rate in missed:
        print(f"missed at {rate:g} Gbit/s: more than {metrics.NEAR_WIRE} × the time on the wire, with cores that idle")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
