"""What every launcher offers, and the commands it is made of."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from merge_bench.cluster.hosts import HostSpec
from merge_bench.merge.plan import Plan


@dataclass(frozen=True)
class Command:
    """One process to start: `environment` holds only what is set beyond the surroundings."""

    role: str
    host: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    def shown(self) -> str:
        """The command as a person would type it."""
        assignments = " ".join(f"{name}={shlex.quote(value)}" for name, value in sorted(self.environment.items()))
        return f"{assignments} {shlex.join(self.argv)}".strip()


@dataclass(frozen=True)
class Exited:
    """A process that ended on its own: `status` is its exit status, or the negative signal number.

    None: its host is out of reach, so nobody knows. `log_tail`: the last lines of its log.
    """

    role: str
    host: str
    pid: int
    status: int | None
    log_tail: str

    @property
    def how(self) -> str:
        """The end of a sentence that begins with who it was."""
        if self.status is None:
            return "is out of reach, as the connection to its host ended"
        return f"was killed by signal {-self.status}" if self.status < 0 else f"ended with status {self.status}"


@dataclass(frozen=True)
class Caution:
    """Something about the hosts that will spoil the numbers, with what to do about it."""

    code: str
    message: str
    remedy: str


@dataclass(frozen=True)
class ClusterSettings:
    """What a launcher needs beside the plan.

    `environment`: the config's variables, for scheduler and workers. `gpus`: of this host, 0 without. `hosts`: where
    workers run, for launchers that reach other hosts. `counted`: workers that a running cluster had, where the
    plan takes their number from it.
    """

    environment: Mapping[str, str]
    results: Path
    gpus: int = 0
    workers_per_gpu: int = 1
    rmm_pool_bytes: int | None = None
    interface: str | None = None
    launcher: str = "local"
    hosts: tuple[HostSpec, ...] = ()
    ssh_config: str | None = None
    scheduler_address: str | None = None
    scheduler_file: str | None = None
    counted: int | None = None
    start_timeout: float = 60.0
    dask_dashboard: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Access:
    """How a client reaches the scheduler."""

    address: str | None = None
    scheduler_file: Path | None = None
    tls: Mapping[str, str] = field(default_factory=dict)


class Launcher(Protocol):
    """Brings up one cluster, tells who died, and takes down what it started."""

    name: str
    owns_processes: bool

    def commands(self, plan: Plan, settings: ClusterSettings) -> list[Command]:
        """Exactly what `start` would start."""

    def start(self, plan: Plan, settings: ClusterSettings, logs: Path, prefix: str) -> Access:
        """Start everything without waiting; logs go to `logs` under names beginning with `prefix`."""

    def placed(self) -> Mapping[str, str]:
        """The host of each process that was started, by role (``scheduler``, ``worker-0``…)."""

    def cautions(self, settings: ClusterSettings) -> list[Caution]:
        """What the hosts told at `start` that the run's records must say."""

    def exited(self) -> list[Exited]:
        """Processes that ended on their own since `start`."""

    def tail(self, role: str) -> str:
        """The last lines of a process's log, empty where they cannot be had."""

    def stop(self) -> None:
        """End every process that `start` started."""
