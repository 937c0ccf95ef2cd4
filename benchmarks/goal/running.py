"""Runs all measures in turn, in blocks, and makes the table; a measure that fails does not stop the others."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import command
from benchmarks.goal import measures, tables, targets
from benchmarks.goal.bench import Bench, scratch
from benchmarks.goal.measures import Measure
from benchmarks.goal.targets import Result, Target, judge

HEADINGS = ("goal", "to be", "measured", "spread", "met", "how")

MEASURES: tuple[Measure, ...] = (
    Measure(
        "shared-memory", (targets.SHARED_MEMORY, targets.CHECK_SHARED_MEMORY, targets.MEMORY), 40,
        measures.shared_memory,
    ),
    Measure("tcp", (targets.TCP, targets.CHECK_TCP), 25, measures.shaped_tcp),
    Measure("slow-link", (targets.OVERLAP,), 25, measures.slow_link),
    Measure("fast-link", (targets.FAST_LINK,), 10, measures.fast_link),
    Measure("in-one-process", (targets.POLARS, targets.DUCKDB), 50, measures.in_one_process),
    Measure("dask", (targets.DASK,), 115, measures.dask),
    Measure(
        "strings", (targets.STRING_POLARS, targets.STRING_DUCKDB), 135,
        functools.partial(tables.against_libraries, keys=tables.STRINGS),
    ),
    Measure(
        "columns", (targets.COLUMNS_POLARS, targets.COLUMNS_DUCKDB), 70,
        functools.partial(tables.against_libraries, keys=tables.COLUMNS),
    ),
    Measure("linear", (targets.LINEAR,), 90, measures.linear),
    Measure("launch", (targets.LAUNCH,), 12, measures.launch),
    Measure("help", (targets.HELP,), 3, measures.show_help),
)  # fmt: skip


def chosen(names: Sequence[str], known: Sequence[Measure] = MEASURES) -> list[Measure]:
    """The measures of these names, or of the goals of these names; all without any.

    Raises
    ------
    UsageError
        If there is no such measure or goal.
    """
    of = {one.name: {one.name, *(target.name for target in one.targets)} for one in known}
    wanted = command.chosen(names, sorted({name for known_as in of.values() for name in known_as}))
    return [one for one in known if of[one.name] & wanted]


class Running:
    """What has been measured so far: values, what was found beside each, and failures, by target."""

    def __init__(self, wanted: Sequence[Measure], say: Callable[[str], None]) -> None:
        self.wanted, self.say = wanted, say
        self.values: dict[str, list[float]] = {target.name: [] for target in self.targets}
        self.details: dict[str, list[Mapping[str, Any]]] = {target.name: [] for target in self.targets}
        self.failures: dict[str, list[str]] = {target.name: [] for target in self.targets}

    @property
    def targets(self) -> list[Target]:
        """The goals, in order."""
        return [target for one in self.wanted for target in one.targets]

    def block(self, number: int, seed: int, limit: float) -> None:
        """Every measure once, in an order drawn from `seed` and the block's number."""
        order = list(self.wanted)
        random.Random(f"{seed}/{number}").shuffle(order)
        for one in order:
            self.say(f"block {number + 1}: {one.name}")
            began = time.monotonic()
            with scratch() as folder:
                self._measure(one, Bench(folder, limit, seed + number))
            self.say(f"    {time.monotonic() - began:.0f} s")

    def _measure(self, one: Measure, bench: Bench) -> None:
        try:
            found: Mapping[str, float] = one.do(bench)
        except Exception as error:
            self.say(f"    failed: {command.sentence(error)}")
            for target in one.targets:
                self.failures[target.name].append(command.sentence(error))
            return
        for target in one.targets:
            if target.name in found:
                self.values[target.name].append(float(found[target.name]))
                self.details[target.name].append(bench.details.get(target.name, {}))
                self.say(f"    {target.what}: {found[target.name]:.3g}{target.unit} (goal {target.shown})")
            else:
                reason = bench.details.get(target.name, {}).get(measures.NOT_MEASURED)
                self.failures[target.name].append(reason or "it was not measured in this run")

    def results(self) -> list[Result]:
        """The results so far."""
        return [
            judge(target, self.values[target.name], self.failures[target.name], self.details[target.name])
            for target in self.targets
        ]


def to_json(result: Result) -> dict[str, Any]:
    """One goal as plain data."""
    target, spread = result.target, result.spread
    found = {name: getattr(spread, name, None) for name in ("low", "high", "coverage")}
    return {
        "goal": target.name, "what": target.what, "how": target.how, "least": target.least, "most": target.most,
        "unit": target.unit, "or_limited_by": target.or_limited_by, "value": spread and spread.median, **found,
        "values": list(result.values), "met": result.met, "sure": result.sure, "failures": list(result.failures),
        "details": list(result.details),
    }  # fmt: skip


def others(document: Mapping[str, Any], wanted: Sequence[Measure]) -> list[dict[str, Any]]:
    """What a file holds of goals that `wanted` does not measure, each with the head of its own file."""
    head = {name: value for name, value in document.items() if name != "goals"}
    names = {target.name for one in wanted for target in one.targets}
    return [{"run": head, **goal} for goal in document["goals"] if goal["goal"] not in names]


def in_order(goals: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """In the order of `MEASURES`; goals that are no more come last."""
    places = {target.name: place for place, target in enumerate(t for one in MEASURES for t in one.targets)}
    return sorted(goals, key=lambda goal: places.get(goal["goal"], len(places)))


def from_json(data: Mapping[str, Any]) -> Result:
    """What `to_json` wrote."""
    target = Target(
        data["goal"], data["what"], data["how"], data["least"], data["most"], data["unit"], data.get("or_limited_by")
    )
    return judge(target, data["values"], data["failures"], data.get("details", ()))


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
                f"{spread.median:.3g}{target.unit}" + (f", {target.or_limited_by} named" if result.instead else ""),
                f"{spread.low:.3g}–{spread.high:.3g} ({of})" if spread.blocks > 1 else "1 block",
                met + (f", {len(result.failures)} failed" if result.failures else ""),
            )
        rows.append((target.what, target.shown, *cells, target.how))
    return command.table(HEADINGS, rows, text=(0, 4, 5), markup=True)
