"""The pbs launcher: the hosts of a job's node file, reached with ssh, as sites set it up between a job's nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from merge_bench.errors import UsageError
from merge_bench.launch.hosts import HostSpec
from merge_bench.launch.ssh import Ssh


class Pbs(Ssh):
    """ssh to the job's own nodes."""

    name = "pbs"


def allocated_hosts(environ: Mapping[str, str]) -> tuple[HostSpec, ...]:
    """The hosts of ``PBS_NODEFILE``; it names a host once for each of its processes.

    Raises
    ------
    UsageError
        If this is no job, or its node file cannot be read.
    """
    file = environ.get("PBS_NODEFILE")
    if not file:
        raise UsageError("--launcher pbs runs inside a job, where PBS_NODEFILE is set; see merge-bench submit")
    try:
        slots = Counter(Path(file).read_text().split())
    except OSError as error:
        raise UsageError(f"--launcher pbs: PBS_NODEFILE {file}: {error.strerror}") from error
    if not slots:
        raise UsageError(f"--launcher pbs: PBS_NODEFILE {file} names no host")
    return tuple(HostSpec(name, slots=number) for name, number in slots.items())
