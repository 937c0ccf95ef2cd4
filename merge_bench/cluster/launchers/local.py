"""The local launcher: real `dask scheduler` and `dask worker` (or `dask cuda worker`) processes on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from merge_bench.cluster.kind import LauncherKind
from merge_bench.errors import LaunchFailed

if TYPE_CHECKING:
    from merge_bench.cluster.base import Access, Caution, ClusterSettings, Command, Exited
    from merge_bench.cluster.tls import RunCertificate
    from merge_bench.merge.plan import Plan

LOOPBACK_ADDRESS = "127.0.0.1"
CODE = "shared-memory-first"
REMEDY = "leave shared memory out of UCX_TLS in the config: rc,self over RDMA, else tcp,self"


class LocalLauncher:
    """Everything on this machine, bound to one interface of it, loopback unless another is asked for.

    Processes end by the ids that were started here.
    """

    name = "local"
    owns_processes = True

    def __init__(self) -> None:
        from merge_bench.cluster.processes import Processes

        self._processes = Processes()
        self._scratch: Path | None = None
        self._certificate: RunCertificate | None = None

    def commands(self, plan: Plan, settings: ClusterSettings) -> list[Command]:
        """Exactly what `start` would start; the folder of a run's scratch files is named when it starts."""
        return self._commands(plan, settings, "SCRATCH", "TLS")

    def start(self, plan: Plan, settings: ClusterSettings, logs: Path, prefix: str) -> Access:
        """Start scheduler and workers at once; they meet through a scheduler file.

        Raises
        ------
        LaunchFailed
            If the interface is not there any more, or has lost its address.
        """
        from merge_bench.cluster import scratch, tls
        from merge_bench.cluster.base import Access
        from merge_bench.config.installation import search_path

        self._scratch = scratch.make()
        if plan.protocol == "tls":
            self._certificate = tls.RunCertificate()
        base = {**os.environ, **search_path(os.environ), "MERGE_BENCH_PARENT": str(os.getpid())}
        folder = str(self._certificate.folder) if self._certificate else ""
        try:
            started = self._commands(plan, settings, str(self._scratch), folder)
        except LookupError as error:
            raise LaunchFailed(str(error)) from error
        for command in started:
            self._processes.start(command, base, logs / f"{prefix}{command.role}.log")
        files = self._certificate.files if self._certificate else {}
        return Access(scheduler_file=self._scratch / "scheduler.json", tls=files)

    def placed(self) -> Mapping[str, str]:
        """Host of each process."""
        return self._processes.placed()

    def cautions(self, settings: ClusterSettings) -> list[Caution]:
        """Shared memory, where an interface was named: UCX takes it before any interface of the machine."""
        from merge_bench.cluster.base import Caution
        from merge_bench.cluster.environment import LOOPBACK
        from merge_bench.config.tls import SHARED_MEMORY, selected

        config = {**os.environ, **settings.environment}
        if settings.interface in (None, LOOPBACK) or not SHARED_MEMORY & selected(config.get("UCX_TLS", "all")):
            return []
        what = "UCX takes shared memory between workers of one machine, and little or nothing goes over"
        return [Caution(CODE, f"{what} {settings.interface}", REMEDY)]

    def exited(self) -> list[Exited]:
        """Processes that ended on their own."""
        return self._processes.exited()

    def tail(self, role: str) -> str:
        """The last lines of a process's log."""
        return self._processes.tail(role)

    def stop(self) -> None:
        """End every process, and remove the scratch files and the certificate."""
        from merge_bench.cluster import scratch

        self._processes.stop()
        if self._certificate:
            self._certificate.remove()
            self._certificate = None
        if self._scratch:
            scratch.remove(self._scratch)
            self._scratch = None

    def _commands(self, plan: Plan, settings: ClusterSettings, scratch: str, folder: str) -> list[Command]:
        import socket

        from merge_bench.cluster import commands, tls
        from merge_bench.cluster.environment import LOOPBACK, launcher_defaults
        from merge_bench.host import gpu, network
        from merge_bench.host.pinning import gpu_name

        secure = tls.options(folder) if plan.protocol == "tls" else ()
        interface = settings.interface or LOOPBACK
        address = network.address(interface) if settings.interface else LOOPBACK_ADDRESS
        place = commands.Place(socket.gethostname(), scratch, interface, address, secure)
        config = dict(settings.environment)
        devices = network.net_devices(interface)
        ours = {**launcher_defaults(config, os.environ, threads=plan.threads, net_devices=devices), **config}
        found = [commands.scheduler(plan, settings, place, ours)]
        if not plan.device_memory:
            each = range(plan.workers)
            return found + [commands.worker(plan, settings, place, number, ours, None) for number in each]
        visible = gpu.visible_gpus()
        for number in range(plan.workers):
            name = gpu_name(visible, number // settings.workers_per_gpu)
            own = gpu.has_own_memory(name)
            found.append(commands.worker(plan, settings, place, number, ours, name, own_memory=own))
        return found


LAUNCHER = LauncherKind(
    name=LocalLauncher.name,
    help="Processes on this machine.",
    place=1,
    starts_here=True,
    owns_processes=LocalLauncher.owns_processes,
    make=LocalLauncher,
)
