"""A cluster that already runs: how many workers it has, and a question to one worker of each host."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from merge_bench.cluster.scheduler_client import close, open_client
from merge_bench.errors import UsageError

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0


@contextlib.contextmanager
def _connected(
    address: str | None, scheduler_file: str | None, seconds: float, advice: str = ""
) -> Iterator[tuple[Client, dict[str, Any]]]:
    """A client of the cluster, and what its scheduler reports about each worker, by address.

    `advice`: the end of the message for a cluster without workers.
    """
    where = address or scheduler_file
    if scheduler_file and not Path(scheduler_file).exists():
        raise UsageError(f"--scheduler-file {scheduler_file}: there is no such file")
    with contextlib.ExitStack() as stack:
        try:
            client = open_client(address, scheduler_file, seconds=seconds)
            stack.callback(close, client)
            workers = client.sync(client.scheduler.identity, callback_timeout=seconds)["workers"]
        except (OSError, TimeoutError, ValueError) as error:
            raise UsageError(f"no scheduler answers at {where}: {error}") from error
        if not workers:
            raise UsageError(f"the cluster at {where} has no workers{advice}")
        yield client, workers


def count_running(address: str | None, scheduler_file: str | None, seconds: float = CONNECT_SECONDS) -> int:
    """How many workers a running cluster has; its scheduler has `seconds` to answer, but at most 10.

    Raises
    ------
    UsageError
        If it cannot be reached, or has none.
    """
    advice = "; use --workers N to wait for N workers, at most for --start-timeout"
    with _connected(address, scheduler_file, min(seconds, CONNECT_SECONDS), advice) as (_, workers):
        return len(workers)


def on_each_host(address: str | None, scheduler_file: str | None, question: Callable[[], T]) -> list[T]:
    """The answers of one worker of each host, in the order of the hosts' addresses.

    Raises
    ------
    UsageError
        If the cluster cannot be reached, or has no workers, or they do not answer (without merge_bench they cannot).
    """
    with _connected(address, scheduler_file, CONNECT_SECONDS) as (client, workers):
        hosts = {str(about["host"]): worker for worker, about in reversed(workers.items())}
        futures = [client.submit(question, workers=[hosts[host]], pure=False) for host in sorted(hosts)]
        try:
            return [future.result(timeout=ANSWER_SECONDS) for future in futures]
        except Exception as error:
            where = address or scheduler_file
            raise UsageError(
                f"the workers of the cluster at {where} do not answer: {type(error).__name__}: {error}"
            ) from error
