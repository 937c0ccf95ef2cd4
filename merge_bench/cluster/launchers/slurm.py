"""The slurm launcher: inside an allocation, one `srun` step on each of its nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from merge_bench.cluster.base import Batch, ClusterSettings, LauncherKind
from merge_bench.cluster.hosts import HostSpec
from merge_bench.errors import UsageError

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


def srun(host: HostSpec, command: Sequence[str], settings: ClusterSettings) -> tuple[str, ...]:
    """``srun … --nodelist HOST COMMAND``, with all of the node's cores and GPUs.

    Steps share the allocation's resources with each other; only SLURM's own variables reach the nodes.
    """
    return (
        "srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={host.name}", "--export=NONE", "--mem=0",
        "--cpu-bind=none", "--kill-on-bad-exit=0", "--unbuffered", "--quiet", "--job-name=merge-bench",
        *command,
    )  # fmt: skip


def allocated_hosts(environ: Mapping[str, str]) -> tuple[HostSpec, ...]:
    """The nodes of the allocation that this process runs in, with their tasks and GPUs as far as SLURM gives them.

    Raises
    ------
    UsageError
        If this process does not run inside an allocation, or ``scontrol`` fails.
    """
    nodes = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    if "SLURM_JOB_ID" not in environ or not nodes:
        raise UsageError("--launcher slurm works only inside a SLURM allocation; use salloc or merge-bench submit")
    import subprocess

    try:
        names = subprocess.run(
            ["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, timeout=30, check=True
        ).stdout.split()
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"--launcher slurm: scontrol show hostnames {nodes} failed: {error}") from error
    gpus = _gpus(environ)
    slots = _repeated(environ.get("SLURM_TASKS_PER_NODE", ""))
    if gpus is not None or len(slots) != len(names):
        return tuple(HostSpec(name, gpus=gpus) for name in names)
    return tuple(HostSpec(name, slots=number) for name, number in zip(names, slots, strict=True))


def _gpus(environ: Mapping[str, str]) -> int | None:
    """Number of GPUs of a node, given as ``4``, or with their type as ``a100:4``."""
    text = environ.get("SLURM_GPUS_ON_NODE") or environ.get("SLURM_GPUS_PER_NODE") or ""
    numbers = re.findall(r"(?:^|[:,])(\d+)(?=$|,|\()", text)
    return sum(map(int, numbers)) if numbers else None


def _repeated(text: str) -> list[int]:
    """``4(x2),1`` → [4, 4, 1]."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            return []
        found += [int(match[1])] * int(match[2] or 1)
    return found


LAUNCHER = LauncherKind(
    name="slurm",
    help="The nodes of a SLURM allocation, reached with srun.",
    place=3,
    auto="the batch system inside a job on several nodes",
    inside=lambda environ: int(environ.get("SLURM_JOB_NUM_NODES") or 1) > 1,
    hosts=lambda values, environ: allocated_hosts(environ),
    mpirun_finds_hosts=True,  # with srun
    reach=srun,
    batch=Batch("SLURM", "sbatch", "slurm.sbatch", DIRECTIVES, "SLURM_SUBMIT_DIR"),
)
