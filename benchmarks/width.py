"""Measures the exchange at width: all to all between 2, 4, 8, … hosts whose links are the limit.

    python -m benchmarks.width --workers 2,4,8,16 --output FILE.json

Every worker has a test host of its own (network namespaces: needs root). The rates of all links add up to a share of
what two hosts with links that are not shaped move here, or to --budget; rows are as many as the links carry in
--seconds. A run of up to 8 workers takes half a minute, of 16 about one, of 32 two or three. `docs/width.md` says what
the columns are. Exit status: 0 measured; 2 wrong usage; 3 something could not be measured, or it was interrupted.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from benchmarks import command
from benchmarks.goal.bench import Bench, need_hosts, scratch
from benchmarks.processes import adopt_orphans
from benchmarks.wide.figures import PAYLOAD_COLUMNS, SHARE, Size, Wide, dropped_share, exchanged, judge, size, table
from benchmarks.wide.figures import widths as read_widths
from merge_bench.analysis.statistics import median
from merge_bench.errors import RunFailed
from merge_bench.host.memory import available_bytes
from merge_bench.units import format_bytes

SCHEMA = 1
FREE_ROWS = 2_000_000  # of a chunk, between hosts with links that are not shaped


@click.command(context_settings=command.CONTEXT)
@click.option(
    "--workers", default="2,4,8,16", show_default=True, metavar="N[,N]", help="Numbers of hosts, with a worker each."
)
@click.option(
    "--budget", type=click.FloatRange(0, min_open=True), metavar="GBIT",
    help="Sum of the links' rates each way, in Gbit/s. [a quarter of what this machine moves, measured]",
)  # fmt: skip
@click.option(
    "--seconds", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Aimed duration of an exchange."
)
@click.option("--iterations", type=click.IntRange(1), default=3, show_default=True, help="Timed merges.")
@command.OUTPUT
@click.option("--time-limit", type=click.FloatRange(1), default=240, show_default=True, help="Seconds for one run.")
def width(
    workers: str, budget: float | None, seconds: float, iterations: int, output: Path | None, time_limit: float
) -> None:
    """Measure all-to-all between more and more hosts with shaped links."""
    wanted = read_widths(workers)
    need_hosts()
    adopt_orphans()
    document = command.head(SCHEMA, widths=[], failures=[])
    found: list[Wide] = []
    try:
        with scratch() as folder:
            bench = Bench(folder, time_limit)
            document["moved_bytes_per_second"] = moved = None if budget else capacity(bench)
            document["budget_bytes_per_second"] = total = budget * 1e9 / 8 if budget else SHARE * (moved or 0.0)
            for each in wanted:
                made = size(each, total, seconds)
                try:
                    found.append(measure(bench, made, iterations))
                    command.say(table(found[-1:]).splitlines()[-1])
                except RunFailed as error:
                    document["failures"].append({"workers": each, "message": str(error)})
                    command.say(f"width: {each} workers: {error}")
                document["widths"] = [one.to_json() for one in found]
                command.write(output, document)
    except KeyboardInterrupt:
        command.say(command.PARTIAL)
        document["failures"].append({"workers": None, "message": "interrupted"})
        command.write(output, document)
    click.echo(table(found))
    moved = document.get("moved_bytes_per_second")
    if moved:
        click.echo(f"\nTwo hosts with links that are not shaped move {moved / 1e9:.2f} GB/s here, both ways together.")
    if document["failures"]:
        sys.exit(command.INTERRUPTED)


def capacity(bench: Bench) -> float:
    """Bytes per second that two hosts whose links are not shaped send, both together: what processors here can do."""
    from tests.hosts.make_hosts import Hosts

    with Hosts(2, None) as hosts:
        ran = bench.merge(**options(Size(2, 0, FREE_ROWS), 3), hosts=hosts)
    seen = [exchanged(iteration) for iteration in ran.campaign.launches[0].timed]
    return median([sum(each.sent) / max(each.flights) for each in seen])


def measure(bench: Bench, made: Size, iterations: int) -> Wide:
    """One width, on hosts of its own.

    Raises
    ------
    RunFailed
        If memory does not suffice, or the run failed.
    """
    from tests.hosts.make_hosts import Hosts

    there = available_bytes()
    if made.memory_bytes > there:
        raise RunFailed(
            f"it needs about {format_bytes(made.memory_bytes)}, but only {format_bytes(there)} is available"
        )
    with Hosts(made.workers, f"{made.rate}bit") as hosts:
        ran = bench.merge(**options(made, iterations), hosts=hosts)
        dropped = dropped_share(_qdiscs(hosts))
    return judge(ran.campaign.launches[0], made, dropped)


def options(made: Size, iterations: int) -> dict[str, Any]:
    """The options of a run."""
    return {
        "workers": made.workers, "chunk": made.chunk, "payload_columns": PAYLOAD_COLUMNS, "iterations": iterations,
        "warmup": 1, "link_rounds": 0, "config": "ethernet.cfg", "timeout": 60, "start_timeout": 220, "pipeline": "off",
    }  # fmt: skip


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
