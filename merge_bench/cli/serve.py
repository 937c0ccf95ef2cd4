"""The commands of the service: `serve`, its schedules, and the tokens of its clients."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from merge_bench.cli.jobs import job_request
from merge_bench.cli.parameters import (
    PATH,
    ListedGroup,
    ParsedValue,
    choice_option,
    count_option,
    port_option,
    results_option,
)
from merge_bench.config import parsers
from merge_bench.errors import UsageError

if TYPE_CHECKING:
    from merge_bench.service.store import Store


class ServiceOptions(NamedTuple):
    """The options of `serve` that its subcommands need: the results folder, and folders of tables."""

    results: Path
    tables: Sequence[Path]


@click.group(cls=ListedGroup, invoke_without_command=True)
@results_option("Folder of the results; the service keeps its jobs and tokens there, too.")
@port_option(5007)
@click.option("--address", default="127.0.0.1", show_default=True, metavar="ADDRESS",
              help="Address to listen on; any other than loopback needs --tls-cert or --insecure.")  # fmt: skip
@click.option("--host-name", "host_names", multiple=True, metavar="NAME[:PORT]",
              help="Name by which clients reach it, with the port of a proxy; may be repeated.")  # fmt: skip
@click.option("--tls-cert", type=PATH, metavar="FILE", help="Certificate, as PEM; serves https.")
@click.option("--tls-key", type=PATH, metavar="FILE", help="Private key of the certificate, as PEM.")
@click.option("--insecure", is_flag=True,
              help="Serve other machines without TLS. Anyone who can read the traffic gets the tokens.")  # fmt: skip
@click.option("--tables", multiple=True, type=PATH, metavar="DIR",
              callback=lambda ctx, param, names: tuple(map(Path, names)),
              help="Folder of Parquet tables that jobs may merge; may be repeated.")  # fmt: skip
@count_option("--queue-limit", "N", "Number of jobs that can wait.", default=1000)
@click.option("--job-time", type=ParsedValue("DURATION", parsers.duration), default="4h", show_default=True,
              metavar="DURATION", help="Longest time of a job.")  # fmt: skip
@count_option("--request-limit", "N", "Number of requests a minute of each token.", default=600)
@click.option("--check", is_flag=True, help="Check the settings and the folder without starting the service.")
@click.pass_context
def serve(
    ctx: click.Context,
    /,
    check: bool,
    results: str,
    queue_limit: int,
    job_time: float,
    request_limit: int,
    tables: Sequence[Path],
    tls_cert: str | None,
    tls_key: str | None,
    **more: Any,
) -> int:
    """Run jobs of several clients one after the other, with a queue, tokens and an HTTP interface.

    Clients send jobs to /api/jobs; /api/openapi.json describes all requests. Your own token is in the file
    RESULTS/.service/token.
    """
    if ctx.invoked_subcommand is not None:
        ctx.obj = ServiceOptions(Path(results), tables)
        return 0
    from merge_bench.service import serve as service
    from merge_bench.service.api import Limits

    if bool(tls_cert) != bool(tls_key):
        raise UsageError("--tls-cert and --tls-key belong together; give both")
    limits = Limits(queue_limit, job_time, request_limit)
    settings = service.Settings(Path(results), tables=tables, tls_cert=tls_cert, tls_key=tls_key, limits=limits, **more)
    if not check:
        from merge_bench.dashboard.app import make_pages

        return service.serve(settings, make_pages)
    print(f"The service can start; its newest job: {service.check_service(settings)}.")
    return 0


def _open_store(options: ServiceOptions) -> Store:
    """Open the store of the service, which may be running; it is closed when the command ends."""
    from merge_bench.service.store import open_store

    opened = contextlib.closing(open_store(options.results))
    return click.get_current_context().with_resource(opened)


_ANYWAY_OPTION = click.option("--anyway", is_flag=True, help="Add it even if no service of these results is running.")


def _store_of_running_service(options: ServiceOptions, *, anyway: bool, what: str) -> Store:
    """Open the store of a service; raises UsageError, which says `what`, if none is running, unless `anyway`."""
    from merge_bench.service.store import is_served

    results = options.results
    if not anyway and not is_served(results):
        raise UsageError(
            f"no service of {results} is running on this machine, so {what}; start it (merge-bench serve --results"
            f" {shlex.quote(str(results))}), name its folder (merge-bench serve --results FOLDER …), or use --anyway"
        )
    return _open_store(options)


@serve.group(cls=ListedGroup)
def token() -> None:
    """Add, list or remove the tokens of clients; give --results before `token`."""


@token.command()
@click.option("--name", required=True, metavar="NAME", help="Whose token it is.")
@choice_option("--role", ["read", "run"], "read: look at jobs and results; run: also queue jobs and cancel its own.")
@_ANYWAY_OPTION
@click.pass_obj
def add(options: ServiceOptions, name: str, role: str, anyway: bool) -> None:
    """Make a token and print it, once: only its hash is kept."""
    print(
        _store_of_running_service(options, anyway=anyway, what="nothing would accept this token").add_token(name, role)
    )
    print("Keep it in a file that only its user can read; it is not shown again.", file=sys.stderr)


@token.command("list")
@click.pass_obj
def list_tokens(options: ServiceOptions) -> None:
    """List names and roles of all tokens."""
    tokens = _open_store(options).tokens()
    _print_list("token", [f"{each.role:4}  {_utc_time(each.created)[:10]}  {each.name}" for each in tokens])


@token.command()
@click.argument("name")
@click.pass_obj
def remove(options: ServiceOptions, name: str) -> None:
    """Remove the token named NAME and its schedules; it is refused from then on."""
    _open_store(options).remove_token(name)
    print(f"The token {name} and its schedules are removed.")


@serve.group(cls=ListedGroup)
def schedule() -> None:
    """Add, list or remove schedules; give --results and --tables as for the service, before `schedule`."""


@schedule.command("add")
@click.option("--name", required=True, metavar="NAME", help="Name of the schedule.")
@click.option("--at", required=True, metavar="HH:MM", help="Time of day, such as 02:30.")
@click.option("--days", default="daily", show_default=True, metavar="DAYS", help="Days, such as mon-fri or sat,sun.")
@click.option("--zone", default="UTC", show_default=True, metavar="ZONE", help="Time zone, such as Europe/Berlin.")
@choice_option("--missed", ["skip", "run"], "If the service did not run then: wait for the next time (skip), or run the"
               " job once when it runs again (run).")  # fmt: skip
@_ANYWAY_OPTION
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND [OPTION]...")
@click.pass_obj
def add_schedule(options: ServiceOptions, /, words: tuple[str, ...], anyway: bool, **values: Any) -> None:
    """Queue COMMAND again and again: `run`, `tune` or a `probe`, with the options that a job may have."""
    from merge_bench.service import schedules
    from merge_bench.service.documents import ScheduleRequest
    from merge_bench.service.job_rules import Rules
    from merge_bench.service.store import LOCAL

    root = click.get_current_context().find_root().command
    request = ScheduleRequest(job=job_request(root, words), **values)
    store = _store_of_running_service(options, anyway=anyway, what="this schedule would never run")
    added = schedules.add(store, Rules(options.results.resolve(), options.tables), LOCAL, request)
    print(f"{added.name} begins at {_utc_time(added.next)}.")


@schedule.command("list")
@click.pass_obj
def list_schedules(options: ServiceOptions) -> None:
    """List all schedules, with their next times and why no job was queued the last time."""
    _print_list("schedule", [
        f"{each.name}  {each.at} {each.days} {each.zone}, next {_utc_time(each.next)}  {each.who}  {each.command}"
        + (f"\n  no job the last time: {each.message}" if each.message is not None else "")
        for each in _open_store(options).schedules()
    ])  # fmt: skip


@schedule.command("remove")
@click.argument("name")
@click.pass_obj
def remove_schedule(options: ServiceOptions, name: str) -> None:
    """Remove the schedule named NAME; a job that it has queued stays."""
    if not _open_store(options).remove_schedule(name):
        raise UsageError(f"there is no schedule named {name}")
    print(f"The schedule {name} is removed; a job that it has queued stays.")


def _print_list(what: str, lines: Sequence[str]) -> None:
    """Print lines, or on standard error that there is no `what` yet."""
    print("\n".join(lines) or f"There is no {what} yet.", file=None if lines else sys.stderr)


def _utc_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
