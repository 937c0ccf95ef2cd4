"""Batch jobs: the script that asks SLURM or PBS for nodes and runs a merge on them.

It calls `run-cluster.sh` where the package lies in a checkout, and else the Python that the package is installed in.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from merge_bench.cluster.kind import Batch
from merge_bench.cluster.launchers import launchers
from merge_bench.config.installation import checkout, search_path
from merge_bench.errors import RunFailed, UsageError

CORES_PER_GPU = 12  # as in the 2022 job: 192 cores beside 16 GPUs
REPOSITORY, HERE = "the repository's folder", "the folder that results are to go to"
# One word of a batch system's language: nothing that begins a new line or option.
_WORD = re.compile(r"[A-Za-z0-9_./+:=@,-]+")
_TIME = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{2})")


@dataclass(frozen=True)
class Job:
    """What is asked for. `time`: as ``HH:MM:SS``; `storage`: for a batch system where jobs name it."""

    nodes: int
    gpus_per_node: int
    time: str
    cores_per_node: int | None = None
    account: str | None = None
    queue: str | None = None
    storage: str | None = None
    modules: tuple[str, ...] = ()

    @property
    def workers_per_node(self) -> int:
        """One a GPU; one where there is none."""
        return self.gpus_per_node or 1


def batches() -> dict[str, Batch]:
    """The batch systems that jobs are made for, by the name of their launcher."""
    return {name: kind.batch for name, kind in launchers().items() if kind.batch is not None}


def with_storage() -> list[str]:
    """The batch systems whose jobs name the file systems that they need."""
    return [batch.title for batch in batches().values() if batch.storage]


def make_job(
    *, nodes: int, gpus_per_node: int, time: str, cores_per_node: int | None, account: str | None, queue: str | None,
    storage: str | None, modules: Sequence[str],
) -> Job:  # fmt: skip
    """Check what a person asked for.

    Raises
    ------
    UsageError
        Naming the option that is wrong.
    """
    match = _TIME.fullmatch(time)
    if match is None or int(match[3]) > 59:
        raise UsageError(f"--time {time} is not MM:SS or HH:MM:SS")
    minutes = 60 * int(match[1] or 0) + int(match[2])
    words = {"--account": account, "--queue": queue, "--storage": storage}
    for option, word in (*words.items(), *(("--module", module) for module in modules)):
        if word is not None and not _WORD.fullmatch(word):
            raise UsageError(f"{option} {word!r} has characters that no batch system takes there")
    if cores_per_node is None and gpus_per_node:
        cores_per_node = CORES_PER_GPU * gpus_per_node
    return Job(
        nodes, gpus_per_node, f"{minutes // 60:02}:{minutes % 60:02}:{match[3]}", cores_per_node, account, queue,
        storage, tuple(modules),
    )  # fmt: skip


def render(launcher: str, job: Job, config: str | None, options: Sequence[str], typed: Sequence[str]) -> str:
    """The script. `options` go to the merge as they are; `typed` is what was asked for, word for word.

    Raises
    ------
    UsageError
        If the batch system has no such option, or a word would begin a line of its own in the script.
    """
    import jinja2

    batch = batches()[launcher]
    if job.storage and not batch.storage:
        raise UsageError(f"--storage is an option of {' and '.join(with_storage())}; {batch.title} has none")
    for word in typed:
        if not word.isprintable():
            raise UsageError(f"{word!r} has line breaks or other control characters, which no job script takes")
    # Text, not HTML: what is filled in was checked above or is quoted for the shell below.
    templates = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        autoescape=False,
    )  # fmt: skip
    return templates.from_string(batch.template).render(
        job=job, file=batch.file, folder=HERE if checkout() is None else REPOSITORY,
        command=shlex.join([*_program(config), "--launcher", launcher, *options]),
        made_by=shlex.join(["merge-bench", "submit", *typed]),
    )  # fmt: skip


def _program(config: str | None) -> list[str]:
    """What runs a merge under `config`, from the folder that the job was submitted from."""
    if checkout() is not None:
        return ["./run-cluster.sh", *([config] if config else [])]
    # -P: a file in that folder must not pass for one of Python's modules.
    python = [sys.executable, "-P", "-m", "merge_bench", "run", *(["--config", config] if config else [])]
    path = [f"{name}={value}" for name, value in search_path({}).items()]
    return ["env", *path, *python] if path else python


def submit(launcher: str, script: str) -> str:
    """Hand the script to the batch system, from the folder it is made for; gives its answer, with the job's number.

    Raises
    ------
    UsageError
        If the batch system is not here.
    RunFailed
        If it refuses the job.
    """
    import subprocess

    command = batches()[launcher].command
    try:
        done = subprocess.run([command], input=script, capture_output=True, text=True, cwd=checkout(), timeout=60)
    except FileNotFoundError as error:
        raise UsageError(f"--now: there is no {command} on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"{command} gave no answer for 60 s") from error
    if done.returncode:
        raise RunFailed(f"{command} refused the job: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()
