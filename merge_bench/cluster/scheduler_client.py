"""Dask's client: connects to a scheduler that starts or runs already, waits for workers, and redirects logs.

Also what a user's or site's Dask configuration asks for, and which of it cannot work here.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import logging
import os
import re
import site
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias, TypeVar

from merge_bench.cluster import signals
from merge_bench.cluster.base import ClusterSettings, Launcher, SchedulerAccess
from merge_bench.config.files import open_without_links, read_regular_file
from merge_bench.errors import LaunchFailed, UsageError, print_message

if TYPE_CHECKING:
    from distributed import Client
    from distributed.security import Security

T = TypeVar("T")
LOOK_SECONDS = 0.02
CLOSE_SECONDS = 1.0
Workers: TypeAlias = Mapping[str, tuple[str, str]]
"""Host and name of each worker, by its address."""
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0


def connect_client(
    scheduler_access: SchedulerAccess, launcher: Launcher, settings: ClusterSettings, deadline: float
) -> Client:
    """Wait until the scheduler answers, and return a Dask client of it.

    `deadline`: when to give up, as of ``time.monotonic()``. Raises UsageError if a running cluster cannot be reached;
    LaunchFailed if the scheduler that the launcher started did not come up.
    """
    security = None
    if scheduler_access.tls:
        from distributed.security import Security

        files = {"tls_ca_file": scheduler_access.tls["ca"], "tls_client_cert": scheduler_access.tls["cert"]}
        security = Security(**files, tls_client_key=scheduler_access.tls["key"], require_encryption=True)

    def check_processes() -> None:
        raise_for_ended_process(launcher)

    address, file, seconds = (
        scheduler_access.address,
        scheduler_access.scheduler_file,
        max(deadline - time.monotonic(), 1.0),
    )
    try:
        return open_client(address, file, seconds=seconds, security=security, check_processes=check_processes)
    except (OSError, TimeoutError, ValueError) as error:
        raise_for_ended_process(launcher)
        if launcher.owns_processes:
            raise _process_start_error(launcher, "scheduler", f"did not start: {error}") from error
        raise UsageError(
            f"no scheduler answers at {scheduler_access.address or scheduler_access.scheduler_file}: {error}"
        ) from error


def open_client(
    address: str | None,
    scheduler_file: str | Path | None,
    *,
    seconds: float,
    security: Security | None = None,
    check_processes: Callable[[], None] = lambda: None,
) -> Client:
    """Wait for the scheduler at an address, or for one to be named in a file, and return a client of it.

    `check_processes` is called every 20 ms while this waits, and may raise: Dask itself notices neither that a
    scheduler has ended nor that it accepted a connection and never answers. Raises TimeoutError if the scheduler has
    not answered within `seconds`; OSError, ValueError if it cannot be reached, or the address is invalid, or the file
    does not name a scheduler in time.
    """
    from distributed import Client  # may take longer than a scheduler needs to answer

    deadline = time.monotonic() + seconds
    while address is None and (address := _address_in_file(scheduler_file)) is None:
        check_processes()
        signals.raise_if_interrupted()
        if time.monotonic() > deadline:
            raise ValueError(f"{scheduler_file} contained no scheduler address within {seconds:.0f} s")
        time.sleep(LOOK_SECONDS)
    left = max(deadline - time.monotonic(), 1.0)

    call = functools.partial(Client, address=address, security=security, timeout=left, set_as_default=False)
    return _call_with_time_limit(call, left + 1.0, check_processes)


def _address_in_file(scheduler_file: str | Path | None) -> str | None:
    """Return the address in a scheduler's file; None if the file is missing or half written."""
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        return str(json.loads(read_regular_file(str(scheduler_file)))["address"])
    return None


def close_client(client: Client, seconds: float = CLOSE_SECONDS) -> None:
    """Close a Dask client; give up after `seconds` if its scheduler is gone or silent.

    In that case the client's event loop is stopped, which Dask leaves running: its errors would be printed after the
    result.
    """
    with contextlib.suppress(Exception):
        try:
            _call_with_time_limit(lambda: client.close(timeout=seconds), 2 * seconds)
        except Exception:
            _call_with_time_limit(lambda: client._loop_runner.stop(timeout=seconds), 2 * seconds)
            client.status = "closed"  # else it closes itself again, without a loop, when it is freed


def _call_with_time_limit(
    function: Callable[[], T], seconds: float, check_processes: Callable[[], None] = lambda: None
) -> T:
    """Call a function of Dask in a thread, and return its result; raises TimeoutError after `seconds`.

    Such calls have no time limit of their own, or none for a part of what they wait for. A late thread is abandoned.
    """
    outcome: Future[T] = Future()

    def run_function() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run_function, name="dask-client", daemon=True).start()
    deadline = time.monotonic() + seconds
    while not outcome.done():
        check_processes()
        signals.raise_if_interrupted()
        if time.monotonic() > deadline:
            raise TimeoutError(f"the scheduler did not answer within {seconds:.0f} s")
        with contextlib.suppress(TimeoutError):
            outcome.result(timeout=LOOK_SECONDS)
    return outcome.result()


def raise_for_ended_process(launcher: Launcher) -> None:
    """Raise LaunchFailed if a process of the launcher ended on its own while the cluster starts."""
    for ended in launcher.ended_processes():
        raise _process_start_error(
            launcher, ended.role, f"{ended.process_end_text} before it was ready", ended.log_tail
        )


def _process_start_error(launcher: Launcher, role: str, failure_text: str, log_tail: str | None = None) -> LaunchFailed:
    """Return the error for a process that did not start, with its rank, its host and the last lines of its log.

    `failure_text`: how the process failed, as a predicate.
    """
    host, number = launcher.hosts_by_process_role().get(role), role.removeprefix("worker-")
    rank = int(number) if number.isdecimal() else None
    name = f"the {role}" if rank is None else f"rank {rank} ({role})"
    tail = launcher.read_log_tail(role) if log_tail is None else log_tail
    return LaunchFailed(
        f"{name} on {host} {failure_text}", host=host, rank=rank, log_tail=tail or None, code="start-failed"
    )


def wait_for_workers(
    list_workers: Callable[[], Workers],
    launcher: Launcher,
    settings: ClusterSettings,
    wanted_count: int,
    deadline: float,
) -> Workers:
    """Wait until the cluster has `wanted_count` workers, and return all of its workers.

    `list_workers`: returns the workers that the scheduler has now. `deadline`: when to give up, as of
    ``time.monotonic()``. Raises UsageError if too few workers of a running cluster came in time, or some left since
    they were counted; LaunchFailed if a worker that the launcher started did not come up.
    """
    printed = launcher.owns_processes
    while len(workers := list_workers()) < wanted_count:
        raise_for_ended_process(launcher)
        if not printed:
            _print_awaited_workers(len(workers), wanted_count, settings)
            printed = True
        if time.monotonic() > deadline:
            came = f"only {len(workers)} of {wanted_count} workers connected within {settings.start_timeout:.0f} s"
            if not launcher.owns_processes:
                raise UsageError(came)
            present = {"scheduler", *(name for _, name in workers.values())}
            missing = next(role for role in launcher.hosts_by_process_role() if role not in present)
            raise _process_start_error(launcher, missing, f"did not start: {came}")
        signals.raise_if_interrupted()
        time.sleep(LOOK_SECONDS)
    return workers


def _print_awaited_workers(present_count: int, wanted_count: int, settings: ClusterSettings) -> None:
    """Print how many workers the run waits for; raises `UsageError` if no more workers can be expected."""
    cluster = f"the cluster at {settings.scheduler_address or settings.scheduler_file}"
    if settings.counted == wanted_count:
        had = f"{cluster} has {present_count} workers, but had {wanted_count} when this run began"
        raise UsageError(f"{had}; use --workers N to wait for N workers")
    print_message(
        f"waiting up to {settings.start_timeout:.0f} s for {wanted_count} workers; {cluster} now has"
        f" {present_count or 'none'}"
    )


def dashboard_link(scheduler_address: str | None, dashboard_port: int | None) -> str | None:
    """Return the URL of the Dask dashboard of the scheduler at this address; None without a port or an address."""
    if dashboard_port is None or scheduler_address is None:
        return None
    from distributed.comm.addressing import get_address_host
    from distributed.utils import format_dashboard_link

    host = get_address_host(scheduler_address)
    try:
        return str(format_dashboard_link(f"[{host}]" if ":" in host else host, dashboard_port))
    except KeyError:  # the site's template for such links contains a variable that is not set here
        return None


@contextlib.contextmanager
def _connect_to_running_cluster(
    address: str | None, scheduler_file: str | None, seconds: float, no_workers_advice: str = ""
) -> Iterator[tuple[Client, dict[str, Any]]]:
    """Connect to a running cluster, and yield a client and the description of each worker by its address.

    `no_workers_advice`: the end of the message if the cluster has no workers.
    """
    where = address or scheduler_file
    if scheduler_file and not Path(scheduler_file).exists():
        raise UsageError(f"--scheduler-file {scheduler_file}: there is no such file")
    with contextlib.ExitStack() as stack:
        try:
            client = open_client(address, scheduler_file, seconds=seconds)
            stack.callback(close_client, client)
            workers = client.sync(client.scheduler.identity, callback_timeout=seconds)["workers"]
        except (OSError, TimeoutError, ValueError) as error:
            raise UsageError(f"no scheduler answers at {where}: {error}") from error
        if not workers:
            raise UsageError(f"the cluster at {where} has no workers{no_workers_advice}")
        yield client, workers


def count_running_workers(address: str | None, scheduler_file: str | None, seconds: float = CONNECT_SECONDS) -> int:
    """Return the number of workers of a running cluster; raises UsageError if it has none or does not answer."""
    advice = "; use --workers N to wait for N workers, at most for --start-timeout"
    with _connect_to_running_cluster(address, scheduler_file, min(seconds, CONNECT_SECONDS), advice) as (_, workers):
        return len(workers)


def call_on_each_host(
    address: str | None, scheduler_file: str | None, function: Callable[[], T], seconds: float = CONNECT_SECONDS
) -> list[T]:
    """Call `function` on one worker of each host of a running cluster, and return the results in the hosts' order.

    Raises UsageError if the scheduler does not answer within `seconds`, or the workers do not answer in time.
    """
    with _connect_to_running_cluster(address, scheduler_file, seconds) as (client, workers):
        hosts = {str(about["host"]): worker for worker, about in reversed(workers.items())}
        return _call_on_workers(client, [hosts[host] for host in sorted(hosts)], function, address or scheduler_file)


def call_on_each_worker(address: str | None, scheduler_file: str | None, function: Callable[[], T]) -> dict[str, T]:
    """Call `function` on every worker of a running cluster, and return the results by the workers' Dask names.

    Raises UsageError if the scheduler or the workers do not answer in time.
    """
    with _connect_to_running_cluster(address, scheduler_file, CONNECT_SECONDS) as (client, workers):
        names = [str(about["name"]) for about in workers.values()]
        return dict(
            zip(names, _call_on_workers(client, list(workers), function, address or scheduler_file), strict=True)
        )


def _call_on_workers(
    client: Client, worker_addresses: list[str], function: Callable[[], T], cluster_text: str | None
) -> list[T]:
    futures = [client.submit(function, workers=[worker], pure=False) for worker in worker_addresses]
    try:
        return [future.result(timeout=ANSWER_SECONDS) for future in futures]
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise UsageError(f"the workers of the cluster at {cluster_text} do not answer: {problem}") from error


_redirections: list[Callable[[], None]] = []
"""What redirects the loggers that exist by now, while `redirect_library_output` does so."""


def import_dask() -> None:
    """Import Dask's client, and redirect its loggers, which it sets up when it is first imported."""
    import distributed as distributed

    for redirect_loggers in _redirections:
        redirect_loggers()


@contextlib.contextmanager
def redirect_library_output(log_file: Path) -> Iterator[None]:
    """Append the log lines of Dask's client, and what native code prints on standard output, to the file `log_file`.

    Within the block Dask's client is imported by `import_dask`. UCX prints its warnings on file descriptor 1 directly,
    so that `sys.stdout` never gets them. Lines that do not fit on a full disk are lost. Objects that a closed client
    leaves behind are freed before the block ends: asyncio then logs errors that no code has handled, such as the
    ``TimeoutError: Timeout`` of a wait that the closing cut short.
    """
    file = open(log_file, "a", opener=open_without_links, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
    handlers: list[logging.Handler] = [_SilentLogHandler(file)]
    before: dict[str, tuple[bool, list[logging.Handler]]] = {}

    def redirect_loggers() -> None:
        dask_loggers = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "distributed"]
        for name in ("distributed", "tornado", "asyncio", *dask_loggers):
            logger = logging.getLogger(name)
            if logger.handlers != handlers:
                before[name] = logger.propagate, list(logger.handlers)
            logger.propagate, logger.handlers = False, list(handlers)

    sys.stdout.flush()
    standard_output = os.dup(1)
    _redirections.append(redirect_loggers)
    try:
        os.dup2(file.fileno(), 1)
        redirect_loggers()
        yield
    finally:
        gc.collect()
        _redirections.remove(redirect_loggers)
        for name, earlier in before.items():
            logger = logging.getLogger(name)
            logger.propagate, logger.handlers = earlier
        os.dup2(standard_output, 1)
        os.close(standard_output)
        with contextlib.suppress(OSError):
            file.close()


class _SilentLogHandler(logging.StreamHandler[TextIO]):
    """A log handler that prints no error if a line cannot be written, for example on a full disk."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore that a log line could not be written."""


_ENCRYPTION = "distributed.comm.require-encryption"
_PLANNING = "dataframe.query-planning"


def unreadable_dask_config_text(error: ValueError) -> str | None:
    """Return a message about the configuration file that Dask cannot read, from the error of importing Dask.

    None if the error has another cause.
    """
    match = re.match(r"A dask config file at (['\"])(?P<file>.+?)\1 is malformed(?P<why>.*)", str(error), re.DOTALL)
    if match is None:
        return None
    lines = [line.strip() for line in match["why"].strip(" -,").splitlines() if line.strip()]
    if len(lines) > 1:  # the first only announces the parser's words, the last says where and what
        place = next((line for line in reversed(lines) if "line " in line), "")
        what = next((line for line in lines if line.startswith(("expected", "found", "could not"))), lines[1])
        lines = [" ".join(filter(None, (what, re.sub(r'^in "<.*?>", ', "at ", place))))]
    return (
        f"{match['file']}: Dask cannot read this configuration ({lines[0] if lines else 'it is malformed'}); correct"
        " the file"
    )


def dask_requires_encryption() -> bool:
    """Return whether Dask's configuration allows encrypted connections only."""
    return bool(_read_dask_setting(_ENCRYPTION))


def _read_dask_setting(key: str) -> object:
    """Return a setting of Dask's configuration; None if it is not set. Imports Dask only if anything is set."""
    if "dask" not in sys.modules and not _is_dask_configured():
        return None
    import dask.config

    return dask.config.get(key, None)


def _is_dask_configured() -> bool:
    """Return whether a variable or a configuration file sets anything of Dask.

    Comments set nothing: the file that Dask itself makes for a user consists of them.
    """
    if any(name.startswith("DASK_") for name in os.environ):
        return True
    prefixes = dict.fromkeys(["/", sys.prefix, *site.PREFIXES])
    places = [*(Path(prefix, "etc/dask") for prefix in prefixes), Path(os.path.expanduser("~"), ".config/dask")]
    try:
        files = [file for place in places if place.exists() for file in place.iterdir()]
        texts = [file.read_text() for file in files if file.suffix.lower() in (".json", ".yaml", ".yml")]
    except (OSError, ValueError):
        return True  # Dask says what is wrong with it
    lines = (line.strip() for text in texts for line in text.splitlines())
    return any(line and not line.startswith("#") for line in lines)


def check_dask_configuration(*, protocol: str, uses_dask_dataframes: bool) -> None:
    """Raise UsageError if Dask's configuration does not allow the run's connections (`protocol`) or its dataframes.

    `uses_dask_dataframes`: whether Dask's dataframes merge the tables.
    """
    if protocol != "tls" and dask_requires_encryption():
        sets = f"{_source_of_dask_setting(_ENCRYPTION)} sets {_ENCRYPTION}"
        raise UsageError(f"{sets}, so Dask refuses --protocol {protocol}; use --protocol tls")
    if uses_dask_dataframes and _read_dask_setting(_PLANNING) is False:
        sets = f"{_source_of_dask_setting(_PLANNING)} sets {_PLANNING} to False"
        only = "the dataframes of --exchange dask have query planning only"
        raise UsageError(f"{sets}, but {only}; remove the setting")


def _source_of_dask_setting(key: str) -> str:
    """Return the environment variable or the file that sets `key` in Dask's configuration."""
    import dask.config

    variable = "DASK_" + key.replace(".", "__").replace("-", "_").upper()
    if variable in os.environ:
        return variable
    for file, values in reversed([*dask.config.collect_yaml(dask.config.paths, return_paths=True)]):
        if isinstance(values, dict) and dask.config.get(key, None, config=values) is not None:
            return str(file)
    return "Dask's configuration"
