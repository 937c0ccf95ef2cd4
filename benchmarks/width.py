"""Measures the exchange at width: all to all between 2, 4, 8, … hosts whose links are the limit.

    python -m benchmarks.width --workers 2,4,8,16 --output FILE.json

Every worker has a test host of its own (network namespaces: needs root). The rates of all links add up to a share of
what two hosts with links that are not shaped move here, or to --budget; rows are as many as the links carry in
--seconds. A run of up to 8 workers takes half a minute, of 16 about one, of 32 two or three. `docs/measurements.md`
has the result. Exit status: 0 measured; 2 wrong usage; 3 something could not be measured, or it was interrupted.

A link carries `PAYLOAD` of its rate as bytes of messages, and lets a burst pass before it holds back. So a worker needs
at least (the larger of what it sends and receives, less a burst) ÷ (rate × `PAYLOAD`) seconds; its fraction of the link
is that least time ÷ the time for which its transfers were in flight.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks import command
from benchmarks.goal.bench import Bench, need_hosts, scratch
from merge_bench.analysis.statistics import median
from merge_bench.errors import RunFailed
from merge_bench.host.machine import available_memory_bytes
from merge_bench.records.campaign import Launch
from merge_bench.records.schema import IterationLine
from merge_bench.units import format_bytes

SCHEMA = 1
FREE_ROWS = 2_000_000  # of a chunk, between hosts with links that are not shaped
PAYLOAD = 1448 / 1514  # of what a link carries at an MTU of 1500
BURST_BYTES = 1 << 20  # of `tests.hosts.make_hosts.BURST`
SHARE = 0.25  # of what two hosts can move here: more connections cost more a byte, and links are to be measured
PAYLOAD_COLUMNS = 7
ROW_BYTES = 2 * 8 * (1 + PAYLOAD_COLUMNS)  # of a row of each frame
PROCESS_BYTES = 250 << 20  # of a worker, its nanny and its host's guard, without data
COPIES = 4  # of the input, at the peak
HEADINGS = (
    "workers",
    "Mbit/s per link",
    "MB sent by each",
    "wall (ms)",
    "exchange (ms)",
    "bytes at link rate (ms)",
    "ratio",
    "MB/s, slowest worker",
    "median",
    "of link, slowest",
    "median",
    "arrivals",
    "dropped",
    "peak ÷ input",
    "start (s)",
)


@dataclass(frozen=True)
class Size:
    """How a width is measured: bits per second of each link each way, and rows of a chunk."""

    workers: int
    rate: int
    chunk: int

    @property
    def link(self) -> float:
        """Bytes of messages per second that a link carries each way."""
        return self.rate / 8 * PAYLOAD

    @property
    def memory_bytes(self) -> int:
        """What all processes together need, roughly."""
        return self.workers * (PROCESS_BYTES + COPIES * self.chunk * ROW_BYTES)


def size(workers: int, budget: float, seconds: float) -> Size:
    """Links whose rates add up to `budget` bytes per second, and rows whose exchange takes them about `seconds`."""
    rate = int(budget * 8 / workers)
    sent_of_chunk = (workers - 1) / workers * ROW_BYTES
    return Size(workers, rate, max(1, round(rate / 8 * seconds / sent_of_chunk)))


def number(text: str) -> int:
    """A number of workers as it is typed.

    Raises
    ------
    ValueError
        If it is none from 2 to 200.
    """
    if not text.isdecimal() or not 2 <= int(text) <= 200:
        raise ValueError(f"{text!r} is not a number from 2 to 200")
    return int(text)


@dataclass(frozen=True)
class Wide(Size):
    """What a launch of one width showed: medians over its iterations; seconds, bytes, bytes per second.

    `least`: seconds that the busiest link needs for its bytes. `slowest`, `middle`: bandwidth of the slowest and of the
    median worker, bytes sent ÷ seconds in flight; `*_fraction`: the least and the median fraction of a link.
    `arrivals`: of the time for which a frame is in flight, the share after which the bytes of a source are there, the
    mean over sources: 1 where all come to their end together, about ½ where one comes after the other. `dropped`: share
    of packets that the switch dropped before a host's link.
    """

    sent: float
    wall: float
    exchange: float
    least: float
    slowest: float
    middle: float
    slowest_fraction: float
    middle_fraction: float
    arrivals: float
    dropped: float | None
    peak_over_input: float
    startup: float

    @property
    def ratio(self) -> float:
        """The exchange of the slowest worker ÷ what its bytes need at the link's rate."""
        return self.exchange / self.least

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "exchange_over_least": self.ratio}


@dataclass(frozen=True)
class Exchanged:
    """One iteration: of every worker in rank order, bytes and seconds."""

    sent: tuple[int, ...]
    received: tuple[int, ...]
    flights: tuple[float, ...]
    exchange: tuple[float, ...]
    arrivals: float

    def least(self, link: float) -> list[float]:
        """Seconds that each worker's link needs for its bytes."""
        return [max(0, max(both) - BURST_BYTES) / link for both in zip(self.sent, self.received, strict=True)]


def exchanged(iteration: IterationLine) -> Exchanged:
    """The exchange of an iteration, from its records.

    Raises
    ------
    RunFailed
        If a worker did not report it.
    """
    received = dict.fromkeys((worker.rank for worker in iteration.workers), 0)
    frames: dict[int, float] = {}
    found: list[tuple[int, float, float]] = []
    for worker in iteration.workers:
        sent, flight, phases = worker.sent_bytes, worker.flight_seconds, worker.phases_seconds
        if sent is None or flight is None or phases is None:
            raise RunFailed(f"rank {worker.rank} did not report its exchange")
        found.append((sent.left + sent.right, flight.union, float(phases.exchange or 0.0)))
        frames[worker.rank] = flight.left + flight.right
    shares = []
    for pair in iteration.pairs:
        received[pair.to_rank] += pair.bytes
        if pair.seconds is not None and frames[pair.to_rank] > 0:
            shares.append(pair.seconds / frames[pair.to_rank])
    if not shares:
        raise RunFailed("no pair of workers reported when its bytes had arrived")
    each_sent, flights, exchange = zip(*found, strict=True)
    return Exchanged(each_sent, tuple(received.values()), flights, exchange, sum(shares) / len(shares))


def judge(launch: Launch, made: Size, dropped: float | None) -> Wide:
    """The figures of a launch, from its records.

    Raises
    ------
    RunFailed
        If they do not have it, or a pair of workers did not use the links.
    """
    if launch.lanes is None or launch.memory is None or launch.line is None or not launch.timed_iterations:
        raise RunFailed("the records do not contain transports, memory or iterations")
    for pair in launch.lanes.pairs:
        if not pair.transports or any(not lane.startswith("tcp/") for lane in pair.transports):
            raise RunFailed(
                f"rank {pair.from_rank} to rank {pair.to_rank} uses {', '.join(pair.transports)} instead of tcp"
            )
    seen = [exchanged(iteration) for iteration in launch.timed_iterations]
    speeds = _of_workers((each.sent, each.flights) for each in seen)
    shares = _of_workers((each.least(made.link), each.flights) for each in seen)
    return Wide(
        **asdict(made),
        sent=median([median(each.sent) for each in seen]),
        wall=median([iteration.wall_seconds for iteration in launch.timed_iterations]),
        exchange=median([max(each.exchange) for each in seen]),
        least=median([max(each.least(made.link)) for each in seen]),
        slowest=min(speeds),
        middle=median(speeds),
        slowest_fraction=min(shares),
        middle_fraction=median(shares),
        arrivals=median([each.arrivals for each in seen]),
        dropped=dropped,
        peak_over_input=max(_peak(worker) for worker in launch.memory.workers),
        startup=launch.line.startup_seconds or 0.0,
    )


def _of_workers(iterations: Iterable[tuple[Sequence[float], Sequence[float]]]) -> list[float]:
    """Each worker's median over iterations of what it did ÷ the seconds it took."""
    rates = [[amount / seconds for amount, seconds in zip(*each, strict=True)] for each in iterations]
    return [median(values) for values in zip(*rates, strict=True)]


def _peak(worker: Any) -> float:
    if not worker.peak_above_imports_bytes or not worker.input_bytes:
        raise RunFailed(f"rank {worker.rank} did not report its memory")
    return float(worker.peak_above_imports_bytes / worker.input_bytes)


def dropped_share(qdiscs: Sequence[dict[str, Any]]) -> float | None:
    """Of the packets that came to shaped links (`tc -s -j qdisc`), the share that was dropped; None: no packet."""
    shaped = [each for each in qdiscs if each.get("kind") == "tbf"]
    dropped = sum(int(each["drops"]) for each in shaped)
    packets = dropped + sum(int(each["packets"]) for each in shaped)
    return dropped / packets if packets else None


def table(found: Sequence[Wide]) -> str:
    """The widths in Markdown."""
    rows = [
        (
            str(each.workers),
            f"{each.rate / 1e6:.0f}",
            f"{each.sent / 1e6:.0f}",
            f"{each.wall * 1e3:.0f}",
            f"{each.exchange * 1e3:.0f}",
            f"{each.least * 1e3:.0f}",
            f"{each.ratio:.2f}",
            f"{each.slowest / 1e6:.1f}",
            f"{each.middle / 1e6:.1f}",
            f"{each.slowest_fraction:.0%}",
            f"{each.middle_fraction:.0%}",
            f"{each.arrivals:.2f}",
            "-" if each.dropped is None else f"{each.dropped:.2%}",
            f"{each.peak_over_input:.2f}",
            f"{each.startup:.0f}",
        )
        for each in found
    ]
    return command.table(HEADINGS, rows, text=())


@click.command(context_settings=command.CONTEXT)
@command.option("--workers", command.listed("N", number), "2,4,8,16", "Numbers of hosts; each host runs one worker.")
@command.option(
    "--budget",
    click.FloatRange(0, min_open=True),
    None,
    "Total rate of all links in Gbit/s, each way. [a quarter of the measured rate of this machine]",
)
@command.option("--seconds", click.FloatRange(0.1), 2.0, "Target duration of an exchange in seconds.")
@command.option("--iterations", click.IntRange(1), 3, "Number of timed merges.")
@command.OUTPUT
@command.time_limit(240)
def width(
    workers: list[int], budget: float | None, seconds: float, iterations: int, output: Path | None, time_limit: float
) -> None:
    """Measure all-to-all exchanges between an increasing number of hosts with shaped links."""
    need_hosts()
    document = command.head(SCHEMA, widths=[], failures=[])
    found: list[Wide] = []

    def measure_all() -> None:
        document["moved_bytes_per_second"] = moved = None if budget else capacity(bench)
        document["budget_bytes_per_second"] = total = budget * 1e9 / 8 if budget else SHARE * (moved or 0.0)
        for each in sorted(set(workers)):
            try:
                found.append(measure(bench, size(each, total, seconds), iterations))
                command.say(table(found[-1:]).splitlines()[-1])
            except RunFailed as error:
                document["failures"].append({"workers": each, "message": str(error)})
                command.say(f"width: {each} workers: {error}")
            document["widths"] = [one.to_json() for one in found]
            command.write(output, document)

    with scratch(time_limit) as bench:
        if command.until_interrupted(measure_all):
            document["failures"].append({"workers": None, "message": "interrupted"})
            command.write(output, document)
    click.echo(table(found))
    if moved := document.get("moved_bytes_per_second"):
        click.echo(f"\nTwo hosts with unshaped links move {moved / 1e9:.2f} GB/s on this machine, both ways together.")
    if document["failures"]:
        sys.exit(command.INTERRUPTED)


def capacity(bench: Bench) -> float:
    """Bytes per second that two hosts whose links are not shaped send, both together: what processors here can do."""
    from tests.hosts.make_hosts import Hosts

    with Hosts(2, None) as hosts:
        ran = bench.merge(**options(Size(2, 0, FREE_ROWS), 3), hosts=hosts)
    seen = [exchanged(iteration) for iteration in ran.campaign.launches[0].timed_iterations]
    return median([sum(each.sent) / max(each.flights) for each in seen])


def measure(bench: Bench, made: Size, iterations: int) -> Wide:
    """One width, on hosts of its own.

    Raises
    ------
    RunFailed
        If memory does not suffice, or the run failed.
    """
    from tests.hosts.make_hosts import Hosts

    there = available_memory_bytes()
    if made.memory_bytes > there:
        raise RunFailed(
            f"needs about {format_bytes(made.memory_bytes)} of memory, but only {format_bytes(there)} is available"
        )
    with Hosts(made.workers, f"{made.rate}bit") as hosts:
        ran = bench.merge(**options(made, iterations), hosts=hosts)
        dropped = dropped_share(_qdiscs(hosts))
    return judge(ran.campaign.launches[0], made, dropped)


def options(made: Size, iterations: int) -> dict[str, Any]:
    """The options of a run."""
    return {
        "workers": made.workers,
        "chunk": made.chunk,
        "payload_columns": PAYLOAD_COLUMNS,
        "iterations": iterations,
        "warmup": 1,
        "link_rounds": 0,
        "config": "ethernet.cfg",
        "timeout": 60,
        "start_timeout": 220,
        "pipeline": "off",
    }


def _qdiscs(hosts: Any) -> list[dict[str, Any]]:
    """Counters of the switch's ports: what goes to the hosts."""
    line = hosts.switch.enter("tc", "-s", "-j", "qdisc", "show", mount=False)
    done = subprocess.run(line, capture_output=True, text=True, timeout=30, check=False)
    try:
        return list(json.loads(done.stdout))
    except ValueError:
        return []


if __name__ == "__main__":
    command.run(width, "width")
