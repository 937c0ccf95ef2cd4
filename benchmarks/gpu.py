"""Everything that can be proved and measured of merge_bench on this machine's GPUs, in one command with a time limit.

    python -m benchmarks.gpu --budget 540 --output results

`docs/gpu.md` says what is done and how to read it. Exit status: 0 all that was tried went well (what was skipped is
said); 2 wrong usage, or no GPU; 3 a step failed, or it was interrupted; 4 a result was wrong; 5 a pair of workers did
not use CUDA IPC.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from benchmarks import command
from benchmarks.on_gpu.plan import Asked, Machine, steps
from benchmarks.on_gpu.steps import Ended, run_all, status_of
from benchmarks.peer.children import adopt_orphans
from merge_bench import facts, gpu
from merge_bench.campaign import git_state
from merge_bench.errors import UsageError
from merge_bench.memory import available_bytes, usable_cores

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = 1


@click.command(context_settings=command.CONTEXT)
@click.option("--budget", type=click.FloatRange(10), default=540, show_default=True, help="Seconds for all steps.")
@click.option("--output", type=click.Path(path_type=Path), default=ROOT / "results", help="Folder for the results.")
@click.option("--blocks", type=click.IntRange(1), default=3, show_default=True, help="Blocks of a comparison.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the order of launches.")
@click.option("--dry-run", is_flag=True, help="Print the steps with what they usually take, and do nothing.")
def on_gpus(budget: float, output: Path, blocks: int, seed: int, dry_run: bool) -> None:
    """Test, prove and measure merge_bench on this machine's GPUs, the most important first."""
    machine = look()
    if dry_run:
        planned = steps(machine, Asked(output, blocks, seed, click.echo))
        click.echo("\n".join(f"{step.name:<20} {step.seconds:>4.0f} s  {step.what}" for step in planned))
        return
    adopt_orphans()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    folder = _folder(output)
    head = {
        "schema": SCHEMA, "argv": sys.argv[1:], "time": time.time(), "budget": budget, "git": git_state(),
        "versions": facts.versions(), "hardware": facts.hardware(),
    }  # fmt: skip
    ended: list[Ended] = []

    def note(each: Ended) -> None:
        ended.append(each)
        click.echo(line(each), err=True)
        write(folder, head, ended)

    status = 0
    try:
        run_all(
            steps(machine, Asked(folder, blocks, seed, lambda text: click.echo(f"    {text}", err=True))), budget, note
        )
    except KeyboardInterrupt:
        click.echo("interrupted: the table is of what there is", err=True)
        status = command.INTERRUPTED
    write(folder, head, ended)
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
    mine = [int(name) for name in names if name.isdigit() and int(name) < len(known)] or list(range(len(known)))
    bandwidths = [known[index]["memory_bandwidth"] for index in mine]
    return Machine(
        len(names), min(free[index] for index in mine), None if None in bandwidths else min(bandwidths),
        available_bytes(), usable_cores(),
    )  # fmt: skip


def line(each: Ended) -> str:
    """One step in one line."""
    return f"{each.name:<20} {each.state:<8} {each.seconds:>6.1f} s  {each.finding.sentence}"


def table(ended: list[Ended]) -> str:
    """All steps for people, with the shares of memory bandwidth and other programs' tables below."""
    found = [line(each) for each in ended]
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
    summary = {
        **head,
        "steps": [
            {
                "name": each.name, "what": each.what, "state": each.state, "seconds": each.seconds,
                "sentence": each.finding.sentence, "status": each.finding.status, "figures": each.finding.figures,
            }
            for each in ended
        ],
        "status": status_of(ended),
    }  # fmt: skip
    for name, text in (("summary.json", json.dumps(summary, indent=1)), ("table.txt", table(ended))):
        draft = folder / f"{name}.part"
        draft.write_text(f"{text}\n")
        draft.replace(folder / name)


def _folder(output: Path) -> Path:
    stamp, number = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), 1
    while True:
        folder = output / (f"gpu-{stamp}" if number == 1 else f"gpu-{stamp}-{number}")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            number += 1


if __name__ == "__main__":
    command.run(on_gpus, "gpu")
