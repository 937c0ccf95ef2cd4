"""The local launcher: Dask's scheduler and workers (on GPUs `dask cuda worker`) as processes of this machine."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from merge_bench.cluster import signals
from merge_bench.cluster.base import (
    ClusterSettings,
    EndedProcess,
    Launcher,
    LauncherKind,
    ProcessCommand,
    SchedulerAccess,
)
from merge_bench.cluster.forked_processes import ForkedProcesses, undisturbed
from merge_bench.cluster.supervisor import ChildProcess, end_child_processes, read_log_tail
from merge_bench.config.allowed_transports import SHARED_MEMORY, find_allowed_transports
from merge_bench.config.installation import python_path_variables
from merge_bench.errors import LaunchFailed, WarningMessage, print_message

if TYPE_CHECKING:
    from merge_bench.merge.plan import Plan

LOOPBACK_ADDRESS = "127.0.0.1"
CODE = "shared-memory-first"
REMEDY = "set UCX_TLS without shared memory in the config: UCX_TLS=rc,self for RDMA, else UCX_TLS=tcp,self"
STOP_SECONDS = 10.0  # for killed processes to be gone: freeing much memory takes a while


class LocalLauncher(Launcher):
    """Starts all processes on this machine, bound to one of its network interfaces, by default loopback.

    It pins no cores: the kernel places workers of one host well, and figures stay comparable with earlier ones.
    """

    name = "local"

    def __init__(self) -> None:
        self._places: dict[str, tuple[str, Path]] = {}  # host and log, by role
        self._started: dict[str, ChildProcess] = {}
        self._forking: ForkedProcesses | None = None
        self._taking = threading.Lock()

    def process_commands(self, plan: Plan, settings: ClusterSettings) -> list[ProcessCommand]:
        return self._process_commands(plan, settings, "SCRATCH")

    def start_processes(
        self, plan: Plan, settings: ClusterSettings, log_folder: Path, log_prefix: str
    ) -> SchedulerAccess:
        """Start scheduler and workers at once, and return how to reach the scheduler.

        Raises LaunchFailed if the interface does not exist any more, or has lost its address.
        """
        access = self.prepare_scheduler_access(plan)
        base = {**os.environ, **python_path_variables(os.environ), "MERGE_BENCH_PARENT": str(os.getpid())}
        try:
            commands = self._process_commands(plan, settings, str(self.scratch))
        except LookupError as error:
            raise LaunchFailed(str(error)) from error
        logs = [log_folder / f"{log_prefix}{command.role}.log" for command in commands]
        self._places = {command.role: (command.host, log) for command, log in zip(commands, logs, strict=True)}
        if ForkedProcesses.can_start(commands):
            with signals.defer_interruption():
                self._forking = ForkedProcesses(commands, logs, base, workers_merge=self.workers_merge)
        else:
            for command, log in zip(commands, logs, strict=True):
                with signals.defer_interruption():
                    child = ChildProcess(command.argv, environment={**base, **command.environment}, log=log)
                    self._started[command.role] = child
        return access

    def hosts_by_process_role(self) -> Mapping[str, str]:
        return {role: host for role, (host, _) in self._places.items()}

    def host_warnings(self, settings: ClusterSettings) -> list[WarningMessage]:
        """Return a warning if an interface was named, but UCX may use shared memory, which it prefers."""
        from merge_bench.cluster.dask_commands import LOOPBACK

        config = {**os.environ, **settings.environment}
        if settings.interface in (None, LOOPBACK) or not SHARED_MEMORY & find_allowed_transports(
            config.get("UCX_TLS", "all")
        ):
            return []
        what = "UCX uses shared memory between workers on the same host, so little or no data goes over"
        return [WarningMessage(CODE, f"{what} {settings.interface}", REMEDY)]

    def ended_processes(self) -> list[EndedProcess]:
        pid, status = self._take_forked()
        ended = [
            (role, child.pid, ended_with)
            for role, child in self._started.items()
            if (ended_with := child.poll()) is not None
        ]
        if status is not None:
            ended += [(role, pid, status) for role in self._places if role not in self._started]
        return [
            EndedProcess(role, self._places[role][0], pid, status, self.read_log_tail(role))
            for role, pid, status in ended
        ]

    def read_log_tail(self, role: str) -> str:
        return read_log_tail(self._places[role][1]) if role in self._places else ""

    def stop_processes(self) -> None:
        """End every process and its children, and remove the scratch folder.

        A kill does no harm to workers: their data is in memory, and results are in the driver's files.
        """
        with self._taking:
            forking, self._forking = self._forking, None
            if forking is not None:
                self._started = {**self._started, **forking.end()}
        for child in end_child_processes(self._started.values(), STOP_SECONDS):
            print_message(f"process {child.pid} was killed and has not ended yet")
        self._started = {}
        super().stop_processes()

    def _take_forked(self) -> tuple[int, int | None]:
        """Take over the processes that were forked, once all are there; the process that forks, and how it failed."""
        with self._taking:  # another thread may watch the processes, too
            if self._forking is None:
                return 0, None
            forking, status = self._forking, self._forking.status
            if status == 0:
                with undisturbed():
                    self._started, self._forking = {**self._started, **forking.end()}, None
                missing = [role for role in self._places if role not in self._started]
                return forking.pid, 1 if missing else None
            return forking.pid, status

    def _process_commands(self, plan: Plan, settings: ClusterSettings, scratch_folder: str) -> list[ProcessCommand]:
        from merge_bench.cluster import dask_commands
        from merge_bench.cluster.dask_commands import LOOPBACK
        from merge_bench.host import network, pinning

        interface = settings.interface or LOOPBACK
        address = network.interface_ipv4_address(interface) if settings.interface else LOOPBACK_ADDRESS
        if plan.device_memory:
            host = pinning.describe_host(interface)
            rdma = tuple(host.rdma)
            parts = pinning.pin_workers(host, plan.workers, use_gpus=True, workers_per_gpu=settings.workers_per_gpu)
            pins = {number: replace(part, cores=()) for number, part in enumerate(parts)}
        else:
            rdma = tuple(network.network_rdma_ports(interface))
            pins = dict.fromkeys(range(plan.workers), pinning.WorkerPin((), None, rdma))
        place = dask_commands.ProcessLocation(socket.gethostname(), scratch_folder, interface, address, rdma)
        return dask_commands.dask_process_commands(
            plan, settings, place, pins, settings.environment, os.environ, plan.threads
        )


LAUNCHER = LauncherKind(name="local", help="Processes on this machine.", place=1, starts_here=True, make=LocalLauncher)
