"""Tests, proves and measures merge_bench on this machine's GPUs, in one command with a time limit.

    python -m benchmarks.gpu --output results
    python -m benchmarks.gpu --budget 540 --resume results/gpu-20261120T120000Z

`docs/gpu.md` says what is done and how to read it. Exit status: 0 every step that was tried went well (skipped
ones are listed); 2 wrong usage, or no GPU; 3 a step failed, or it was interrupted; 4 a result was wrong; 5 a pair of
workers did not use CUDA IPC.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from benchmarks import command
from benchmarks.on_gpu import stored
from benchmarks.on_gpu.plan import Asked, Machine, steps
from benchmarks.on_gpu.steps import Ended, merged, run_all, status_of, still_to_do
from benchmarks.on_gpu.versus import sentence
from merge_bench.errors import UsageError
from merge_bench.host import gpu
from merge_bench.host.memory import available_bytes, usable_cores

SCHEMA = 2
AMPLE = 1.5  # times what the steps usually take: a budget in which all of them fit


@click.command(context_settings=command.CONTEXT)
@command.option(
    "--budget", click.FloatRange(10), None, "Time limit of all steps in seconds. [1.5 times their usual duration]"
)
@command.option("--output", command.FOLDER, command.ROOT / "results", "Folder for the results.")
@command.option("--resume", command.FOLDER, None, "Resume this result: run the steps that are not done yet.")
@click.option("--curated", metavar="NAME", help="Also write the summary and the table to results/curated/NAME.")
@command.option("--blocks", click.IntRange(1), 3, "Number of blocks (rounds of launches) of each comparison.")
@command.SEED
@click.option("--dry-run", is_flag=True, help="Print the steps and their usual duration, and exit.")
def on_gpus(
    budget: float | None, output: Path, resume: Path | None, curated: str | None, blocks: int, seed: int, dry_run: bool
) -> None:
    """Test and measure merge_bench on the GPUs of this machine, the most important steps first."""
    machine = look()
    head = command.head(SCHEMA, gpus=machine.gpus, blocks=blocks, seed=seed)
    head, earlier = stored.read(resume, head) if resume else (head, [])
    place = stored.curated(curated, head) if curated is not None else None
    folder = resume or (output if dry_run else command.new_folder(output, "gpu"))
    everything = steps(machine, Asked(folder, blocks, seed))
    left = still_to_do(everything, earlier)
    seconds = budget or AMPLE * sum(step.seconds for step in left)
    if dry_run:
        click.echo("\n".join(f"{step.name:<20} {step.seconds:>4.0f} s  {step.what}" for step in left))
        click.echo(f"{sum(step.seconds for step in left):.0f} s in total; the budget is {seconds:.0f} s")
        return
    now: list[Ended] = []

    def note(each: Ended) -> None:
        now.append(each)
        command.say(line(each))
        write(folder, head, merged(everything, earlier, now))

    status = command.until_interrupted(lambda: run_all(left, seconds, note))
    ended = merged(everything, earlier, now)
    for where in filter(None, (folder, place)):
        write(where, head, ended)
    click.echo(table(ended))
    click.echo(f"\n{folder}")
    sys.exit(max(status, status_of(ended)))


def look() -> Machine:
    """The GPUs and the memory of this machine.

    Raises
    ------
    UsageError
        If there is no GPU, or no cuDF to use it with.
    """
    names = gpu.visible_gpus()
    if not names:
        raise UsageError("found no NVIDIA GPU: the NVIDIA management library (NVML) lists none")
    if importlib.util.find_spec("pylibcudf") is None:
        raise UsageError("this machine has a GPU, but the package cudf is missing; set up the cu12 or cu13 environment")
    known = gpu.gpu_facts()
    free = gpu.free_bytes()
    mine = [index for name in names if (index := gpu.gpu_index(name)) is not None] or list(range(len(known)))
    bandwidths = [bandwidth for index in mine if (bandwidth := known[index].memory_bandwidth) is not None]
    return Machine(
        len(names), min(free[index] for index in mine), min(bandwidths) if len(bandwidths) == len(mine) else None,
        available_bytes(), usable_cores(),
    )  # fmt: skip


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
