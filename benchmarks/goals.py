"""Measures the speed goals of this project again on this machine: goal, measured value, spread, met or not.

    python -m benchmarks.goals --blocks 3 --output results/goals/PROCESSOR.json

`docs/performance.md` says how each is measured. Exit status: 0 all that was measured is met; 1 a goal is not met; 2
wrong usage; 3 something could not be measured, or it was interrupted.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks import command
from benchmarks.goal import measures, tables, targets
from benchmarks.goal.bench import Bench, scratch
from benchmarks.goal.measures import Measure
from benchmarks.goal.targets import Result
from merge_bench.errors import UsageError

SCHEMA = 1
MISSED, UNMEASURED = 1, 3
HEADINGS = ("goal", "target", "measured", "spread", "met", "how")

MEASURES: tuple[Measure, ...] = (
    Measure(
        "shared-memory",
        (targets.SHARED_MEMORY, targets.CHECK_SHARED_MEMORY, targets.MEMORY),
        40,
        measures.shared_memory,
    ),
    Measure("tcp", (targets.TCP, targets.CHECK_TCP), 25, measures.shaped_tcp),
    Measure("slow-link", (targets.OVERLAP,), 25, measures.slow_link),
    Measure("fast-link", (targets.FAST_LINK,), 10, measures.fast_link),
    Measure("in-one-process", (targets.POLARS, targets.DUCKDB), 50, measures.in_one_process),
    Measure("dask", (targets.DASK,), 115, measures.dask),
    *(
        Measure(keys.name, tables.TARGETS[keys], seconds, functools.partial(tables.against_libraries, keys=keys))
        for keys, seconds in ((tables.STRINGS, 135), (tables.COLUMNS, 70))
    ),
    Measure("linear", (targets.LINEAR,), 90, measures.linear),
    Measure("launch", (targets.LAUNCH,), 12, measures.launch),
    Measure("help", (targets.HELP,), 3, measures.show_help),
)


def chosen(names: Sequence[str] | None) -> list[Measure]:
    """The measures of these names, or of the goals of these names; all without any.

    Raises
    ------
    UsageError
        If there is no such measure or goal.
    """
    of = {one: {one.name, *(target.name for target in one.targets)} for one in MEASURES}
    wanted = command.chosen(names, sorted(set().union(*of.values())))
    return [one for one, known_as in of.items() if known_as & wanted]


class Running:
    """Measures in blocks. `found`: the results so far, in order, by the target's name."""

    def __init__(self, wanted: Sequence[Measure]) -> None:
        self.wanted = wanted
        self.found = {target.name: Result(target) for one in wanted for target in one.targets}

    def block(self, number: int, seed: int, limit: float) -> None:
        """Every measure once, in an order drawn from `seed` and the block's number."""
        for one in command.shuffled(self.wanted, seed, number):
            command.say(f"block {number + 1}: {one.name}")
            began = time.monotonic()
            with scratch(limit, seed + number) as bench:
                self._measure(one, bench)
            command.say(f"    {time.monotonic() - began:.0f} s")

    def _measure(self, one: Measure, bench: Bench) -> None:
        results = [self.found[target.name] for target in one.targets]
        try:
            found: Mapping[str, float] = one.do(bench)
        except Exception as error:
            command.say(f"    failed: {command.sentence(error)}")
            for result in results:
                result.fail(command.sentence(error))
            return
        for result in results:
            target = result.target
            details = bench.details.get(target.name, {})
            if target.name in found:
                result.values.append(float(found[target.name]))
                result.details.append(details)
                command.say(f"    {target.what}: {found[target.name]:.3g}{target.unit} (goal {target.shown})")
            else:
                result.fail(details.get(measures.NOT_MEASURED, "not measured in this run"))


def others(document: Mapping[str, Any], wanted: Sequence[Measure]) -> list[dict[str, Any]]:
    """What a file holds of goals that `wanted` does not measure, each with the head of its own file."""
    head = {name: value for name, value in document.items() if name != "goals"}
    names = {target.name for one in wanted for target in one.targets}
    return [{"run": head, **goal} for goal in document["goals"] if goal["goal"] not in names]


def in_order(goals: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """In the order of `MEASURES`; goals that are no more come last."""
    places = {target.name: place for place, target in enumerate(t for one in MEASURES for t in one.targets)}
    return sorted(goals, key=lambda goal: places.get(goal["goal"], len(places)))


def markdown(results: Sequence[Result]) -> str:
    """A table: goal, measured, spread, met."""
    rows = []
    for result in results:
        target, spread = result.target, result.spread
        if spread is None:
            cells = ("-", "-", " ".join("; ".join(result.failures).split()) or "not measured")
        else:
            of = f"{100 * spread.coverage:.0f} %" if spread.coverage else f"of {spread.blocks}"
            met = ("yes" if result.met else "no") + ("" if result.sure else ", within the spread")
            cells = (
                f"{spread.median:.3g}{target.unit}"
                + (f", limited by the {target.or_limited_by}" if result.instead else ""),
                f"{spread.low:.3g}–{spread.high:.3g} ({of})" if spread.blocks > 1 else "1 block",
                met + (f", {len(result.failures)} failed" if result.failures else ""),
            )
        rows.append((target.what, target.shown, *cells, target.how))
    return command.table(HEADINGS, rows, text=(0, 4, 5), markup=True)


@click.command(context_settings=command.CONTEXT)
@command.option("--blocks", click.IntRange(1), 3, "Number of blocks; each block measures everything once.")
@command.option("--only", command.NAMES, None, "Only these goals or measures. [all]")
@command.option("--output", command.FILE, None, "Write the results to this file.", metavar="FILE.json")
@click.option("--add", is_flag=True, help="Keep the results in the --output file of goals that are not measured now.")
@command.SHOW
@command.time_limit(900)
@command.SEED
@click.option("--dry-run", is_flag=True, help="Print the planned measurements and their usual duration, and exit.")
def goals(
    blocks: int,
    only: list[str] | None,
    output: Path | None,
    add: bool,
    show: Path | None,
    time_limit: float,
    seed: int,
    dry_run: bool,
) -> None:
    """Measure the speed goals of this project in blocks, and report which goals are met."""
    if show is not None:
        _end(_read(show))
    wanted = chosen(only)
    if dry_run:
        for one in wanted:
            click.echo(f"{one.name:<16} {one.seconds:>4.0f} s  {', '.join(target.name for target in one.targets)}")
        click.echo(f"about {blocks * sum(one.seconds for one in wanted) / 60:.0f} minutes for {blocks} blocks")
        return
    if add and output is None:
        raise UsageError("--add needs --output FILE.json, the file to add to")
    before = others(_read(output), wanted) if add and output is not None and output.exists() else []
    running = Running(wanted)
    document = command.head(SCHEMA, blocks=blocks, seed=seed, goals=in_order(before))

    def keep() -> None:
        document["goals"] = in_order([*before, *(each.to_json() for each in running.found.values())])
        command.write(output, document)

    def measure() -> None:
        for number in range(blocks):
            running.block(number, seed, time_limit)
            keep()

    status = command.until_interrupted(measure)
    keep()
    _end(document, status)


def _end(document: dict[str, Any], status: int = 0) -> None:
    results = [Result.from_json(each) for each in document["goals"]]
    table = markdown(results)
    click.echo(table)
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
            Result.from_json(each)
    except (KeyError, TypeError) as error:
        raise command.damaged(path, error) from None
    return document


if __name__ == "__main__":
    command.run(goals, "goals")
