"""What a launcher declares of itself, for options, help and checks; light, as each call of the program imports it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from merge_bench.cluster.base import ClusterSettings, Launcher
    from merge_bench.cluster.hosts import HostSpec

Reach: TypeAlias = "Callable[[HostSpec, Sequence[str], ClusterSettings], tuple[str, ...]]"
"""The command line, here, that runs a command on a host, its standard input and output connected to ours."""


@dataclass(frozen=True)
class Batch:
    """A batch system that runs jobs.

    `title`: its name for people; `command`: what takes a job's script on standard input; `file`: what the script is
    called; `template`: the script in jinja2, of a `submit.Job` as ``job``, and ``file``, ``folder``, ``command``,
    ``made_by``; `storage`: whether a job names the file systems that it needs.
    """

    title: str
    command: str
    file: str
    template: str
    storage: bool = False


def _nowhere(environ: Mapping[str, str]) -> bool:
    return False


def _no_hosts(values: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[HostSpec, ...]:
    return ()


@dataclass(frozen=True)
class LauncherKind:
    """What a file in `launchers/` declares of its launcher.

    Attributes
    ----------
    name, help
        As ``--launcher`` takes it, and one line of what it does.
    place
        In lists, among the others.
    auto
        When ``--launcher auto`` takes it, for the option's help; empty: nothing is said there.
    needs
        Options, by their keys, of which it needs one. ``auto`` takes it where one of them is given.
    inside
        Whether, by the environment, this process is within what it works in, such as a job of several nodes. ``auto``
        takes it there.
    hosts
        Where workers run, from the options and the environment; () stands for this machine, or for a running cluster.
        Raises UsageError.
    starts_here
        Processes run on this machine alone: it can be looked at before they are started.
    owns_processes
        Whether processes are started, watched and ended; False: the cluster runs already.
    mpirun_finds_hosts
        Whether Open MPI's mpirun reaches the hosts by itself; otherwise it is given ssh.
    make
        Makes the launcher; None where `reach` does.
    reach
        How a command is run on a host; a guard then starts the processes there (see `remote`).
    batch
        The batch system, where ``submit`` makes jobs for it.
    """

    name: str
    help: str
    place: int = 100
    auto: str = ""
    needs: tuple[str, ...] = ()
    inside: Callable[[Mapping[str, str]], bool] = _nowhere
    hosts: Callable[[Mapping[str, Any], Mapping[str, str]], tuple[HostSpec, ...]] = _no_hosts
    starts_here: bool = False
    owns_processes: bool = True
    mpirun_finds_hosts: bool = False
    make: Callable[[], Launcher] | None = None
    reach: Reach | None = None
    batch: Batch | None = None
