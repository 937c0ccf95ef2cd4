"""Reaching the scheduler of a cluster that is coming up, and naming who did not come."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from merge_bench.cluster import signals
from merge_bench.cluster.base import Access, ClusterSettings, Launcher
from merge_bench.errors import LaunchFailed, UsageError

if TYPE_CHECKING:  # it takes half a second, and many commands end before they need it
    from distributed import Client
    from distributed.security import Security

T = TypeVar("T")
LOOK_SECONDS = 0.05
CLOSE_SECONDS = 1.0
Workers: TypeAlias = Mapping[str, tuple[str, str]]
"""Host and name of each worker, by its address."""


def connect(access: Access, launcher: Launcher, settings: ClusterSettings, up_by: float) -> Client:
    """A client of the scheduler, as soon as there is one; `up_by`: when at the latest, as of ``time.monotonic()``.

    Raises
    ------
    UsageError
        If a running cluster that was named cannot be reached.
    LaunchFailed
        If our own scheduler did not come up.
    """
    security = None
    if access.tls:
        from distributed.security import Security

        security = Security(
            tls_ca_file=access.tls["ca"], tls_client_cert=access.tls["cert"], tls_client_key=access.tls["key"],
            require_encryption=True,
        )  # fmt: skip
    while access.scheduler_file and not access.scheduler_file.exists():
        raise_for_exited(launcher)
        if time.monotonic() > up_by or not launcher.owns_processes:
            if not launcher.owns_processes:
                raise UsageError(f"--scheduler-file {access.scheduler_file}: there is no such file")
            raise _no_answer(launcher, f"the scheduler did not come up within {settings.start_timeout:.0f} s")
        signals.check()
        time.sleep(0.02)
    where = access.address or str(access.scheduler_file)
    try:
        return open_client(
            access.address, access.scheduler_file, seconds=max(up_by - time.monotonic(), 1.0), security=security,
            look=lambda: raise_for_exited(launcher),
        )  # fmt: skip
    except (OSError, TimeoutError, ValueError) as error:
        raise_for_exited(launcher)
        if launcher.owns_processes:
            raise _no_answer(launcher, f"the scheduler did not answer: {error}") from error
        raise UsageError(f"no scheduler answers at {where}: {error}") from error


def open_client(
    address: str | None, scheduler_file: str | Path | None, *, seconds: float, security: Security | None = None,
    look: Callable[[], None] = lambda: None,
) -> Client:  # fmt: skip
    """A client of the scheduler at an address, or of the one that a file names, even while that is being written.

    `look` is called every 50 ms while this waits, and may raise: Dask itself sees neither that a scheduler has ended
    nor that a connection which it accepted is never answered.

    Raises
    ------
    TimeoutError
        If the scheduler has not answered within `seconds`.
    OSError, ValueError
        If it cannot be reached, or the address is none, or the file names none in time.
    """
    deadline = time.monotonic() + seconds
    while address is None and (address := _named(scheduler_file)) is None:
        look()
        signals.check()
        if time.monotonic() > deadline:
            raise ValueError(f"{scheduler_file} names no scheduler")
        time.sleep(LOOK_SECONDS)
    left = max(deadline - time.monotonic(), 1.0)

    def make() -> Client:
        from distributed import Client

        return Client(address=address, security=security, timeout=left, set_as_default=False)

    return _bounded(make, left + 1.0, look)


def _named(scheduler_file: str | Path | None) -> str | None:
    """The address in a scheduler's file; None where there is none, as in one that is half written."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads(Path(str(scheduler_file)).read_text())["address"])
    return None


@contextlib.contextmanager
def connected(address: str | None, scheduler_file: str | Path | None, *, seconds: float) -> Iterator[Client]:
    """`open_client` for the length of a block."""
    client = open_client(address, scheduler_file, seconds=seconds)
    try:
        yield client
    finally:
        close(client)


def ask(client: Client, question: Callable[..., Coroutine[Any, Any, T]], *arguments: Any, seconds: float) -> T:
    """The answer to a coroutine function of the client; raises `TimeoutError` if it takes longer than `seconds`."""
    answer: T = client.sync(question, *arguments, callback_timeout=seconds)
    return answer


def close(client: Client) -> None:
    """Close a client; one whose scheduler is gone or silent is given up after `CLOSE_SECONDS`."""
    with contextlib.suppress(Exception):
        _bounded(lambda: client.close(timeout=CLOSE_SECONDS), 2 * CLOSE_SECONDS)


def _bounded(call: Callable[[], T], seconds: float, look: Callable[[], None] = lambda: None) -> T:
    """The result of a call of Dask's that has no limit of its own, or not for all that it waits for.

    It runs in a thread, which is left behind when the time is up.
    """
    outcome: Future[T] = Future()

    def work() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=work, name="dask-client", daemon=True).start()
    deadline = time.monotonic() + seconds
    while not outcome.done():
        look()
        signals.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"no answer within {seconds:.0f} s")
        with contextlib.suppress(TimeoutError):
            outcome.result(timeout=LOOK_SECONDS)
    return outcome.result()


def _no_answer(launcher: Launcher, sentence: str) -> LaunchFailed:
    return LaunchFailed(
        sentence, host=launcher.placed().get("scheduler"), log_tail=launcher.tail("scheduler") or None,
        code="start-failed",
    )  # fmt: skip


def raise_for_exited(launcher: Launcher) -> None:
    """Raise `LaunchFailed` for a process that ended before it was up."""
    for ended in launcher.exited():
        raise LaunchFailed(
            f"{_of_role(ended.role)} on {ended.host} {ended.how} before it was up",
            host=ended.host, rank=_rank_of(ended.role), log_tail=ended.log_tail, code="start-failed",
        )  # fmt: skip


def _rank_of(role: str) -> int | None:
    """Rank of a process that a launcher started; None for the scheduler."""
    number = role.removeprefix("worker-")
    return int(number) if number.isdecimal() else None


def _of_role(role: str) -> str:
    rank = _rank_of(role)
    return f"the {role}" if rank is None else f"rank {rank} ({role})"


def wait_for_workers(
    ask: Callable[[], Workers], launcher: Launcher, settings: ClusterSettings, wanted: int, up_by: float
) -> Workers:
    """All workers of the cluster, as soon as there are `wanted` of them; `ask`: those that the scheduler has now.

    `up_by`: when at the latest, as of ``time.monotonic()``.

    Raises
    ------
    UsageError
        If too few workers of a running cluster came in time, or some left since they were counted.
    LaunchFailed
        If a worker that we started did not come up.
    """
    told = launcher.owns_processes
    while len(workers := ask()) < wanted:
        raise_for_exited(launcher)
        if not told:
            _tell_who_is_there(len(workers), wanted, settings)
            told = True
        if time.monotonic() > up_by:
            came = f"only {len(workers)} of {wanted} workers came within {settings.start_timeout:.0f} s"
            if not launcher.owns_processes:
                raise UsageError(came)
            raise _missing_worker(launcher, {name for _, name in workers.values()}, came)
        signals.check()
        time.sleep(0.02)
    return workers


def _tell_who_is_there(count: int, wanted: int, settings: ClusterSettings) -> None:
    """Why nothing happens now, on standard error; raises `UsageError` where no more workers are to be expected."""
    where = settings.scheduler_address or settings.scheduler_file
    if settings.counted == wanted:
        raise UsageError(
            f"the cluster at {where} had {wanted} workers when they were counted, and has {count} now;"
            " --workers N waits for N of them"
        )
    print(
        f"merge_bench: waiting up to {settings.start_timeout:.0f} s for {wanted} workers: the cluster at {where} has"
        f" {count or 'none'}",
        file=sys.stderr, flush=True,
    )  # fmt: skip


def _missing_worker(launcher: Launcher, came: set[str], sentence: str) -> LaunchFailed:
    """Who did not come up, with the last lines of its log."""
    for role, host in launcher.placed().items():
        if role not in came and _rank_of(role) is not None:
            return LaunchFailed(
                f"{_of_role(role)} on {host} did not come up: {sentence}", host=host, rank=_rank_of(role),
                log_tail=launcher.tail(role) or None, code="start-failed",
            )  # fmt: skip
    return LaunchFailed(sentence, code="start-failed")


def dashboard_link(scheduler: str | None, port: int | None) -> str | None:
    """Where Dask's own dashboard is seen, if the scheduler at this address serves it at `port`; else None."""
    if port is None or scheduler is None:
        return None
    from distributed.comm.addressing import get_address_host
    from distributed.utils import format_dashboard_link

    host = get_address_host(scheduler)
    try:
        return str(format_dashboard_link(f"[{host}]" if ":" in host else host, port))
    except KeyError:  # The site's template of such links names a variable that is not set here.
        return None
