"""A cluster that already runs: nothing is started, nothing is ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from distributed import Client

from merge_bench.errors import UsageError
from merge_bench.launch.base import Access, ClusterSettings, Command, Exited
from merge_bench.plan import Plan

T = TypeVar("T")
ANSWER_SECONDS = 60.0


class ExistingCluster:
    """Reached through `--scheduler-address` or `--scheduler-file`."""

    name = "existing"
    owns_processes = False

    def commands(self, plan: Plan, settings: ClusterSettings) -> list[Command]:
        """None."""
        return []

    def start(self, plan: Plan, settings: ClusterSettings, logs: Path, prefix: str) -> Access:
        """Nothing to start: how to reach the scheduler."""
        file = Path(settings.scheduler_file) if settings.scheduler_file else None
        return Access(address=settings.scheduler_address, scheduler_file=file)

    def exited(self) -> list[Exited]:
        """Unknown: the processes are not ours."""
        return []

    def stop(self) -> None:
        """Nothing: the cluster goes on."""


def count_workers(address: str | None, scheduler_file: str | None) -> int:
    """How many workers a running cluster has.

    Raises
    ------
    UsageError
        If it cannot be reached, or has none.
    """
    with _workers(address, scheduler_file) as (_, workers):
        return len(workers)


def on_each_host(address: str | None, scheduler_file: str | None, question: Callable[[], T]) -> list[T]:
    """Ask one worker of each host of a running cluster, in the order of the hosts' names.

    Raises
    ------
    UsageError
        If it cannot be reached, or has no workers, or they do not answer (without merge_bench they cannot).
    """
    with _workers(address, scheduler_file) as (client, workers):
        hosts: dict[str, str] = {}
        for worker, about in workers.items():
            hosts.setdefault(str(about["host"]), worker)
        futures = [client.submit(question, workers=[hosts[host]], pure=False) for host in sorted(hosts)]
        try:
            return [future.result(timeout=ANSWER_SECONDS) for future in futures]
        except Exception as error:
            raise UsageError(
                f"the workers at {address or scheduler_file} do not answer: {type(error).__name__}: {error}"
            ) from error


@contextmanager
def _workers(address: str | None, scheduler_file: str | None) -> Iterator[tuple[Any, dict[str, Any]]]:
    where = address or scheduler_file
    if scheduler_file and not Path(scheduler_file).exists():
        raise UsageError(f"--scheduler-file {scheduler_file}: there is no such file")
    try:
        client = Client(address=address, scheduler_file=scheduler_file, timeout=10, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise UsageError(f"no scheduler answers at {where}: {error}") from error
    with client:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        if not workers:
            raise UsageError(f"the cluster at {where} has no workers")
        yield client, workers
