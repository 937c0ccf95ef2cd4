"""How launch time grows with the number of workers: tiny merges in test hosts, or on this machine alone.

    python -m benchmarks.launch_scale [--workers 8,16,32,64] [--hosts 4 | --hosts 0] [--output FILE.md]

Every run starts the workers, connects all to all, merges, verifies, and stops. Needs root for test hosts; with
`--hosts 0` the local launcher is measured. Prints a table in Markdown.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from benchmarks import command
from benchmarks.goal.bench import Bench, need_hosts, scratch
from merge_bench.errors import RunFailed
from merge_bench.units import parse_count
from tests.hosts.make_hosts import Hosts

HEADINGS = ("Workers", "Hosts", "Start to connected (s)", "Merges and checks (s)", "Stop (s)", "In all (s)", "Verified")


def measure(bench: Bench, workers: int, hosts: Hosts | None, rows: int) -> list[str]:
    """One run's row of the table."""
    try:
        ran = bench.merge(
            workers=workers, chunk=rows, iterations=3, link_rounds=0, timeout=120, start_timeout=400, hosts=hosts
        )
    except RunFailed as error:
        return [str(workers), *["-"] * 5, f"no: {error}"]
    (launch,) = ran.campaign.launches
    assert launch.line is not None
    assert launch.end is not None
    verified = max(check.time for check in launch.verifications)
    seconds = (launch.line.startup_seconds or 0.0, verified - launch.line.time, launch.end.time - verified, ran.seconds)
    count = len({worker.host for worker in launch.line.workers})
    return [str(workers), str(count), *(f"{value:.1f}" for value in seconds), "yes"]


@click.command(context_settings=command.CONTEXT)
@command.option("--workers", command.listed("N", parse_count), "8,16,32,64", "Numbers of workers to measure.")
@command.option("--hosts", click.IntRange(0), 4, "Number of test hosts; 0 uses this machine.")
@command.option("--rows", click.IntRange(1), 10_000, "Rows per chunk.")
@command.option("--output", command.FILE, None, "Also write the table to this file.", metavar="FILE.md")
def launch_scale(workers: list[int], hosts: int, rows: int, output: Path | None) -> None:
    """Measure the launch time for each number of workers, the smallest first."""
    if hosts:
        need_hosts()
    found: list[list[str]] = []
    with scratch() as bench, Hosts(hosts, None) if hosts else contextlib.nullcontext() as made:
        for count in sorted(workers):
            found.append(measure(bench, count, made, rows))
            command.say(" ".join(found[-1]))
    table = command.table(HEADINGS, found, text=())
    click.echo(table)
    command.write(output, table)


if __name__ == "__main__":
    command.run(launch_scale, "launch_scale")
