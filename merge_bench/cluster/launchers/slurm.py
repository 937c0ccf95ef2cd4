"""The slurm launcher: inside an allocation, one `srun` step on each of its nodes."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shlex
from collections.abc import Mapping, Sequence

from merge_bench.cluster.base import BatchSystem, ClusterSettings, LauncherKind
from merge_bench.cluster.hosts import HostSpec, expand_host_list, is_host_name, split_host_list
from merge_bench.errors import UsageError, first_message_line

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


# srun takes a job's options from these variables as options of a step, which has one task on one node: it would get one
# GPU of `--gpus-per-task=1`, and could not have all GPUs of a job on several nodes.
_STEP_OPTIONS = tuple(
    """
    SLURM_GPUS SLURM_GPUS_PER_NODE SLURM_GPUS_PER_SOCKET SLURM_GPUS_PER_TASK SLURM_GPU_BIND SLURM_GRES SLURM_STEP_GRES
    SLURM_NTASKS_PER_GPU SLURM_NTASKS_PER_TRES SLURM_TRES_BIND SLURM_TRES_PER_TASK SLURM_CPUS_PER_GPU SLURM_MEM_PER_GPU
    """.split()  # noqa: SIM905
)


def srun_command(host: HostSpec, command: Sequence[str], settings: ClusterSettings) -> tuple[str, ...]:
    """Return ``srun … --nodelist HOST COMMAND``, with all cores of the node, and all GPUs that the job has there.

    Steps share the allocation's resources with each other; only SLURM's own variables reach the nodes.
    """
    unset = [f"--unset={name}" for name in _STEP_OPTIONS if name in os.environ]
    gpus = (f"--gpus={host.gpus}",) if host.gpus and not host.assumed else ()
    return (*(("env", *unset) if unset else ()), *_SRUN, *gpus, f"--nodelist={host.name}", *command)


def allocated_hosts(environ: Mapping[str, str]) -> tuple[HostSpec, ...]:
    """Return the hosts of the SLURM job that this process runs in, with their numbers of tasks and GPUs if known.

    Raises UsageError if this process does not run inside an allocation, or ``scontrol`` fails.
    """
    nodes = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    job = environ.get("SLURM_JOB_ID")
    if not job or not nodes:
        missing = "SLURM_JOB_NODELIST" if job else "SLURM_JOB_ID"
        outside = f"this is not inside a SLURM allocation ({missing} is not set)"
        raise UsageError(f"{outside}; use salloc or merge-bench submit")
    names, problem = _expand_node_list(nodes, environ.get("PATH"))
    if problem:
        raise UsageError(f"scontrol show hostnames {nodes} failed: {problem}")
    slots = _parse_tasks_per_node(environ.get("SLURM_TASKS_PER_NODE", ""), len(names))
    gpus = _gpu_counts_by_node(environ, names, slots, _scontrol_job_text(job, environ.get("PATH")))
    if gpus is not None:
        return tuple(HostSpec(name, gpus=number) for name, number in zip(names, gpus, strict=True))
    if len(slots) != len(names):
        return tuple(HostSpec(name) for name in names)
    return tuple(HostSpec(name, slots=number) for name, number in zip(names, slots, strict=True))


@functools.cache
def _expand_node_list(nodes: str, search_path: str | None) -> tuple[tuple[str, ...], str]:
    """Return the host names in a list such as ``node[01-03]``, and an error text if there are none.

    `search_path`: the ``PATH`` for scontrol.
    """
    text, problem = _run_scontrol("show", "hostnames", nodes)
    names = tuple(text.split())
    if not problem and (not names or not all(map(is_host_name, names))):
        problem = "status 0, and no host names"
    return ((), problem) if problem else (names, "")


@functools.cache
def _scontrol_job_text(job: str, search_path: str | None) -> str:
    """Return what ``scontrol`` prints about a job in detail; empty if it fails.

    `search_path`: the ``PATH`` for scontrol.
    """
    return _run_scontrol("--details", "show", "job", job)[0] if job.isdecimal() else ""


def _run_scontrol(*words: str) -> tuple[str, str]:
    """Run ``scontrol``, and return what it prints and an error text, which is empty if it succeeds."""
    import subprocess

    try:
        done = subprocess.run(["scontrol", *words], capture_output=True, text=True, errors="replace", timeout=30)
    except FileNotFoundError:
        return "", "there is no scontrol on the PATH"
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return "", first_message_line(error)
    if done.returncode != 0:
        return "", " ".join(done.stderr.split()) or f"status {done.returncode}"
    return done.stdout, ""


def _gpu_counts_by_node(
    environ: Mapping[str, str], node_names: Sequence[str], tasks_by_node: Sequence[int], job_text: str
) -> list[int] | None:
    """Return the number of GPUs that the job has on each of its nodes; None if there are none, or it is unknown.

    `job_text`: what ``scontrol`` prints about the job, which has these numbers for every form of the job's options. If
    it is empty, the job's environment variables count, and nodes are assumed to be alike. `tasks_by_node`: the number
    of tasks of each node, [] if unknown.
    """
    allocated = _parse_allocated_gpus(job_text)
    if allocated:
        return [allocated.get(name, 0) for name in node_names]
    each_node = _parse_gpu_count(environ.get("SLURM_GPUS_PER_NODE"))
    each_task = _parse_gpu_count(environ.get("SLURM_GPUS_PER_TASK")) or _parse_gpu_count(
        environ.get("SLURM_TRES_PER_TASK")
    )
    if each_node is None and each_task is not None and len(tasks_by_node) == len(node_names):
        return [each_task * number for number in tasks_by_node]
    number = each_node or _parse_gpu_count(environ.get("SLURM_GPUS_ON_NODE"))
    total = _parse_gpu_count(environ.get("SLURM_GPUS"))
    if number is None and total is not None and total % len(node_names) == 0:
        number = total // len(node_names)
    return None if number is None else [number] * len(node_names)


def _parse_allocated_gpus(job_text: str) -> dict[str, int]:
    """Return the number of GPUs by node, from lines ``Nodes=n[1-2] … GRES=gpu:a100:4(IDX:0-3)`` of ``scontrol``."""
    from merge_bench.host.kernel_files import parse_core_list

    def count_gpus_of_entry(words: str, indexes: str) -> int:
        last = words.rpartition(":")[2]
        return int(last) if last.isdecimal() and len(last) < 5 else len(parse_core_list(indexes))

    gpus: dict[str, int] = {}
    for match in re.finditer(r"^\s*Nodes=(\S+) .*\bGRES(?:_IDX)?=(\S+)", job_text, re.MULTILINE):
        entries = re.findall(r"(?<!\w)gpu((?::[^:,()]+)*)(?:\(IDX:([^)]*)\))?", match[2])
        with contextlib.suppress(ValueError):  # not a list of names or indexes
            count = sum(count_gpus_of_entry(*entry) for entry in entries)
            for part in split_host_list(match[1]):
                gpus |= dict.fromkeys(expand_host_list(part), count)
    return gpus if any(gpus.values()) else {}


def _parse_gpu_count(text: str | None) -> int | None:
    """Return the number of GPUs in ``4``, ``a100:4``, ``a100:2,v100:2``, ``cpu=8,gres/gpu=1`` or ``gres:gpu:1``."""
    parts = [part for part in (text or "").split(",") if "=" not in part or "gpu" in part]
    numbers = [match[1] for part in parts if (match := re.search(r"(?:^|[:=])(\d{1,4})(?:\(.*)?$", part))]
    return sum(map(int, numbers)) if numbers else None


def _parse_tasks_per_node(text: str, node_count: int) -> list[int]:
    """Return the number of tasks on each of `node_count` nodes: ``4(x2),1`` → [4, 4, 1]; [] for another form."""
    counts: list[int] = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"([1-9]\d{0,3})(?:\(x(\d{1,6})\))?", part)
        if match is None or int(match[2] or 1) > node_count:
            return []
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _is_inside_slurm_job(environ: Mapping[str, str]) -> bool:
    """Return whether SLURM's variables are those of a job with several nodes, or have an impossible number of nodes."""
    nodes = environ.get("SLURM_JOB_NUM_NODES") or environ.get("SLURM_NNODES") or "1"
    return nodes.strip() != "1"


LAUNCHER = LauncherKind(
    name="slurm",
    help="The nodes of a SLURM allocation, reached with srun.",
    place=3,
    auto="the batch system inside a job on several nodes",
    inside=_is_inside_slurm_job,
    variables=("SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_ID"),
    hosts=lambda options, environ: allocated_hosts(environ),
    mpirun_finds_hosts=True,  # with srun
    reach=srun_command,
    batch=BatchSystem("SLURM", "sbatch", "slurm.sbatch", DIRECTIVES, "SLURM_SUBMIT_DIR"),
)
