"""The command lines of Dask's processes, the same for every launcher."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from merge_bench.cluster.base import SCHEDULER_FILE, ClusterSettings, Command
from merge_bench.cluster.environment import SCHEDULER_ROUTES, process_environment
from merge_bench.host.gpu import IN_ORDER
from merge_bench.host.pinning import Pin
from merge_bench.merge.plan import Plan

DASK = (sys.executable, "-P", "-m", "dask")
# Not `dask scheduler` and `dask worker`: that program imports every package that adds a command to it, among them this
# one and dask-cuda, which takes each process 0.15 s.
SCHEDULER = (sys.executable, "-P", "-m", "distributed.cli.dask_scheduler")
WORKER = (sys.executable, "-P", "-m", "distributed.cli.dask_worker")
PRELOAD = "merge_bench.cluster.preload"
DASHBOARD_ROUTES = ["distributed.http.statics", "distributed.http.scheduler.info"]
"""What the pages of Dask's dashboard need besides themselves: only routes that read."""


@dataclass(frozen=True)
class Place:
    """One host: its name, the folder of the run's scratch files, and the interface to bind to.

    `rdma`: RDMA devices of that interface.
    """

    host: str
    scratch: str
    interface: str
    address: str
    rdma: tuple[str, ...] = ()

    def common(self, plan: Plan, *, dashboard: bool = False) -> tuple[str, ...]:
        """Options of every process: how it finds the scheduler, and what it binds to.

        Dask serves HTTP even with --no-dashboard; it must do so on the same interface only.
        """
        bind = ("--interface", self.interface) if plan.protocol == "ucx" else ("--host", self.address)
        ca, cert, key = (f"{self.scratch}/{name}.pem" for name in ("ca", "cert", "key"))
        tls = ("--tls-ca-file", ca, "--tls-cert", cert, "--tls-key", key) if plan.protocol == "tls" else ()
        return (
            "--scheduler-file", f"{self.scratch}/{SCHEDULER_FILE}", "--protocol", plan.protocol, *bind, *tls,
            "--dashboard" if dashboard else "--no-dashboard", "--dashboard-address", f"{self.address}:0",
            "--preload", PRELOAD,
        )  # fmt: skip


def processes(
    plan: Plan, settings: ClusterSettings, place: Place, pins: Mapping[int, Pin], config: Mapping[str, str],
    surroundings: Mapping[str, str], threads: int | str,
) -> list[Command]:  # fmt: skip
    """The workers with the numbers in `pins`, after the scheduler if worker 0 is among them.

    `config`, `surroundings`, `threads`: as of `process_environment`.
    """

    def environment(rdma: Sequence[str]) -> dict[str, str]:
        ucx = {**settings.ucx, "UCX_NET_DEVICES": ",".join([*rdma, place.interface])}
        found = process_environment(config, surroundings, threads=threads, ucx=ucx)
        # Without this variable Dask's scheduler leaves a folder in the temporary directory; it has no option for that.
        return {**found, "DASK_TEMPORARY_DIRECTORY": place.scratch}

    workers = [worker(plan, settings, place, number, environment(pin.devices), pin) for number, pin in pins.items()]
    return [scheduler(plan, settings, place, environment(place.rdma)), *workers] if 0 in pins else workers


def scheduler(plan: Plan, settings: ClusterSettings, place: Place, environment: Mapping[str, str]) -> Command:
    """Dask's scheduler."""
    argv = (*SCHEDULER, "--port", "0", *place.common(plan, dashboard=settings.dask_dashboard))
    if settings.dask_dashboard:
        environment = {**environment, SCHEDULER_ROUTES: str(DASHBOARD_ROUTES)}
    return Command("scheduler", place.host, argv, environment)


def worker(
    plan: Plan, settings: ClusterSettings, place: Place, number: int, environment: Mapping[str, str], pin: Pin
) -> Command:
    """Dask's worker, or `dask cuda worker` of one process if `pin` names a GPU.

    `dask cuda worker` makes no pool of device memory: the run's first step on a worker does, however the worker was
    started. It also moves no data to the host when device memory is short. A limit of 0 turns that off. dask-cuda
    refuses a limit on a GPU without memory of its own, where its default is to move none.
    """
    argv = (
        *place.common(plan), "--name", f"worker-{number}", "--nthreads", "1", "--memory-limit", "0",
        "--death-timeout", f"{settings.start_timeout:g}", "--local-directory", place.scratch,
    )  # fmt: skip
    if pin.gpu is None:
        # No nanny, which would restart a worker that died, and so hide the failure.
        argv = (*WORKER, *argv, "--nworkers", "1", "--no-nanny")
    else:
        # It has no --preload-nanny and needs none: it loads what --preload names in the nanny's process too.
        argv = (*DASK, "cuda", "worker", *argv, "--device-memory-limit", "0" if pin.own_memory else "default")
        environment = {**environment, **IN_ORDER, "CUDA_VISIBLE_DEVICES": pin.gpu}
    return Command(f"worker-{number}", place.host, argv, environment, pin.cores)
