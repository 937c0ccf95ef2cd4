"""Batch jobs: the script that asks SLURM or PBS for nodes and runs a merge on them.

The script calls `run-cluster.sh` if this package is a checkout, and otherwise the Python that the package is installed
in.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from merge_bench.cluster.launchers import batch_systems, systems_with_storage_option
from merge_bench.config.installation import checkout_folder, python_path_variables
from merge_bench.errors import RunFailed, UsageError

CORES_PER_GPU = 12  # as in the 2022 job: 192 cores and 16 GPUs
REPOSITORY, HERE = "the repository's folder", "the folder for results"
# One word of a batch system's language: nothing that begins a new line or option.
_WORD = re.compile(r"[A-Za-z0-9_./+:=@,-]+")
_TIME = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{2})")
_HEAD = """\
#!/usr/bin/env bash
# Made by: {{ made_by }}
# Submit it from {{ folder }}: {{ batch.command }} {{ batch.file }}
"""
_REST = """\
set -euo pipefail
cd "${{ batch.folder }}"
{% for module in job.modules %}
module load {{ module }}
{% endfor %}
{{ command }}
"""


@dataclass
class BatchJob:
    """The options of a batch job, such as nodes, GPUs and time limit; raises UsageError if one is wrong.

    `time`: the time limit, kept as ``HH:MM:SS``.
    """

    nodes: int
    gpus_per_node: int
    time: str
    cores_per_node: int | None
    account: str | None
    queue: str | None
    storage: str | None
    modules: tuple[str, ...]

    def __post_init__(self) -> None:
        match = _TIME.fullmatch(self.time)
        if match is None or int(match[3]) > 59:
            raise UsageError(f"--time {self.time} is not MM:SS or HH:MM:SS")
        minutes = 60 * int(match[1] or 0) + int(match[2])
        self.time = f"{minutes // 60:02}:{minutes % 60:02}:{match[3]}"
        words = {"--account": self.account, "--queue": self.queue, "--storage": self.storage}
        for option, word in (*words.items(), *(("--module", module) for module in self.modules)):
            if word is not None and not _WORD.fullmatch(word):
                raise UsageError(f"{option} {word!r} has invalid characters; use only letters, digits and _./+:=@,-")
        if self.cores_per_node is None and self.gpus_per_node:
            self.cores_per_node = CORES_PER_GPU * self.gpus_per_node

    @property
    def workers_per_node(self) -> int:
        """The number of workers on a node: one per GPU, or one if it has no GPU."""
        return self.gpus_per_node or 1


def batch_script_text(
    launcher: str, job: BatchJob, config: str | None, merge_options: Sequence[str], submit_arguments: Sequence[str]
) -> str:
    """Return the text of a batch script that runs a merge.

    `merge_options`: the options of the merge; `submit_arguments`: the words that the user typed after ``submit``.
    Raises UsageError if the batch system does not have an option, or a word would begin a line of its own in the
    script.
    """
    import jinja2

    batch = batch_systems()[launcher]
    if job.storage and not batch.storage:
        able = " and ".join(systems_with_storage_option())
        raise UsageError(f"--storage works only with {able}; {batch.title} has no such option")
    for word in submit_arguments:
        if not word.isprintable():
            raise UsageError(f"{word!r} contains a line break or another control character; remove it")
    # Text, not HTML: what is filled in was checked above or is quoted for the shell below.
    strict = jinja2.StrictUndefined
    templates = jinja2.Environment(
        undefined=strict, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, autoescape=False
    )
    folder, made_by = (
        HERE if checkout_folder() is None else REPOSITORY,
        shlex.join(["merge-bench", "submit", *submit_arguments]),
    )
    command = shlex.join([*_merge_command(config), "--launcher", launcher, *merge_options])
    template = templates.from_string(_HEAD + batch.directives + _REST)
    return template.render(job=job, batch=batch, folder=folder, command=command, made_by=made_by)


def _merge_command(config: str | None) -> list[str]:
    """Return the command that runs a merge under `config` in the folder from which the job was submitted."""
    if checkout_folder() is not None:
        return ["./run-cluster.sh", *([config] if config else [])]
    # -P: Python must not import modules from that folder.
    python = [sys.executable, "-P", "-m", "merge_bench", "run", *(["--config", config] if config else [])]
    path = [f"{name}={value}" for name, value in python_path_variables({}).items()]
    return ["env", *path, *python] if path else python


def submit_batch_script(launcher: str, script: str) -> str:
    """Submit the text of a batch script, and return the batch system's answer, which has the job's number.

    Raises UsageError if this machine does not have the batch system; RunFailed if it refuses the job.
    """
    import subprocess

    command = batch_systems()[launcher].command
    try:
        done = subprocess.run(
            [command], input=script, capture_output=True, text=True, cwd=checkout_folder(), timeout=60
        )
    except FileNotFoundError as error:
        raise UsageError(f"--now needs {command}, which is not on the PATH of this machine") from error
    except subprocess.TimeoutExpired as error:
        slow = f"{command} did not answer within 60 s, but may have submitted the job"
        raise RunFailed(f"{slow}; check the queue before you submit again") from error
    if done.returncode:
        raise RunFailed(f"{command} refused the job: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()
