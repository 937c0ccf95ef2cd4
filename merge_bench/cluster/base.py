"""What every launcher declares and offers. The command line imports this module for its help, so it imports little."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from merge_bench.cluster import signals, supervisor
from merge_bench.cluster.hosts import HostSpec
from merge_bench.config.options import ClusterOptions
from merge_bench.errors import WarningMessage

if TYPE_CHECKING:
    from merge_bench.merge.plan import Plan

SCHEDULER_FILE = "scheduler.json"
START_DASK = (sys.executable, "-P", "-m", "merge_bench.cluster.start_dask")
FORK = "fork"
"""The first argument of `start_dask` for several processes in place of one."""


class ProcessCommand(NamedTuple):
    """The command line of one process to start, with its role, host, environment variables and cores.

    `environment`: only variables that are set in addition to the environment of the starting process. `cores`: the
    cores that it may run on; by default those of the starting process.
    """

    role: str
    host: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = MappingProxyType({})
    cores: Sequence[int] = ()

    def format_shell_command(self) -> str:
        """Return the command as one line for a shell, preceded by assignments of its environment variables."""
        assignments = " ".join(f"{name}={shlex.quote(value)}" for name, value in sorted(self.environment.items()))
        return f"{assignments} {shlex.join(self.argv)}".strip()


class CommandListing:
    """The lines of ``--dry-run`` for the processes of several runs, with each command and each environment once."""

    def __init__(self) -> None:
        self._titles: dict[str, str] = {}
        self._environments: dict[tuple[tuple[str, str], ...], str] = {}

    def command_lines(self, command: ProcessCommand, run_name: str = "") -> list[str]:
        """Return a line with role and host, and unless an equal command was listed before, one with the command.

        `run_name`: the run that the process belongs to, if there are several.
        """
        title = f"{command.role} on {command.host}{f' for {run_name}' if run_name else ''}"
        line, environment = command.format_shell_command(), tuple(sorted(command.environment.items()))
        if (listed := self._titles.setdefault(line, title)) != title:
            return [f"# {title}: the command of {listed}"]
        if not environment or (listed := self._environments.setdefault(environment, title)) == title:
            return [f"# {title}", line]
        return [f"# {title}, with the environment of {listed}", shlex.join(command.argv)]


class EndedProcess(NamedTuple):
    """A process of the cluster that ended on its own.

    `status`: its exit status, or the negative signal number; None if its host cannot be reached.
    """

    role: str
    host: str
    pid: int
    status: int | None
    log_tail: str

    @property
    def process_end_text(self) -> str:
        """How the process ended, as a predicate for messages such as ``ended with status 1``."""
        return (
            "cannot be reached: the connection to its host closed"
            if self.status is None
            else exit_status_text(self.status)
        )


def exit_status_text(exit_status: int) -> str:
    """Describe an exit status, or a negative signal number, as a predicate such as ``was killed by signal 9``."""
    return f"was killed by signal {-exit_status}" if exit_status < 0 else f"ended with status {exit_status}"


@dataclass(frozen=True)
class ClusterSettings:
    """The settings of a cluster that a launcher needs in addition to the plan of the merge.

    `environment`: the config's variables, for scheduler and workers. `gpus`: number of GPUs of this host. `hosts`:
    where workers run, for launchers that reach other hosts. `counted`: number of workers of a running cluster, if the
    plan took its number of workers from there. `ucx`: UCX's settings that the launcher itself chooses
    (`dask_commands.default_ucx_settings`). `ucx_origin`: the UCX that processes load, ``wheel``, ``system`` or the
    folder of a UCX; None: that of this process's environment.
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
    ucx: Mapping[str, str] = field(default_factory=dict)
    ucx_origin: str | None = None

    def ucx_selection_variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that make a process with the environment `environ` load the UCX of `ucx_origin`."""
        from merge_bench.config.ucx_choice import ucx_selection_variables

        return {} if self.ucx_origin is None else ucx_selection_variables(self.ucx_origin, environ)


class SchedulerAccess(NamedTuple):
    """The address or file by which a client finds the Dask scheduler.

    `tls`: paths of the files ``ca``, ``cert`` and ``key``; empty without encryption.
    """

    address: str | None = None
    scheduler_file: Path | None = None
    tls: Mapping[str, str] = MappingProxyType({})


class Launcher:
    """Starts the processes of one cluster, reports those that ended, and ends them.

    `owns_processes`: whether it starts processes; they share the folder `scratch`, which also holds the run's
    certificate. `checks_host_load`: whether `start_processes` first measures the load of other hosts; `busy_hosts`: a
    description of that load for each host that is busy. `workers_merge`: whether the workers that it starts are to
    merge, and may load their libraries before they are told to.
    """

    name = ""
    owns_processes = True
    scratch: Path | None = None
    checks_host_load = False
    workers_merge = False
    busy_hosts: Mapping[str, str] = MappingProxyType({})

    def process_commands(self, plan: Plan, settings: ClusterSettings) -> list[ProcessCommand]:
        """Return the commands of the processes that `start_processes` starts."""
        return []

    def start_processes(
        self, plan: Plan, settings: ClusterSettings, log_folder: Path, log_prefix: str
    ) -> SchedulerAccess:
        """Start all processes without waiting for them, and return how to reach the scheduler.

        Their logs go to `log_folder`, in files whose names begin with `log_prefix`.
        """
        raise NotImplementedError

    def hosts_by_process_role(self) -> Mapping[str, str]:
        """Return the host of each started process, by its role (``scheduler``, ``worker-0``…)."""
        return {}

    def host_warnings(self, settings: ClusterSettings) -> list[WarningMessage]:
        """Return warnings about conditions on the hosts that distort the measured figures."""
        return []

    def ended_processes(self) -> list[EndedProcess]:
        """Return the processes that ended on their own since `start_processes`."""
        return []

    def read_log_tail(self, role: str) -> str:
        """Return the last lines of the log of the process with this role; empty if the log cannot be read."""
        return ""

    def stop_processes(self) -> None:
        """Remove the scratch folder; a subclass first ends every process that `start_processes` started."""
        if self.scratch:
            supervisor.remove_scratch_folder(self.scratch)
            self.scratch = None

    def prepare_scheduler_access(self, plan: Plan) -> SchedulerAccess:
        """Make the scratch folder, with a TLS certificate if the plan needs one; return how to reach the scheduler."""
        with signals.defer_interruption():
            self.scratch = supervisor.make_scratch_folder()
        tls = supervisor.write_tls_certificate(self.scratch) if plan.protocol == "tls" else {}
        return SchedulerAccess(scheduler_file=self.scratch / SCHEDULER_FILE, tls=tls)


HostCommandMaker: TypeAlias = Callable[[HostSpec, Sequence[str], ClusterSettings], tuple[str, ...]]
"""A function that returns the command line which runs a command on a host, with this process's input and output."""


@dataclass(frozen=True)
class BatchSystem:
    """A batch system such as SLURM: how its jobs are written and submitted.

    `title`: its name for people; `command`: the program that reads a job's script on standard input; `file`: the
    script's name; `directives`: the lines of the script that ask for resources, as a jinja2 template of a
    `batch_script.BatchJob` as ``job``; `folder`: the variable with the folder that a job was submitted from; `storage`:
    whether jobs name the file systems that they need.
    """

    title: str
    command: str
    file: str
    directives: str
    folder: str
    storage: bool = False


@dataclass(frozen=True, kw_only=True)
class LauncherKind:
    """The declaration of a launcher, one in each file of `launchers/`.

    - `name`, `help`: the value of ``--launcher``, and one line that describes it
    - `place`: position in lists
    - `auto`: when ``--launcher auto`` chooses it, for the option's help; empty: the help does not mention it
    - `needs`: keys of options; it needs one of them. ``auto`` chooses it if one of them is given.
    - `inside`: whether, judging by the environment, this process runs inside a job of this batch system that has
      several nodes. ``auto`` chooses it there, if `hosts` finds the job's nodes.
    - `variables`: the variables that `inside` judges by, which may be left over from a job that has ended
    - `hosts`: where workers run, from the options and the environment; () stands for this machine, or for a running
      cluster. Raises UsageError.
    - `starts_here`: processes run on this machine alone, so that it can be checked before they are started
    - `owns_processes`: whether processes are started, watched and ended; False: the cluster runs already
    - `mpirun_finds_hosts`: whether Open MPI's mpirun reaches the hosts by itself; otherwise it is given ssh
    - `make`: makes the launcher; None if `reach` is given
    - `reach`: how to run a command on a host; a host agent then starts the processes there (see `remote_launcher`)
    - `batch`: the batch system, if ``submit`` makes jobs for it
    """

    name: str
    help: str
    place: int = 100
    auto: str = ""
    needs: tuple[str, ...] = ()
    inside: Callable[[Mapping[str, str]], bool] = lambda environ: False
    variables: tuple[str, ...] = ()
    hosts: Callable[[ClusterOptions, Mapping[str, str]], tuple[HostSpec, ...]] = lambda options, environ: ()
    starts_here: bool = False
    owns_processes: bool = True
    mpirun_finds_hosts: bool = False
    make: Callable[[], Launcher] | None = None
    reach: HostCommandMaker | None = None
    batch: BatchSystem | None = None
