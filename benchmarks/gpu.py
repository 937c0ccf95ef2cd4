"""Tests, proves and measures merge_bench on this machine's GPUs, in one command with a time limit.

    python -m benchmarks.gpu --output results
    python -m benchmarks.gpu --budget 540 --resume results/gpu-20261120T120000Z
    python -m benchmarks.gpu --show gpu-20261120T120000Z --curated gpu-h200

`docs/gpu.md` says what is done and how to read it. Exit status: 0 every step that was tried went well (skipped
ones are listed); 2 wrong usage, or no GPU; 3 a step failed, or it was interrupted; 4 a result was wrong; 5 a pair of
workers did not use CUDA IPC.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks import command
from benchmarks.on_gpu import packing, stored
from benchmarks.on_gpu.machine_state import machine_state
from benchmarks.on_gpu.plan import Asked, Machine, steps
from benchmarks.on_gpu.steps import Ended, Step, merged, run_all, status_of, still_to_do
from benchmarks.on_gpu.versus import sentence
from merge_bench.errors import UsageError
from merge_bench.host import gpu
from merge_bench.host.machine import available_memory_bytes, usable_core_count

SCHEMA = 2
AMPLE = 1.5  # times what the steps usually take: a budget in which all of them fit


def look() -> Machine:
    """The GPUs and the memory of this machine.

    Raises
    ------
    UsageError
        If there is no GPU, or no cuDF to use it with.
    """
    names = gpu.visible_gpu_names()
    if not names:
        raise UsageError("found no NVIDIA GPU: the NVIDIA management library (NVML) lists none")
    if importlib.util.find_spec("pylibcudf") is None:
        raise UsageError("this machine has a GPU, but the package cudf is missing; set up the cu12 or cu13 environment")
    known = gpu.describe_gpus()
    free = gpu.free_gpu_memory_bytes()
    mine = [index for name in names if (index := gpu.gpu_index(name)) is not None] or list(range(len(known)))
    bandwidths = [bandwidth for index in mine if (bandwidth := known[index].memory_bandwidth) is not None]
    return Machine(
        len(names),
        min(free[index] for index in mine),
        min(bandwidths) if len(bandwidths) == len(mine) else None,
        available_memory_bytes(),
        usable_core_count(),
    )


@dataclass(frozen=True)
class Site:
    """Where the command runs and what it does there: by default on this machine, all of the plan.

    `machine`: its GPUs; `state`: how they are set up, with logs in a folder; `plan`: all steps; `curated`: the folder
    of curated results. Another site can be given as the object of click's context.
    """

    machine: Callable[[], Machine] = look
    state: Callable[[Path], dict[str, Any]] = machine_state
    plan: Callable[[Machine, Asked], list[Step]] = steps
    curated: Path = stored.CURATED


@click.command(context_settings=command.CONTEXT)
@command.option(
    "--budget", click.FloatRange(10), None, "Time limit of all steps in seconds. [1.5 times their usual duration]"
)
@command.option("--output", command.FOLDER, command.ROOT / "results", "Folder for the results.")
@command.option("--resume", command.FOLDER, None, "Resume this result: run the steps that are not done yet.")
@click.option("--curated", metavar="NAME", help="Also write the summary and the table to results/curated/NAME.")
@command.option("--only", command.NAMES, None, "Run only these steps; patterns such as library* are accepted. [all]")
@command.option("--pack", command.FILE, None, "After every step, pack the result folder into this file (.tar.gz).")
@command.option("--show", command.FOLDER, None, "Show this result again, without a GPU; --curated stores it.")
@command.option("--blocks", click.IntRange(1), 3, "Number of blocks (rounds of launches) of each comparison.")
@command.SEED
@click.option("--dry-run", is_flag=True, help="Print the steps and their usual duration, and exit.")
@click.pass_obj
def on_gpus(
    site: Site | None,
    budget: float | None,
    output: Path,
    resume: Path | None,
    curated: str | None,
    only: list[str] | None,
    pack: Path | None,
    show: Path | None,
    blocks: int,
    seed: int,
    dry_run: bool,
) -> None:
    """Test and measure merge_bench on the GPUs of this machine, the most important steps first."""
    site = site or Site()
    if show is not None:
        again(show, curated, site.curated)
        return
    machine = site.machine()
    head = command.head(SCHEMA, gpus=machine.gpus, blocks=blocks, seed=seed)
    head, earlier = stored.read(resume, head) if resume else (head, [])
    place = stored.curated(curated, head, site.curated) if curated is not None else None
    everything = site.plan(machine, Asked(resume or output, blocks, seed))
    wanted = chosen(only, [step.name for step in everything])
    if dry_run:
        left = [step for step in still_to_do(everything, earlier) if step.name in wanted]
        seconds = budget or AMPLE * sum(step.seconds for step in left)
        click.echo("\n".join(f"{step.name:<20} {step.seconds:>4.0f} s  {step.what}" for step in left))
        click.echo(f"{sum(step.seconds for step in left):.0f} s in total; the budget is {seconds:.0f} s")
        return
    folder = (resume or command.new_folder(output, "gpu")).resolve()
    everything = site.plan(machine, Asked(folder, blocks, seed))
    left = [step for step in still_to_do(everything, earlier) if step.name in wanted]
    seconds = budget or AMPLE * sum(step.seconds for step in left)
    head = {"machine_state": site.state(folder / "logs"), **head}
    now: list[Ended] = []

    def note(each: Ended) -> None:
        now.append(each)
        command.say(line(each))
        write(folder, head, merged(everything, earlier, now))
        packed(folder, pack)

    status = command.until_interrupted(lambda: run_all(left, seconds, note))
    ended = merged(everything, earlier, now)
    write(folder, head, ended)
    packed(folder, pack)
    if place is not None:
        curate(folder, place, head, ended)
    click.echo(table(ended))
    click.echo(f"\n{folder}")
    sys.exit(max(status, status_of(ended)))


def chosen(only: list[str] | None, names: list[str]) -> set[str]:
    """The steps whose name matches one of the patterns; without patterns all.

    Raises
    ------
    UsageError
        If a pattern matches no step.
    """
    for pattern in only or ():
        if not fnmatch.filter(names, pattern):
            raise UsageError(f"--only {pattern} matches no step; choose from {', '.join(names)}")
    return {name for name in names if only is None or any(fnmatch.fnmatchcase(name, each) for each in only)}


def again(folder: Path, name: str | None, among: Path) -> None:
    """Print the table of a stored result, and put it `among` the curated ones if it has a name there."""
    summary = command.read(folder / stored.SUMMARY)
    try:
        ended = [Ended(**each) for each in summary["steps"]]
        head = {key: value for key, value in summary.items() if key not in ("goals", "steps", "status")}
    except (KeyError, TypeError) as error:
        raise command.damaged(folder / stored.SUMMARY, error) from None
    if name is not None:
        curate(folder, stored.curated(name, head, among), head, ended)
    click.echo(table(ended))


def curate(folder: Path, place: Path, head: dict[str, Any], ended: list[Ended]) -> None:
    """Write summary and table to the curated result, and copy the records of every merge there.

    The command line is left out, which names folders of this machine.
    """
    write(place, {name: value for name, value in head.items() if name != "argv"}, ended)
    for name in stored.copy_records(folder, place):
        command.say(f"--curated: left out {name}, which is too large")


def packed(folder: Path, target: Path | None) -> None:
    """Pack the result folder into `target`, if there is one. A failure is reported and ends nothing."""
    if target is None:
        return
    try:
        left_out = packing.pack(folder, target)
    except Exception as error:  # the next step's attempt may succeed, and the figures are on the disk
        command.say(f"--pack: {command.sentence(error)}")
        return
    if left_out:
        command.say(f"--pack: left out {', '.join(left_out[:5])}{' and more' if len(left_out) > 5 else ''}")


def line(each: Ended) -> str:
    """One step in one line."""
    return f"{each.name:<20} {each.state:<8} {each.seconds:>6.1f} s  {each.sentence}"


def table(ended: list[Ended]) -> str:
    """All steps as text, with the goals, the shares of memory bandwidth and other programs' tables below."""
    found = [line(each) for each in ended]
    goals = [(each.name, each.figures["goal"]) for each in ended if "goal" in each.figures]
    found += ["", *(f"{name}: {sentence(goal)}" for name, goal in goals)] if goals else []
    for each in ended:
        shares = each.figures.get("memory_bandwidth") or {}
        parts = [f"{phase} {value['share']:.1%}" for phase, value in shares.items() if value["share"] is not None]
        if parts:
            found += ["", f"{each.name}: share of the GPU's memory bandwidth, at least: {', '.join(parts)}"]
        if "table" in each.figures:
            found += ["", f"{each.name}: {each.figures['table']}"]
    return "\n".join(found)


def write(folder: Path, head: dict[str, Any], ended: list[Ended]) -> None:
    """Replace the summary and the table by those of what has ended so far."""
    goals = {each.name: each.figures["goal"] for each in ended if "goal" in each.figures}
    summary = {**head, "goals": goals, "steps": [asdict(each) for each in ended], "status": status_of(ended)}
    stored.write(folder, summary, table(ended))


if __name__ == "__main__":
    command.run(on_gpus, "gpu")
