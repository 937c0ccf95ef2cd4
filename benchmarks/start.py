"""What the start of each command costs, and what a run consists of until its first timed iteration.

    python -m benchmarks.start [--blocks 5] [--only commands,iteration] [--against CHECKOUT] [--curated]

Commands that start no worker run in new processes, in random order, each once in a block: seconds of CPU (user and
system, of the command and of the programs that it waits for) and of wall-clock, and what they import. With
`--against`, another checkout of this project is measured in turns, and cells have its figure first. `--curated` stores
the tables in `results/curated`, from where `python -m tools.reference` puts them on a page. Prints Markdown.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import click

from benchmarks import command
from benchmarks.goal.bench import SETTINGS, scratch
from benchmarks.processes import ROOT, surroundings
from merge_bench.campaign.run_campaign import git_state
from merge_bench.errors import RunFailed, UsageError
from merge_bench.host import machine
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.units import format_bytes

DATA = ROOT / "tests" / "data"
CURATED = ROOT / "results" / "curated"
CAMPAIGNS = ("baseline", "run", "sweep", "tune", "p2p")
PRINTED = DATA / "commands" / "osu_bw.txt"
HEAVY = (
    "bokeh",
    "dask",
    "distributed",
    "duckdb",
    "matplotlib",
    "numba",
    "numpy",
    "pandas",
    "polars",
    "pyarrow",
    "ucxx",
)
"""Packages whose import takes 20 ms of CPU and more."""
COMMANDS: dict[str, tuple[str, ...]] = {
    "--help": ("--help",),
    "run --help": ("run", "--help"),
    "configs": ("configs",),
    "check": ("check", "tcp.cfg"),
    "doctor": ("doctor",),
    "results": ("results", "--results", "results"),
    "show": ("show", "results/run"),
    "compare": ("compare", "results/sweep"),
    "history": ("history", "results"),
    "predict": ("predict", "results/run", "--workers", "4"),
    "import": ("import", PRINTED.name, "--results", "imported"),
    "export": ("export", "results/run", "--format", "csv"),
    "report": ("report", "results/run", "--output", "report.html"),
    "submit": ("submit", "--launcher", "slurm", "--nodes", "2", "--time", "10:00"),
    "run --dry-run": ("run", "--dry-run"),
    "tune --dry-run": ("tune", "--dry-run"),
    "exec --dry-run": ("exec", "--dry-run", "--", "true"),
}
MERGE = ("run", "--chunk", "1e6", "--workers", "2", "--iterations", "5", "--warmup", "1", "--json")
_IMPORT = re.compile(r"^import time: +\d+ \| +\d+ \| +(\S+)$", re.MULTILINE)
_NAMES = {
    "processes": "Dask's processes are started",
    "scheduler": "the scheduler answers; the driver imports Dask meanwhile",
    "workers": "all workers have connected",
    "libraries": "workers import Arrow, numba, UCXX",
    "tables": "workers load compiled loops and generate rows",
    "data plane": "workers open UCX",
    "connections": "workers connect",
    "parcel writers": "the way of writing parcels is chosen",
}


@dataclass(frozen=True)
class StartCost:
    """What a command cost, in seconds: of the processors, and of wall-clock."""

    cpu: float
    wall: float


@dataclass
class Measured:
    """What was measured of one command of one checkout: its costs, and the modules that it imports."""

    costs: list[StartCost] = field(default_factory=list)
    modules: Sequence[str] = ()

    def cell(self, name: str) -> str:
        """The least value and the median of ``cpu`` or ``wall``."""
        values = [getattr(cost, name) for cost in self.costs]
        return f"{min(values):.2f}, {median(values):.2f}"

    @property
    def own_modules(self) -> int:
        """How many modules of this project were imported."""
        return sum(module.partition(".")[0] == "merge_bench" for module in self.modules)

    @property
    def heavy_packages(self) -> str:
        """The packages of `HEAVY` that were imported."""
        return ", ".join(heavy_packages(self.modules)) or "none"


def heavy_packages(modules: Sequence[str]) -> list[str]:
    """The packages of `HEAVY` among imported modules."""
    return [package for package in HEAVY if package in modules]


def imported_modules(printed: str) -> list[str]:
    """The modules that ``python -X importtime`` lists in what it `printed`."""
    return _IMPORT.findall(printed)


def start(checkout: Path, words: Sequence[str], folder: Path, *options: str) -> tuple[StartCost, str]:
    """Run a command of a checkout in `folder`; gives its cost, and what it printed on standard error.

    `options`: of Python. Raises RunFailed if the command fails.
    """
    environment = surroundings(*SETTINGS, "PYTHON") | {"PYTHONPATH": str(checkout)}
    argv = [sys.executable, *options, "-P", "-m", "merge_bench", *words]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    ended = subprocess.run(
        argv, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=600
    )
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.returncode:
        raise RunFailed(f"{' '.join(words)} ended with status {ended.returncode}: {ended.stderr.strip()[-300:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return StartCost(cpu, wall), ended.stderr


def make_results(folder: Path) -> None:
    """Put the recorded campaigns and a printed output into `folder`, for the commands that read them."""
    for name in CAMPAIGNS:
        target = folder / "results" / name
        target.mkdir(parents=True)
        shutil.copy(DATA / "campaigns" / name / "records.jsonl", target)
    shutil.copy(PRINTED, folder)


def measure_commands(checkouts: Sequence[Path], blocks: int, folder: Path) -> dict[tuple[str, Path], Measured]:
    """Measure every command of every checkout `blocks` times in turns, after once for their imports."""
    make_results(folder)
    measured = {(name, checkout): Measured() for name in COMMANDS for checkout in checkouts}
    for (name, checkout), its in measured.items():
        its.modules = imported_modules(start(checkout, COMMANDS[name], folder, "-X", "importtime")[1])
    for block in range(blocks):
        for name, checkout in command.shuffled(list(measured), 0, block):
            measured[name, checkout].costs.append(start(checkout, COMMANDS[name], folder)[0])
        command.say(f"commands: block {block + 1} of {blocks}")
    return measured


def command_rows(measured: Mapping[tuple[str, Path], Measured], checkouts: Sequence[Path]) -> list[list[str]]:
    """The rows of the table of commands; a cell has a value for each checkout."""

    def joined(name: str, show: Callable[[Measured], str]) -> str:
        return " → ".join(show(measured[name, checkout]) for checkout in checkouts)

    return [
        [
            f"`{name}`",
            joined(name, lambda its: its.cell("cpu")),
            joined(name, lambda its: its.cell("wall")),
            joined(name, lambda its: str(its.own_modules)),
            joined(name, lambda its: its.heavy_packages),
        ]
        for name in COMMANDS
    ]


def start_parts(campaign: Campaign, began: float) -> dict[str, float]:
    """What a run consists of from the start of its process, at the Unix time `began`, to its first timed iteration.

    In seconds, by name, in order, from the times and the parts in its records.
    """
    launch = campaign.launches[0]
    line, (warmup, *_), timed = (
        launch.line,
        [each for each in launch.iterations if each.warmup],
        launch.timed_iterations,
    )
    assert line is not None
    assert line.startup_seconds is not None
    launched = line.time - line.startup_seconds
    parts = {
        "the driver starts, plans and checks": campaign.head.time - began,
        "the load of this host is measured": launched - campaign.head.time,
        **{_NAMES.get(name, name): seconds for name, seconds in line.startup_parts.items()},
    }
    rest = line.startup_seconds - sum(line.startup_parts.values())
    parts["the rest of the start" if line.startup_parts else "the start, of which older records have no parts"] = rest
    parts["settings and lanes are recorded"] = warmup.time - warmup.wall_seconds - line.time
    parts["warm-up, which loads compiled loops"] = warmup.wall_seconds
    parts["the result is verified"] = timed[0].time - timed[0].wall_seconds - warmup.time
    parts["in all"] = timed[0].time - timed[0].wall_seconds - began
    return parts


def measure_merges(checkouts: Sequence[Path], blocks: int, folder: Path) -> dict[Path, list[dict[str, float]]]:
    """Run a merge of 1e6 rows with every checkout `blocks` times in turns, after once to compile; gives the parts."""
    measured: dict[Path, list[dict[str, float]]] = {checkout: [] for checkout in checkouts}
    for block in range(-1, blocks):
        for checkout in command.shuffled(list(checkouts), 0, block):
            results = folder / f"{checkouts.index(checkout)}-{block}"
            began = time.time()
            cost, _ = start(checkout, [*MERGE, "--results", str(results)], folder)
            (records,) = results.glob("*/records.jsonl")
            parts = {**start_parts(read_campaign(records), began), "CPU of all processes, to the end": cost.cpu}
            if block >= 0:
                measured[checkout].append(parts)
        command.say(f"iteration: block {block + 1} of {blocks}")
    return measured


def merge_rows(measured: Mapping[Path, Sequence[Mapping[str, float]]]) -> list[list[str]]:
    """The rows of the table of parts: medians, and in brackets the range; a column for each checkout."""
    names = dict.fromkeys(name for runs in measured.values() for parts in runs for name in parts)
    last = ("in all", "CPU of all processes, to the end")
    ordered = [*(name for name in names if name not in last), *(name for name in last if name in names)]

    def cell(values: Sequence[float]) -> str:
        return f"{median(values):.2f} ({min(values):.2f}–{max(values):.2f})" if values else "-"

    return [
        [name, *(cell([parts[name] for parts in runs if name in parts]) for runs in measured.values())]
        for name in ordered
    ]


def toml_text(values: Mapping[str, object]) -> str:
    """A flat TOML document: JSON's strings, numbers and lists are also TOML's."""

    def show(value: object) -> str:
        if isinstance(value, list) and value and isinstance(value[0], list):
            return "[\n" + "".join(f"    {json.dumps(row, ensure_ascii=False)},\n" for row in value) + "]"
        return json.dumps(value, ensure_ascii=False)

    return "".join(f"{name} = {show(value)}\n" for name, value in values.items())


def conditions(blocks: int, checkouts: Sequence[Path]) -> dict[str, str]:
    """Command, machine, date and commit of a table."""
    hardware, git = machine.describe_hardware(), git_state()
    caches = [
        f"{format_bytes(size)} of {level}"
        for size, level in ((hardware.l2_bytes, "L2"), (hardware.cache_bytes, "L3"))
        if size
    ]
    load = f"{os.getloadavg()[0]:.1f} processes ready to run when it ended"
    return {
        "command": f"python -m benchmarks.start --blocks {blocks}{' --against CHECKOUT' if len(checkouts) > 1 else ''}",
        "machine": f"{hardware.cpu_model} ({', '.join(caches)}), {hardware.cores} cores, {load}",
        "when": time.strftime("%-d %B %Y", time.gmtime()),
        "commit": ((git.commit if git else None) or "")[:8],
    }


@click.command(context_settings=command.CONTEXT)
@command.option("--blocks", click.IntRange(1), 5, "How often each command and the merge are measured.")
@command.option("--only", command.NAMES, None, "Measure only the commands, or only the iteration.")
@command.option("--against", command.FOLDER, None, "Another checkout, which is measured in turns.", metavar="CHECKOUT")
@click.option("--curated", is_flag=True, help="Store the tables in results/curated.")
def measure_start(blocks: int, only: list[str] | None, against: Path | None, curated: bool) -> None:
    """Measure the commands that start no worker, and the start of a merge."""
    wanted = command.chosen(only, ("commands", "iteration"))
    if against is not None and not (against / "merge_bench" / "cli").is_dir():
        raise UsageError(f"--against {against} is no checkout of this project")
    checkouts = [*([against.resolve()] if against is not None else []), ROOT]
    turns = " Before → after, measured in turns." if against is not None else ""
    tables = []
    with scratch() as bench:
        if "commands" in wanted:
            about = (
                "Seconds of each command in a new process: least, median. CPU is user and system time. Imports: modules"
                f" of merge_bench, and packages that load slowly.{turns}"
            )
            columns = ["command", "CPU (s)", "wall-clock (s)", "modules", "packages"]
            measured = measure_commands(checkouts, blocks, bench.folder)
            rows = command_rows(measured, checkouts)
            tables.append(("start-commands", "Start of commands", 48, about, columns, rows))
        if "iteration" in wanted:
            about = (
                "Seconds from the start of the process to the first timed iteration, 1e6 rows for each of two workers:"
                f" median, range.{' The two were measured in turns.' if against is not None else ''}"
            )
            columns = ["part", *(["before", "after"] if against is not None else ["seconds"])]
            rows = merge_rows(measure_merges(checkouts, blocks, bench.folder))
            tables.append(("start-iteration", "From start to first timed iteration", 49, about, columns, rows))
    for name, title, place, about, columns, rows in tables:
        click.echo(f"{command.table(columns, rows, markup=True)}\n")
        stored = {
            "title": title,
            "place": place,
            **conditions(blocks, checkouts),
            "about": about,
            "columns": columns,
            "rows": rows,
        }
        command.write(CURATED / f"{name}.toml" if curated else None, toml_text(stored).rstrip("\n"))


if __name__ == "__main__":
    command.run(measure_start, "start")
