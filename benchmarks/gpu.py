"""Everything that can be proved and measured of merge_bench on this machine's GPUs, in one command with a time limit.

    python -m benchmarks.gpu --output results
    python -m benchmarks.gpu --budget 540 --resume results/gpu-20261120T120000Z

`docs/gpu.md` says what is done and how to read it. Exit status: 0 all that was tried went well (what was skipped is
said); 2 wrong usage, or no GPU; 3 a step failed, or it was interrupted; 4 a result was wrong; 5 a pair of workers did
not use CUDA IPC.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from benchmarks import command
from benchmarks.on_gpu import stored
from benchmarks.on_gpu.plan import Asked, Machine, steps
from benchmarks.on_gpu.steps import Ended, merged, run_all, status_of, still_to_do, to_json
from benchmarks.on_gpu.versus import sentence
from benchmarks.peer.children import adopt_orphans
from merge_bench.campaign.campaign import git_state
from merge_bench.errors import UsageError
from merge_bench.host import gpu
from merge_bench.host import machine as facts
from merge_bench.host.memory import available_bytes, usable_cores

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = 2
AMPLE = 1.5  # times what the steps usually take: a budget in which all of them fit


@click.command(context_settings=command.CONTEXT)
@click.option("--budget", type=click.FloatRange(10), help="Seconds for all steps. [half more than they usually take]")
@click.option("--output", type=click.Path(path_type=Path), default=ROOT / "results", help="Folder for the results.")
@click.option("--resume", type=click.Path(path_type=Path), metavar="FOLDER", help="Go on there with what is not done.")
@click.option("--curated", metavar="NAME", help="Put summary and table into results/curated/NAME as well.")
@click.option("--blocks", type=click.IntRange(1), default=3, show_default=True, help="Blocks of a comparison.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the order of launches.")
@click.option("--dry-run", is_flag=True, help="Print the steps with what they usually take, and do nothing.")
def on_gpus(
    budget: float | None, output: Path, resume: Path | None, curated: str | None, blocks: int, seed: int, dry_run: bool
) -> None:
    """Test, prove and measure merge_bench on this machine's GPUs, the most valuable first."""
    machine = look()
    head = {
        "schema": SCHEMA, "argv": sys.argv[1:], "time": time.time(), "gpus": machine.gpus, "blocks": blocks,
        "seed": seed, "git": git_state(), "versions": facts.versions(), "hardware": facts.hardware(),
    }  # fmt: skip
    head, earlier = stored.read(resume, head) if resume else (head, [])
    place = stored.curated(curated, head) if curated is not None else None
    folder = resume or (output if dry_run else stored.new_folder(output))
    everything = steps(machine, Asked(folder, blocks, seed, lambda text: click.echo(f"    {text}", err=True)))
    left = still_to_do(everything, earlier)
    seconds = budget or AMPLE * sum(step.seconds for step in left)
    if dry_run:
        click.echo("\n".join(f"{step.name:<20} {step.seconds:>4.0f} s  {step.what}" for step in left))
        click.echo(f"{sum(step.seconds for step in left):.0f} s in all, with a budget of {seconds:.0f} s")
        return
    adopt_orphans()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    now: list[Ended] = []

    def note(each: Ended) -> None:
        now.append(each)
        click.echo(line(each), err=True)
        write(folder, head, merged(everything, earlier, now))

    status = 0
    try:
        run_all(left, seconds, note)
    except KeyboardInterrupt:
        click.echo("interrupted: the table is of what there is", err=True)
        status = command.INTERRUPTED
    ended = merged(everything, earlier, now)
    for where in filter(None, (folder, place)):
        write(where, head, ended)
    click.echo(table(ended))
    click.echo(f"\n{folder}")
    sys.exit(max(status, status_of(ended)))


def look() -> Machine:
    """What is here.

    Raises
    ------
    UsageError
        If there is no GPU, or no cuDF to use it with.
    """
    names = gpu.visible_gpus()
    if not names:
        raise UsageError("no NVIDIA GPU can be seen here: NVIDIA's management library lists none")
    if importlib.util.find_spec("pylibcudf") is None:
        raise UsageError("there is a GPU, but no package cudf: set up the cu12 or cu13 stack")
    known = gpu.gpu_facts()
    free = gpu.free_bytes()
    mine = [index for name in names if (index := gpu.index_of(name)) is not None] or list(range(len(known)))
    bandwidths = [known[index]["memory_bandwidth"] for index in mine]
    return Machine(
        len(names), min(free[index] for index in mine), None if None in bandwidths else min(bandwidths),
        available_bytes(), usable_cores(),
    )  # fmt: skip


def line(each: Ended) -> str:
    """One step in one line."""
    return f"{each.name:<20} {each.state:<8} {each.seconds:>6.1f} s  {each.finding.sentence}"


def table(ended: list[Ended]) -> str:
    """All steps for people, with the goals, the shares of memory bandwidth and other programs' tables below."""
    found = [line(each) for each in ended]
    goals = [(each.name, each.finding.figures["goal"]) for each in ended if "goal" in each.finding.figures]
    found += ["", *(f"{name}: {sentence(goal)}" for name, goal in goals)] if goals else []
    for each in ended:
        shares = each.finding.figures.get("memory_bandwidth") or {}
        told = [f"{phase} {value['share']:.1%}" for phase, value in shares.items() if value["share"] is not None]
        if told:
            found += ["", f"{each.name}: at least this share of the GPU's memory bandwidth: {', '.join(told)}"]
        if "table" in each.finding.figures:
            found += ["", f"{each.name}: {each.finding.figures['table']}"]
    return "\n".join(found)


def write(folder: Path, head: dict[str, Any], ended: list[Ended]) -> None:
    """Replace the summary and the table by those of what has ended so far."""
    goals = {each.name: each.finding.figures["goal"] for each in ended if "goal" in each.finding.figures}
    summary = {**head, "goals": goals, "steps": [to_json(each) for each in ended], "status": status_of(ended)}
    stored.write(folder, summary, table(ended))


if __name__ == "__main__":
    command.run(on_gpus, "gpu")
