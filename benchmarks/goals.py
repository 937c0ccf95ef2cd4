"""Measures the speed goals of this project again on this machine: goal, measured value, spread, met or not.

    python -m benchmarks.goals --blocks 3 --output results/goals/last.json --readme

`docs/goals.md` says how each is measured. Exit status: 0 all that was measured is met; 1 a goal is not met; 2 wrong
usage; 3 something could not be measured, or it was interrupted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from benchmarks import command
from benchmarks.goal.running import Running, chosen, from_json, in_order, markdown, others, to_json
from benchmarks.goal.targets import Result
from benchmarks.processes import adopt_orphans
from merge_bench.errors import UsageError

SCHEMA = 1
MISSED, UNMEASURED = 1, 3


@click.command(context_settings=command.CONTEXT)
@click.option("--blocks", type=click.IntRange(1), default=3, show_default=True, help="How often to measure everything.")
@click.option("--only", type=command.NAMES, default="", help="Only these goals or measures. [all]")
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE.json", help="Write the results to this file.")
@click.option("--add", is_flag=True, help="Keep what the --output file holds about goals that are not measured now.")
@command.SHOW
@click.option("--readme", is_flag=True, help="Put the table between the markers in README.md.")
@click.option("--time-limit", type=click.FloatRange(1), default=900, show_default=True, help="Seconds for one run.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the tables and the order.")
@click.option("--dry-run", is_flag=True, help="Print what would be measured and how long it usually takes.")
def goals(
    blocks: int, only: list[str], output: Path | None, add: bool, show: Path | None, readme: bool, time_limit: float,
    seed: int, dry_run: bool,
) -> None:  # fmt: skip
    """Measure the speed goals of this project in blocks, and say which are met."""
    if show is not None:
        _end(_read(show), readme, 0)
    wanted = chosen(only)
    if dry_run:
        for one in wanted:
            click.echo(f"{one.name:<16} {one.seconds:>4.0f} s  {', '.join(target.name for target in one.targets)}")
        click.echo(f"about {blocks * sum(one.seconds for one in wanted) / 60:.0f} minutes for {blocks} blocks")
        return
    if add and output is None:
        raise UsageError("--add needs --output FILE.json, the file to add to")
    before = others(_read(output), wanted) if add and output is not None and output.exists() else []
    adopt_orphans()
    running = Running(wanted, command.say)
    document = command.head(SCHEMA, blocks=blocks, seed=seed, goals=in_order(before))
    status = 0
    try:
        for number in range(blocks):
            running.block(number, seed, time_limit)
            document["goals"] = in_order([*before, *map(to_json, running.results())])
            command.write(output, document)
    except KeyboardInterrupt:
        command.say(command.PARTIAL)
        status = command.INTERRUPTED
        document["goals"] = in_order([*before, *map(to_json, running.results())])
        command.write(output, document)
    _end(document, readme, status)


def _end(document: dict[str, Any], readme: bool, status: int) -> None:
    results = [from_json(each) for each in document["goals"]]
    table = markdown(results)
    click.echo(table)
    if readme:
        command.update_page(command.ROOT / "README.md", table, "goals")
    sys.exit(max(status, status_of(results)))


def status_of(results: list[Result]) -> int:
    """The exit status: what could not be measured counts before what is not met."""
    if any(result.met is None or result.failures for result in results):
        return UNMEASURED
    return MISSED if any(not result.met for result in results) else 0


def _read(path: Path) -> dict[str, Any]:
    document = command.read(path)
    try:
        for each in document["goals"]:
            from_json(each)
    except (KeyError, TypeError) as error:
        raise command.damaged(path, error) from None
    return document


if __name__ == "__main__":
    command.run(goals, "goals")
