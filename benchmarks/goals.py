"""The speed goals of this project measured again on this machine: goal, measured value, spread, met or not.

    python -m benchmarks.goals --blocks 3 --output results/goals/last.json --readme

`docs/goals.md` says how each is measured. Exit status: 0 all that was measured is met; 1 a goal is not met; 2 wrong
usage; 3 something could not be measured, or it was interrupted.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from benchmarks import command
from benchmarks.goal.running import Running, chosen, from_json, in_order, markdown, others, put_between, to_json
from benchmarks.goal.targets import Result
from benchmarks.peer.children import adopt_orphans
from merge_bench.campaign.campaign import git_state
from merge_bench.errors import UsageError
from merge_bench.host import machine

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = 1
MISSED, UNMEASURED = 1, 3


@click.command(context_settings=command.CONTEXT)
@click.option("--blocks", type=click.IntRange(1), default=3, show_default=True, help="Times that all is measured.")
@click.option("--only", default="", metavar="NAME[,NAME]", help="Only these goals or measures. [all]")
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE.json", help="Write the results here.")
@click.option("--add", is_flag=True, help="Keep what --output holds of goals that are not measured now.")
@click.option("--show", type=click.Path(path_type=Path), metavar="FILE.json", help="Measure nothing: show these.")
@click.option("--readme", is_flag=True, help="Put the table between the markers in README.md.")
@click.option("--time-limit", type=click.FloatRange(1), default=900, show_default=True, help="Seconds for one run.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the tables and of the order.")
@click.option("--dry-run", is_flag=True, help="Print what would be measured and how long it usually takes.")
def goals(
    blocks: int, only: str, output: Path | None, add: bool, show: Path | None, readme: bool, time_limit: float,
    seed: int, dry_run: bool,
) -> None:  # fmt: skip
    """Measure what the goals of this project's speed are about, in blocks, and say which are met."""
    if show is not None:
        _end(_read(show)["goals"], readme, 0)
    wanted = chosen([name.strip() for name in only.split(",") if name.strip()])
    if dry_run:
        for one in wanted:
            click.echo(f"{one.name:<16} {one.seconds:>4.0f} s  {', '.join(target.name for target in one.targets)}")
        click.echo(f"about {blocks * sum(one.seconds for one in wanted) / 60:.0f} minutes for {blocks} blocks")
        return
    if add and output is None:
        raise UsageError("--add needs --output FILE.json, which it adds to")
    before = others(_read(output), wanted) if add and output is not None and output.exists() else []
    adopt_orphans()
    running = Running(wanted, lambda line: click.echo(line, err=True))
    head = {
        "schema": SCHEMA, "argv": sys.argv[1:], "time": time.time(), "blocks": blocks, "seed": seed, "git": git_state(),
        "versions": machine.versions(), "hardware": machine.hardware(), "load_average": os.getloadavg(),
    }  # fmt: skip
    status = 0
    try:
        for number in range(blocks):
            running.block(number, seed, time_limit)
            _write(output, head, in_order([*before, *map(to_json, running.results())]))
    except KeyboardInterrupt:
        click.echo("interrupted: the table is of what there is", err=True)
        status = command.INTERRUPTED
    found = in_order([*before, *map(to_json, running.results())])
    _write(output, head, found)
    _end(found, readme, status)


def _end(found: list[dict[str, Any]], readme: bool, status: int) -> None:
    results = [from_json(each) for each in found]
    table = markdown(results)
    click.echo(table)
    if readme:
        path = ROOT / "README.md"
        path.write_text(put_between(path.read_text(), table))
    sys.exit(max(status, status_of(results)))


def status_of(results: list[Result]) -> int:
    """The exit status: what could not be measured before what is not met."""
    if any(result.met is None or result.failures for result in results):
        return UNMEASURED
    return MISSED if any(not result.met for result in results) else 0


def _write(output: Path | None, head: dict[str, Any], found: list[dict[str, Any]]) -> None:
    if output is None:
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    draft = output.with_name(f"{output.name}.part")
    draft.write_text(json.dumps({**head, "goals": found}, indent=1) + "\n")
    draft.replace(output)


def _read(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        for each in document["goals"]:
            from_json(each)
        return document
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} holds no results of this command: {type(error).__name__}: {error}") from None


if __name__ == "__main__":
    command.run(goals, "goals")
