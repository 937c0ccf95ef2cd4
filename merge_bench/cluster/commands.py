"""The command lines of Dask's processes, the same for every launcher."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from merge_bench.cluster.base import ClusterSettings, Command
from merge_bench.cluster.environment import SCHEDULER_ROUTES
from merge_bench.host.gpu import IN_ORDER
from merge_bench.merge.plan import Plan

DASK = (sys.executable, "-P", "-m", "dask")
PRELOAD = "merge_bench.cluster.preload"
DASHBOARD_ROUTES = ["distributed.http.statics", "distributed.http.scheduler.info"]
"""What the pages of Dask's dashboard need beside themselves: only what reads."""


@dataclass(frozen=True)
class Place:
    """Where processes of one host live: its name, the folder of the run's scratch files, and what to bind to."""

    host: str
    scratch: str
    interface: str
    address: str
    tls: Sequence[str] = ()

    @property
    def http(self) -> tuple[str, ...]:
        """Dask serves HTTP even with --no-dashboard: to the same interface, not to the world."""
        return ("--dashboard-address", f"{self.address}:0")

    def meet(self, plan: Plan) -> tuple[str, ...]:
        """How processes find the scheduler, and what they bind to."""
        bind = ("--interface", self.interface) if plan.protocol == "ucx" else ("--host", self.address)
        file = ("--scheduler-file", f"{self.scratch}/scheduler.json")
        return (*file, "--protocol", plan.protocol, *bind, *self.tls)


def scheduler(plan: Plan, settings: ClusterSettings, place: Place, environment: Mapping[str, str]) -> Command:
    """`dask scheduler`."""
    shown = "--dashboard" if settings.dask_dashboard else "--no-dashboard"
    argv = (*DASK, "scheduler", "--port", "0", *place.meet(plan), shown, *place.http, "--preload", PRELOAD)
    if settings.dask_dashboard:
        environment = {**environment, SCHEDULER_ROUTES: str(DASHBOARD_ROUTES)}
    return Command("scheduler", place.host, argv, _own_folder(environment, place))


def worker(
    plan: Plan, settings: ClusterSettings, place: Place, number: int, environment: Mapping[str, str], gpu: str | None,
    *, own_memory: bool = True,
) -> Command:  # fmt: skip
    """`dask worker`, or `dask cuda worker` of one process on the GPU that CUDA knows as `gpu`.

    The latter makes no pool of device memory: the run's first step on a worker does, wherever the worker came from. Nor
    does it move data to the host when device memory is short: a limit of 0 says so, which dask-cuda refuses on a GPU
    without memory of its own (not `own_memory`), where its default is to move none.
    """
    environment = _own_folder(environment, place)
    common = (
        "--no-dashboard", *place.http, "--preload", PRELOAD, "--name", f"worker-{number}", "--nthreads", "1",
        "--memory-limit", "0", "--death-timeout", f"{settings.start_timeout:g}", "--local-directory", place.scratch,
    )  # fmt: skip
    if gpu is None:
        argv = (*DASK, "worker", *place.meet(plan), *common, "--nworkers", "1", "--no-nanny")
        return Command(f"worker-{number}", place.host, argv, environment)
    # It has no --preload-nanny and needs none: its command line loads what --preload names in its own process too.
    argv = (
        *DASK,
        "cuda",
        "worker",
        *place.meet(plan),
        *common,
        "--device-memory-limit",
        "0" if own_memory else "default",
    )
    return Command(f"worker-{number}", place.host, argv, {**environment, **IN_ORDER, "CUDA_VISIBLE_DEVICES": gpu})


def _own_folder(environment: Mapping[str, str], place: Place) -> dict[str, str]:
    """Without it Dask's scheduler leaves a folder in the temporary directory; it has no option for that."""
    return {**environment, "DASK_TEMPORARY_DIRECTORY": place.scratch}
