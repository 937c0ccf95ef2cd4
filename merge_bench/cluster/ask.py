"""A question to a running cluster, one worker of each host answering."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from merge_bench.cluster.scheduler_client import ask, connected
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
    with contextlib.ExitStack() as stack:
        try:
            client = stack.enter_context(connected(address, scheduler_file, seconds=CONNECT_SECONDS))
            workers = ask(client, client.scheduler.identity, seconds=CONNECT_SECONDS)["workers"]
        except (OSError, TimeoutError, ValueError) as error:
            raise UsageError(f"no scheduler answers at {where}: {error}") from error
        hosts: dict[str, str] = {}
        for worker, about in workers.items():
            hosts.setdefault(str(about["host"]), worker)
        if not hosts:
            raise UsageError(f"the cluster at {where} has no workers")
        futures = [client.submit(question, workers=[hosts[host]], pure=False) for host in sorted(hosts)]
        try:
            return [future.result(timeout=ANSWER_SECONDS) for future in futures]
        except Exception as error:
            raise UsageError(f"the workers at {where} do not answer: {type(error).__name__}: {error}") from error
