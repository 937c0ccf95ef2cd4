"""The pbs launcher: the hosts of a job's node file, reached with ssh, as sites set it up between a job's nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from merge_bench.cluster.base import BatchSystem, LauncherKind
from merge_bench.cluster.hosts import HostSpec, is_host_name
from merge_bench.cluster.launchers.ssh import ssh_command
from merge_bench.config.files import read_regular
from merge_bench.errors import UsageError

DIRECTIVES = """\
#PBS -N merge-bench
#PBS -l select={{ job.nodes }}
{%- if job.cores_per_node %}:ncpus={{ job.cores_per_node }}{% endif %}
{%- if job.gpus_per_node %}:ngpus={{ job.gpus_per_node }}{% endif -%}
:mpiprocs={{ job.workers_per_node }}
#PBS -l place=scatter:excl
#PBS -l walltime={{ job.time }}
{% if job.account %}
#PBS -A {{ job.account }}
{% endif %}
{% if job.queue %}
#PBS -q {{ job.queue }}
{% endif %}
{% if job.storage %}
#PBS -l storage={{ job.storage }}
{% endif %}
#PBS -j oe
"""


def allocated_hosts(environ: Mapping[str, str]) -> tuple[HostSpec, ...]:
    """Return the hosts of the PBS job, with as many slots as the file ``PBS_NODEFILE`` has lines for each.

    Raises UsageError if this process does not run inside a job, or the node file cannot be read.
    """
    file = environ.get("PBS_NODEFILE")
    if not file:
        raise UsageError("this is not inside a PBS job (PBS_NODEFILE is not set); use merge-bench submit")
    try:
        slots = Counter(read_regular(file).decode().split())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise UsageError(f"PBS_NODEFILE={file}: {reason}") from None
    except UsageError as error:
        raise UsageError(f"PBS_NODEFILE: {error}") from None
    if not slots:
        raise UsageError(f"PBS_NODEFILE={file} lists no host")
    if wrong := next((name for name in slots if not is_host_name(name)), None):
        raise UsageError(f"PBS_NODEFILE={file}: {wrong[:60]!r} is not a host name")
    return tuple(HostSpec(name, slots=number) for name, number in slots.items())


def _is_inside_pbs_job(environ: Mapping[str, str]) -> bool:
    """Return whether this process is in a PBS job of several hosts, or in one whose node file is damaged."""
    try:
        return bool(environ.get("PBS_NODEFILE")) and len(allocated_hosts(environ)) > 1
    except UsageError:  # `allocated_hosts` says why
        return True


LAUNCHER = LauncherKind(
    name="pbs",
    help="The hosts of a PBS job's node file, reached with the OpenSSH client.",
    place=4,
    auto="the batch system inside a job on several nodes",
    inside=_is_inside_pbs_job,
    variables=("PBS_NODEFILE",),
    hosts=lambda options, environ: allocated_hosts(environ),
    reach=ssh_command,
    batch=BatchSystem("PBS", "qsub", "pbs.qsub", DIRECTIVES, "PBS_O_WORKDIR", storage=True),
)
