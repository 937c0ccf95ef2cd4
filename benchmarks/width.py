"""The exchange at width: all to all between 2, 4, 8, … hosts whose links, and not this machine, are the limit.

    python -m benchmarks.width --workers 2,4,8,16 --output FILE.json

Every worker has a test host of its own (network namespaces: needs root). The rates of all links add up to a share of
what two hosts with links that are not shaped move here, or to --budget; rows are as many as the links carry in
--seconds. A run of up to 8 workers takes half a minute, of 16 about one, of 32 two or three. `docs/width.md` says what
the columns are. Exit status: 0 measured; 2 wrong usage; 3 something could not be measured, or it was interrupted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click

from benchmarks import command
from benchmarks.goal.bench import Bench, pipeline, scratch
from benchmarks.peer.children import adopt_orphans
from benchmarks.wide.figures import PAYLOAD_COLUMNS, SHARE, Size, Wide, dropped_share, exchanged, judge, size, table
from benchmarks.wide.figures import widths as read_widths
from merge_bench.analysis.statistics import median
from merge_bench.campaign.campaign import git_state
from merge_bench.errors import RunFailed, UsageError
from merge_bench.host import machine
from merge_bench.host.memory import available_bytes
from merge_bench.units import format_bytes

SCHEMA = 1
FREE_ROWS = 2_000_000  # of a chunk, between hosts with links that are not shaped


@click.command(context_settings=command.CONTEXT)
@click.option("--workers", default="2,4,8,16", show_default=True, metavar="N[,N]", help="Hosts, a worker each.")
@click.option(
    "--budget", type=click.FloatRange(0, min_open=True), metavar="GBIT",
    help="Sum of the links' rates each way, in Gbit/s. [a quarter of what this machine moves, measured]",
)  # fmt: skip
@click.option("--seconds", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Of an exchange, about.")
@click.option("--iterations", type=click.IntRange(1), default=3, show_default=True, help="Timed merges.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.json", help="Write it here.")
@click.option("--time-limit", type=click.FloatRange(1), default=240, show_default=True, help="Seconds for one run.")
def width(
    workers: str, budget: float | None, seconds: float, iterations: int, output: Path | None, time_limit: float
) -> None:
    """Measure all-to-all between more and more hosts with shaped links."""
    from tests.hosts.make_hosts import why_not

    wanted = read_widths(workers)
    if output is not None and not output.resolve().parent.is_dir():
        raise UsageError(f"there is no folder {output.resolve().parent}")
    reason = why_not()
    if reason:
        raise UsageError(f"hosts with shaped links are needed: {reason}")
    adopt_orphans()
    document: dict[str, Any] = {
        "schema": SCHEMA, "argv": sys.argv[1:], "time": time.time(), "git": git_state(), "versions": machine.versions(),
        "hardware": machine.hardware(), "load_average": os.getloadavg(), "widths": [], "failures": [],
    }  # fmt: skip
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
                    click.echo(table(found[-1:]).splitlines()[-1], err=True)
                except RunFailed as error:
                    document["failures"].append({"workers": each, "message": str(error)})
                    click.echo(f"width: {each} workers: {error}", err=True)
                document["widths"] = [one.to_json() for one in found]
                _write(output, document)
    except KeyboardInterrupt:
        click.echo("interrupted: the table is of what there is", err=True)
        document["failures"].append({"workers": None, "message": "interrupted"})
        _write(output, document)
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
        ran = bench.merge(*options(Size(2, 0, FREE_ROWS), 3), hosts=hosts)
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
        raise RunFailed(f"it needs about {format_bytes(made.memory_bytes)}, and {format_bytes(there)} are there")
    with Hosts(made.workers, f"{made.rate}bit") as hosts:
        ran = bench.merge(*options(made, iterations), hosts=hosts)
        dropped = dropped_share(_qdiscs(hosts))
    return judge(ran.campaign.launches[0], made, dropped)


def options(made: Size, iterations: int) -> list[str]:
    """The options of a run."""
    return [
        "--workers", str(made.workers), "--chunk", str(made.chunk), "--payload-columns", str(PAYLOAD_COLUMNS),
        "--iterations", str(iterations), "--warmup", "1", "--link-rounds", "0", "--config", "ethernet.cfg",
        "--timeout", "60", "--start-timeout", "220", *pipeline("off"),
    ]  # fmt: skip


def _qdiscs(hosts: Any) -> list[dict[str, Any]]:
    """Counters of the switch's ports: what goes to the hosts."""
    command_line = hosts.switch.enter("tc", "-s", "-j", "qdisc", "show", mount=False)
    done = subprocess.run(command_line, capture_output=True, text=True, timeout=30, check=False)
    try:
        return list(json.loads(done.stdout))
    except ValueError:
        return []


def _write(output: Path | None, document: dict[str, Any]) -> None:
    if output is None:
        return
    draft = output.with_name(f"{output.name}.part")
    draft.write_text(json.dumps(document, indent=1) + "\n")
    draft.replace(output)


if __name__ == "__main__":
    command.run(width, "width")
