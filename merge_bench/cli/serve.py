"""The commands of the service: `serve`, and the tokens of its clients."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import Any

import click

from merge_bench.cli.parameters import CONTEXT, ListedGroup, Parsed, count_option, results_option
from merge_bench.config import parsers
from merge_bench.errors import RunFailed, UsageError, say


def _names(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not (value.isprintable() and 0 < len(value) <= 60) or value != value.strip():
        raise UsageError("--name is 1 to 60 printable characters")
    return value


@click.group(cls=ListedGroup, context_settings=CONTEXT, invoke_without_command=True)
@results_option("Folder of the results; the service keeps its jobs and tokens there, too.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=5007, show_default=True, metavar="N", help="Port; 0: any free one."
)
@click.option("--address", default="127.0.0.1", show_default=True, metavar="ADDRESS",
              help="Address to listen on; any other than loopback needs --tls-cert or --insecure.")  # fmt: skip
@click.option("--host-name", "host_names", multiple=True, metavar="NAME[:PORT]",
              help="Name by which clients reach it, with the port of a proxy; may be repeated.")  # fmt: skip
@click.option("--tls-cert", metavar="FILE", help="Certificate, as PEM; serves https.")
@click.option("--tls-key", metavar="FILE", help="Private key of the certificate, as PEM.")
@click.option("--insecure", is_flag=True,
              help="Serve other machines without TLS. Anyone who can read the traffic gets the tokens.")  # fmt: skip
@click.option("--tables", multiple=True, metavar="DIR",
              help="Folder of Parquet tables that jobs may merge; may be repeated.")  # fmt: skip
@count_option("--queue-limit", "N", "Number of jobs that can wait.", default=1000)
@click.option("--job-time", type=Parsed("DURATION", parsers.duration), default="4h", show_default=True,
              metavar="DURATION", help="Longest time of a job.")  # fmt: skip
@count_option("--request-limit", "N", "Number of requests a minute of each token.", default=600)
@click.option("--check", is_flag=True, help="Check the settings and the folder without starting the service.")
@click.pass_context
def serve(ctx: click.Context, /, **values: Any) -> int | None:
    """Run jobs of several clients one after the other, with a queue, tokens and an HTTP interface.

    Clients send jobs to /api/jobs; /api/openapi.json describes all requests. Your own token is in the file
    RESULTS/.service/token.
    """
    if ctx.invoked_subcommand is not None:
        ctx.obj = values["results"]
        return None
    from merge_bench.service import serve as service
    from merge_bench.service.api import Limits

    if bool(values["tls_cert"]) != bool(values["tls_key"]):
        raise UsageError("--tls-cert and --tls-key belong together; give both")
    tls = (Path(values["tls_cert"]), Path(values["tls_key"])) if values["tls_cert"] else None
    settings = service.Settings(
        Path(values["results"]), port=values["port"], address=values["address"],
        tables=[Path(each) for each in values["tables"]], host_names=values["host_names"], tls=tls,
        insecure=values["insecure"],
        limits=Limits(
            queue=values["queue_limit"], job_seconds=values["job_time"], requests=values["request_limit"]
        ),
    )  # fmt: skip
    if not values["check"]:
        return service.serve(settings)
    problems = service.check(settings)
    for problem in problems:
        say(problem)
    if not problems:
        with contextlib.closing(service.open_store(settings.results)) as store:
            newest = [f"job {job.id}" for job in store.jobs(limit=1)]
        print(f"The service can start; its newest job: {(newest or ['none'])[0]}.")
    return RunFailed.exit_status if problems else 0


@serve.group(cls=ListedGroup, context_settings=CONTEXT)
def token() -> None:
    """Add, list or remove the tokens of clients; give --results before `token`."""


@token.command(context_settings=CONTEXT)
@click.option("--name", required=True, metavar="NAME", callback=_names, help="Whose token it is.")
@click.option("--role", type=click.Choice(["read", "run"]), default="read", show_default=True,
              help="read: look at jobs and results; run: also queue jobs and cancel its own.")  # fmt: skip
@click.pass_obj
def add(results: str, name: str, role: str) -> None:
    """Make a token and print it, once: only its hash is kept."""
    from merge_bench.service.serve import open_store

    with contextlib.closing(open_store(Path(results))) as store:
        print(store.add_token(name, role))
    print("Keep it in a file that only its user can read; it is not shown again.", file=sys.stderr)


@token.command("list", context_settings=CONTEXT)
@click.pass_obj
def list_tokens(results: str) -> None:
    """List names and roles of all tokens."""
    from merge_bench.service.serve import open_store

    with contextlib.closing(open_store(Path(results))) as store:
        for found, created in store.tokens():
            print(f"{found.role:4}  {time.strftime('%Y-%m-%d', time.gmtime(created))}  {found.name}")


@token.command(context_settings=CONTEXT)
@click.argument("name")
@click.pass_obj
def remove(results: str, name: str) -> None:
    """Remove the token named NAME; it is refused from then on."""
    from merge_bench.service.serve import open_store

    with contextlib.closing(open_store(Path(results))) as store:
        store.remove_token(name)
