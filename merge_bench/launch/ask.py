"""A question to a running cluster, one worker of each host answering."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from distributed import Client

from merge_bench.errors import UsageError

T = TypeVar("T")
CONNECT_SECONDS = 10
ANSWER_SECONDS = 60.0


def on_each_host(address: str | None, scheduler_file: str | None, question: Callable[[], T]) -> list[T]:
    """The answers, in the order of the hosts' addresses.

    Raises
    ------
    UsageError
        If the cluster cannot be reached, or has no workers, or they do not answer (without merge_bench they cannot).
    """
    where = address or scheduler_file
    if scheduler_file and not Path(scheduler_file).exists():
        raise UsageError(f"--scheduler-file {scheduler_file}: there is no such file")
    try:
        client = Client(
            address=address, scheduler_file=scheduler_file, timeout=CONNECT_SECONDS, set_as_default=False
        )  # fmt: skip
    except (OSError, TimeoutError, ValueError) as error:
        raise UsageError(f"no scheduler answers at {where}: {error}") from error
    with client:
        hosts: dict[str, str] = {}
        for worker, about in client.scheduler_info(n_workers=-1)["workers"].items():
            hosts.setdefault(str(about["host"]), worker)
        if not hosts:
            raise UsageError(f"the cluster at {where} has no workers")
        futures = [client.submit(question, workers=[hosts[host]], pure=False) for host in sorted(hosts)]
        try:
            return [future.result(timeout=ANSWER_SECONDS) for future in futures]
        except Exception as error:
            raise UsageError(f"the workers at {where} do not answer: {type(error).__name__}: {error}") from error
