"""Which launcher: the one that was asked for, or the one that the surroundings suggest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from merge_bench.errors import UsageError
from merge_bench.launch import pbs, slurm
from merge_bench.launch.base import ClusterSettings, Launcher
from merge_bench.launch.existing import ExistingCluster
from merge_bench.launch.hosts import HostSpec, read_hosts
from merge_bench.launch.local import LocalLauncher
from merge_bench.launch.remote import Reach, RemoteLauncher
from merge_bench.launch.ssh import Ssh


def choose(values: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[str, tuple[HostSpec, ...]]:
    """The launcher's name and its hosts (none for those that stay on this machine).

    auto: `existing` where a scheduler is named, ssh where hosts are, its batch system inside a job of several nodes.

    Raises
    ------
    UsageError
        If the options contradict each other, or the surroundings lack what the launcher needs.
    """
    asked, file = values["launcher"], values["hosts"]
    running = values["scheduler_address"] or values["scheduler_file"]
    if running:
        if asked not in ("auto", "existing") or file:
            raise UsageError(
                "a running cluster was named, so there is nothing to launch: leave --launcher, --hosts out"
            )
        return "existing", ()
    if asked == "existing":
        raise UsageError("--launcher existing needs --scheduler-address or --scheduler-file")
    if asked == "ssh" and not file:
        raise UsageError("--launcher ssh needs --hosts")
    if file and asked not in ("auto", "ssh"):
        raise UsageError(f"--hosts cannot go with --launcher {asked}, which finds its hosts by itself")
    if file:
        return "ssh", read_hosts(Path(str(file)))
    if asked == "slurm":
        return "slurm", slurm.allocated_hosts(environ)
    if asked == "pbs":
        return "pbs", pbs.allocated_hosts(environ)
    if asked == "auto" and int(environ.get("SLURM_JOB_NUM_NODES") or 1) > 1:
        return "slurm", slurm.allocated_hosts(environ)
    if asked == "auto" and environ.get("PBS_NODEFILE"):
        hosts = pbs.allocated_hosts(environ)
        if len(hosts) > 1:
            return "pbs", hosts
    return "local", ()


def make_launcher(settings: ClusterSettings) -> Launcher:
    """The launcher that these settings name."""
    if settings.launcher == "existing":
        return ExistingCluster()
    if settings.launcher == "local":
        return LocalLauncher()
    reaches: dict[str, type[Reach]] = {"ssh": Ssh, "slurm": slurm.Slurm, "pbs": pbs.Pbs}
    return RemoteLauncher(reaches[settings.launcher]())
