"""The slurm launcher: inside an allocation, one `srun` step on each of its nodes."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Mapping, Sequence

from merge_bench.cluster.base import Batch, ClusterSettings, LauncherKind
from merge_bench.cluster.hosts import HostSpec, is_host_name
from merge_bench.errors import UsageError, first_line

DIRECTIVES = """\
#SBATCH --job-name=merge-bench
#SBATCH --nodes={{ job.nodes }}
#SBATCH --ntasks-per-node={{ job.workers_per_node }}
{% if job.cores_per_node %}
#SBATCH --cpus-per-task={{ job.cores_per_node // job.workers_per_node }}
{% endif %}
{% if job.gpus_per_node %}
#SBATCH --gpus-per-node={{ job.gpus_per_node }}
{% endif %}
#SBATCH --time={{ job.time }}
{% if job.account %}
#SBATCH --account={{ job.account }}
{% endif %}
{% if job.queue %}
#SBATCH --partition={{ job.queue }}
{% endif %}
#SBATCH --output=merge-bench-%j.out
"""

_SRUN = shlex.split(
    "srun --overlap --nodes=1 --ntasks=1 --export=NONE --mem=0 --cpu-bind=none --kill-on-bad-exit=0 --unbuffered"
    " --quiet --job-name=merge-bench"
)


def srun(host: HostSpec, command: Sequence[str], settings: ClusterSettings) -> tuple[str, ...]:
    """``srun … --nodelist HOST COMMAND``, with all of the node's cores and GPUs.

    Steps share the allocation's resources with each other; only SLURM's own variables reach the nodes.
    """
    return (*_SRUN, f"--nodelist={host.name}", *command)


def allocated_hosts(environ: Mapping[str, str]) -> tuple[HostSpec, ...]:
    """The nodes of the allocation that this process runs in, with their tasks and GPUs as far as SLURM gives them.

    Raises UsageError if this process does not run inside an allocation, or ``scontrol`` fails.
    """
    nodes = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    if not environ.get("SLURM_JOB_ID") or not nodes:
        missing = "SLURM_JOB_NODELIST" if environ.get("SLURM_JOB_ID") else "SLURM_JOB_ID"
        raise UsageError(
            f"this is not inside a SLURM allocation ({missing} is not set); use salloc or merge-bench submit"
        )
    names, problem = _expand_node_list(nodes, environ.get("PATH"))
    if problem:
        raise UsageError(f"scontrol show hostnames {nodes} failed: {problem}")
    gpus = _gpus_per_node(environ)
    slots = _tasks_per_node(environ.get("SLURM_TASKS_PER_NODE", ""), len(names))
    if gpus is not None or len(slots) != len(names):
        return tuple(HostSpec(name, gpus=gpus) for name in names)
    return tuple(HostSpec(name, slots=number) for name, number in zip(names, slots, strict=True))


@functools.cache
def _expand_node_list(nodes: str, path: str | None) -> tuple[tuple[str, ...], str]:
    """The host names in a list such as ``node[01-03]``, and why there are none; `path`: the ``PATH`` for scontrol."""
    import subprocess

    try:
        done = subprocess.run(
            ["scontrol", "show", "hostnames", nodes],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=False,
        )
    except FileNotFoundError:
        return (), "there is no scontrol on the PATH"
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return (), first_line(error)
    names = tuple(done.stdout.split())
    if done.returncode != 0 or not names or not all(map(is_host_name, names)):
        complaint = " ".join(done.stderr.split())
        return (), complaint or f"status {done.returncode}, and no host names"
    return names, ""


def _gpus_per_node(environ: Mapping[str, str]) -> int | None:
    """Number of GPUs of a node, given as ``4``, or with their type as ``a100:4``."""
    text = environ.get("SLURM_GPUS_ON_NODE") or environ.get("SLURM_GPUS_PER_NODE") or ""
    numbers = re.findall(r"(?:^|[:,])(\d{1,4})(?=$|,|\()", text)
    return sum(map(int, numbers)) if numbers else None


def _tasks_per_node(text: str, nodes: int) -> list[int]:
    """The number of tasks on each of `nodes` nodes: ``4(x2),1`` → [4, 4, 1]; [] if the text has another form."""
    counts: list[int] = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"([1-9]\d{0,3})(?:\(x(\d{1,6})\))?", part)
        if match is None or int(match[2] or 1) > nodes:
            return []
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _inside_job(environ: Mapping[str, str]) -> bool:
    """Whether SLURM's variables are those of a job of several nodes; an impossible number of nodes counts, too."""
    nodes = environ.get("SLURM_JOB_NUM_NODES") or environ.get("SLURM_NNODES") or "1"
    return nodes.strip() != "1"


LAUNCHER = LauncherKind(
    name="slurm",
    help="The nodes of a SLURM allocation, reached with srun.",
    place=3,
    auto="the batch system inside a job on several nodes",
    inside=_inside_job,
    variables=("SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_ID"),
    hosts=lambda options, environ: allocated_hosts(environ),
    mpirun_finds_hosts=True,  # with srun
    reach=srun,
    batch=Batch("SLURM", "sbatch", "slurm.sbatch", DIRECTIVES, "SLURM_SUBMIT_DIR"),
)
