"""Measures `probe all-to-all` between hosts whose links have a known rate: our data plane beside MPI, interleaved.

    python -m benchmarks.all_to_all --hosts 2,4 --output FILE.json

Every rank has a test host of its own (network namespaces: needs root). A link carries `PAYLOAD` of its rate as bytes of
messages. It lets a burst pass before it holds back, and that after every pause: the burst is small here beside what a
rank sends, and the table has the share of the link with and without it. Exit status: 0 our data plane reaches the goal
at the largest size; 1 it does not; 2 wrong usage; 3 something could not be measured, or it was interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks import command
from benchmarks.goal.bench import Bench, need_hosts, scratch
from benchmarks.processes import options, run_merge_bench, surroundings
from benchmarks.width import PAYLOAD, number
from merge_bench.cli.common import ParsedValue
from merge_bench.errors import RunFailed
from merge_bench.probe.shared.options import parse_message_sizes
from merge_bench.units import parse_count

SCHEMA = 1
GOAL = 0.95
TIMER_HZ = 250  # bursts have to last from one tick of the kernel's timer to the next
HEADINGS = (
    "hosts",
    "test",
    "bytes per pair",
    "rows of a chunk",
    "launches",
    "slowest rank (ms)",
    "MB/s a rank",
    "min to max",
    "bus MB/s",
    "of link",
    "without burst",
    "wrong",
)


@dataclass(frozen=True)
class Link:
    """A shaped link: bits per second each way, and bytes that pass at once after a pause."""

    rate: int

    @property
    def burst(self) -> int:
        """The least burst with which the kernel keeps the rate; a segment of 64 KiB has to fit."""
        return max(self.rate // 8 // TIMER_HZ, 80 << 10)

    @property
    def limit(self) -> float:
        """Bytes of messages per second."""
        return self.rate / 8 * PAYLOAD


@dataclass(frozen=True)
class Figure:
    """A row of the probe: medians over launches, and the least and greatest `bandwidth` of a launch.

    Bandwidths are in bytes per second of a rank. `method` names the library and its version. `share`: of the link;
    `share_without_burst`: a lower bound of it.
    """

    hosts: int
    test: str
    method: str
    size: int
    rows: int | None
    launches: int
    seconds: float
    bandwidth: float
    bandwidth_range: tuple[float, float]
    bus_bandwidth: float
    share: float
    share_without_burst: float
    wrong: int


def figures(document: Mapping[str, Any], hosts: int, link: Link) -> Iterator[Figure]:
    """The rows of a document of the probe.

    Raises
    ------
    RunFailed
        If a row did not use the links, or has no share of them.
    """
    for row in document["rows"]:
        lanes = row["selected_transports"]
        if not lanes or any(not lane.startswith("tcp/") for lane in lanes):
            raise RunFailed(f"{row['test']} uses {', '.join(lanes) or 'unknown transports'} instead of tcp")
        if row["link_share"] is None:
            raise RunFailed(f"{row['test']} has no share of the link")
        rate = row["bandwidth_bytes_per_second"]
        low, high = row["bandwidth_range"] or (rate, rate)
        yield Figure(
            hosts=hosts,
            test=row["test"],
            method=row["method"],
            size=row["size"],
            rows=row["count"],
            launches=row["launches"],
            seconds=row["seconds"],
            bandwidth=rate,
            bandwidth_range=(low, high),
            bus_bandwidth=row["bus_bandwidth_bytes_per_second"],
            share=row["link_share"],
            share_without_burst=row["link_share"] - link.burst / row["seconds"] / link.limit,
            wrong=row["wrong"],
        )


def table(found: Sequence[Figure]) -> str:
    """The figures in Markdown."""
    rows = [
        (
            str(each.hosts),
            each.test,
            f"{each.size:,}",
            "" if each.rows is None else f"{each.rows:,}",
            str(each.launches),
            f"{each.seconds * 1e3:.2f}",
            f"{each.bandwidth / 1e6:.2f}",
            " to ".join(f"{end / 1e6:.2f}" for end in each.bandwidth_range),
            f"{each.bus_bandwidth / 1e6:.2f}",
            f"{each.share:.1%}",
            f"{max(each.share_without_burst, 0.0):.1%}",
            str(each.wrong),
        )
        for each in found
    ]
    return command.table(HEADINGS, rows, text=(1,))


def reached(found: Sequence[Figure]) -> bool:
    """Whether our data plane has the goal's share of the link at the largest size, with every number of hosts."""
    equal = [each for each in found if each.test == "ucx_alltoall"]
    largest = max((each.size for each in equal), default=0)
    return bool(equal) and all(each.share >= GOAL for each in equal if each.size == largest)


@click.command(context_settings=command.CONTEXT)
@command.option("--hosts", command.listed("N", number), "2,4", "Numbers of hosts; each host runs one rank.")
@command.option("--rate", click.FloatRange(0, min_open=True), 0.2, "Rate of each link in Gbit/s, each way.")
@command.option("--sizes", ParsedValue("SIZES", parse_message_sizes), "64K,1M,4M", "Bytes for each pair of ranks.")
@command.option("--chunk", ParsedValue("ROWS", parse_count), "1e6", "Rows of the merge whose parcels are sent.")
@command.option("--repetitions", click.IntRange(1), 3, "Number of launches of each backend.")
@command.OUTPUT
@command.time_limit(560)
def all_to_all(
    hosts: list[int],
    rate: float,
    sizes: Sequence[int],
    chunk: int,
    repetitions: int,
    output: Path | None,
    time_limit: float,
) -> None:
    """Measure all-to-all between hosts with shaped links, over our data plane and over MPI in turns."""
    need_hosts()
    link = Link(round(rate * 1e9))
    document = command.head(SCHEMA, link={**asdict(link), "burst": link.burst, "limit": link.limit}, rows=[])
    found: list[Figure] = []

    def measure_all() -> None:
        for count in sorted(set(hosts)):
            chosen = {"sizes": ",".join(map(str, sizes)), "chunk": chunk, "repetitions": repetitions}
            found.extend(measure(bench, count, link, chosen))
            document["rows"] = [asdict(each) for each in found]
            command.write(output, document)

    with scratch(time_limit) as bench:
        interrupted = command.until_interrupted(measure_all)
    click.echo(table(found))
    for line in (f"Processor: {document['hardware']['cpu_model']}", *dict.fromkeys(each.method for each in found)):
        click.echo(line)
    sys.exit(interrupted or (0 if reached(found) else 1))


def measure(bench: Bench, count: int, link: Link, chosen: Mapping[str, object]) -> list[Figure]:
    """One number of hosts; raises RunFailed if the probe failed."""
    from tests.hosts import make_hosts

    words = options(
        **chosen,
        workers=count,
        config="ethernet.cfg",
        link_limit=f"{link.limit / 1e6}MB/s",
        timeout=60,
        start_timeout=200,
        results=str(bench.folder / f"{count}.results"),
    )
    make_hosts.BURST = f"{link.burst}b"
    with make_hosts.Hosts(count, f"{link.rate}bit") as hosts:
        stem, verb = bench.folder / str(count), ("probe", "all-to-all")
        document, _ = run_merge_bench(
            words, surroundings("UCX", "MERGE_BENCH_"), stem, bench.limit, hosts=hosts, verb=verb
        )
    return list(figures(document, count, link))


if __name__ == "__main__":
    command.run(all_to_all, "all_to_all")
