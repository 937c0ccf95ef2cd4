"""The local launcher: real `dask scheduler` and `dask worker` (or `dask cuda worker`) processes on this machine."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from merge_bench.launch.base import Access, ClusterSettings, Command, Exited
from merge_bench.launch.environment import LOOPBACK, launcher_defaults
from merge_bench.launch.processes import Processes
from merge_bench.launch.tls import RunCertificate
from merge_bench.plan import Plan

LOOPBACK_ADDRESS = "127.0.0.1"
PRELOAD = "merge_bench.launch.preload"


class LocalLauncher:
    """Everything on this machine, bound to loopback; processes end by the ids that were started here."""

    name = "local"
    owns_processes = True

    def __init__(self) -> None:
        self._processes = Processes()
        self._scratch: Path | None = None
        self._certificate: RunCertificate | None = None

    def commands(self, plan: Plan, settings: ClusterSettings) -> list[Command]:
        """Exactly what `start` would start; the folder of a run's scratch files is named when it starts."""
        return self._commands(plan, settings, Path("SCRATCH"))

    def start(self, plan: Plan, settings: ClusterSettings, logs: Path, prefix: str) -> Access:
        """Start scheduler and workers at once; they meet through a scheduler file."""
        self._scratch = Path(tempfile.mkdtemp(prefix="merge-bench-"))
        if plan.protocol == "tls":
            self._certificate = RunCertificate()
        base = {**os.environ, "MERGE_BENCH_PARENT": str(os.getpid())}
        for command in self._commands(plan, settings, self._scratch):
            self._processes.start(command, base, logs / f"{prefix}{command.role}.log")
        tls = self._certificate.files if self._certificate else {}
        return Access(scheduler_file=self._scratch / "scheduler.json", tls=tls)

    def exited(self) -> list[Exited]:
        """Processes that ended on their own."""
        return self._processes.exited()

    def stop(self) -> None:
        """End every process, and remove the scratch files and the certificate."""
        self._processes.stop()
        if self._certificate:
            self._certificate.remove()
            self._certificate = None
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    def _commands(self, plan: Plan, settings: ClusterSettings, scratch: Path) -> list[Command]:
        host, dask = socket.gethostname(), (sys.executable, "-P", "-m", "dask")
        bind = ["--interface", LOOPBACK] if plan.protocol == "ucx" else ["--host", LOOPBACK_ADDRESS]
        secure = []
        if plan.protocol == "tls":
            secure = self._certificate.options() if self._certificate else ["--tls-ca-file", "…", "--tls-cert", "…"]
        meet = ["--scheduler-file", str(scratch / "scheduler.json"), "--protocol", plan.protocol, *bind, *secure]
        quiet = ["--no-dashboard", "--preload", PRELOAD]
        config = dict(settings.environment)
        ours = {**launcher_defaults(config, os.environ, threads=plan.threads), **config}
        # Without it Dask's scheduler leaves a folder in the temporary directory; it has no option for that.
        ours["DASK_TEMPORARY_DIRECTORY"] = str(scratch)
        commands = [Command("scheduler", host, (*dask, "scheduler", "--port", "0", *meet, *quiet), ours)]
        for number in range(plan.workers):
            if plan.engine == "cudf":
                commands.append(self._gpu_worker(plan, settings, number, host, dask, meet, ours, scratch))
                continue
            argv = (
                *dask, "worker", *meet, *quiet, "--name", f"worker-{number}", "--nthreads", "1", "--nworkers", "1",
                "--no-nanny", "--memory-limit", "0", "--death-timeout", f"{settings.start_timeout:g}",
                "--local-directory", str(scratch),
            )  # fmt: skip
            commands.append(Command(f"worker-{number}", host, argv, ours))
        return commands

    def _gpu_worker(
        self,
        plan: Plan,
        settings: ClusterSettings,
        number: int,
        host: str,
        dask: tuple[str, ...],
        meet: list[str],
        ours: Mapping[str, str],
        scratch: Path,
    ) -> Command:
        """A `dask cuda worker` of one process on one GPU, with its RMM pool."""
        gpu = number // settings.workers_per_gpu
        pool = settings.rmm_pool_bytes
        argv = (
            *dask, "cuda", "worker", *meet, "--no-dashboard", "--preload", PRELOAD,
            "--preload-nanny", PRELOAD, "--name", f"worker-{number}", "--nthreads", "1",
            "--memory-limit", "0", "--device-memory-limit", "0", "--death-timeout", f"{settings.start_timeout:g}",
            "--local-directory", str(scratch), *(["--rmm-pool-size", str(pool)] if pool else []),
        )  # fmt: skip
        return Command(f"worker-{number}", host, argv, {**ours, "CUDA_VISIBLE_DEVICES": str(gpu)})
