"""The jobs of a service: commands about them, and `run`, `probe` and `tune` on a service (``--service URL``)."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from merge_bench.cli.parameters import ListedGroup, decorated, json_option, results_option
from merge_bench.config.option import as_text
from merge_bench.config.options import BY_KEY, OPTIONS, RunOptions
from merge_bench.config.resolve import read_sources
from merge_bench.errors import Caution, GateNotMet, RunFailed, UsageError, WrongResult, one_stream, say, warn
from merge_bench.units import format_duration
from merge_bench.view.text import cut, short, visible

if TYPE_CHECKING:
    from merge_bench.analysis.documents.compare import CompareDocument
    from merge_bench.analysis.documents.error import Failure
    from merge_bench.records.campaign import Campaign
    from merge_bench.service.client import Client
    from merge_bench.service.documents import Job, JobRequest, Jobs

_VARIABLE, _RESULTS = BY_KEY["service"].variable, BY_KEY["results"]
_OLD_VARIABLE = BY_KEY["on"].variable
_HERE = ("service", "insecure", "results", "json", "details", "output", "csv_file", "plots", "references")
_POLL_SECONDS = 2.0
_SAID = "merge_bench: "
"""How a sentence of `say` begins."""
_SERVICE = decorated(
    click.option(
        "--service",
        "--on",
        "url",
        required=True,
        envvar=[_VARIABLE, _OLD_VARIABLE],
        show_envvar=True,
        metavar="URL",
        help="Address of the service.",
    ),
    results_option("Results folder of a service on this machine; its token is used if the environment has none."),
    click.option("--insecure", is_flag=True, help="Send the token over a network without TLS."),
    json_option(),
)
_JOB = decorated(click.argument("number", type=click.IntRange(0)), _SERVICE)


@click.group(cls=ListedGroup)
def jobs() -> None:
    """List, show or cancel the jobs of a service; `run --service URL` queues one.

    Your token is read from MERGE_BENCH_TOKEN, or from the file that MERGE_BENCH_TOKEN_FILE names.
    """


@jobs.command("list")
@_SERVICE
def list_jobs(**service: Any) -> None:
    """List the newest jobs: number, state, how long it waits or ran, who queued it, and the command."""
    _print(lambda client: client.jobs(), **service)


@jobs.command()
@_JOB
def show(number: int, **service: Any) -> None:
    """Show job NUMBER, with the end of its output."""
    _print(lambda client: client.job(number), **service)


@jobs.command()
@_JOB
def cancel(number: int, **service: Any) -> None:
    """Cancel job NUMBER, as Ctrl-C does: what it measured is kept."""
    _print(lambda client: client.cancel(number), **service)


def _print(ask: Callable[[Client], Job | Jobs], *, url: str, results: str, insecure: bool, as_json: bool) -> None:
    from merge_bench.service.client import Client
    from merge_bench.service.documents import Jobs
    from merge_bench.view.document import print_document

    found = ask(Client(url, results=Path(results), insecure=insecure))
    if as_json:
        print_document(found)
        return
    room = max(28, shutil.get_terminal_size().columns - 52)
    print(f"{'Job':>5}  {'State':12}  {'Time':>11}  {'Queued by':16}  Command")
    for job in found.jobs if isinstance(found, Jobs) else [found]:
        lasted = format_duration((job.ended or time.time()) - (job.started or job.created))
        command = visible(job.command.removeprefix("merge-bench "))
        by = f"schedule {job.schedule}" if job.schedule else job.who
        print(f"{job.id:5}  {job.shown_state:12}  {lasted:>11}  {short(visible(by), 16):16}  {short(command, room)}")
        if job.message and job.message != job.state:
            print(" " * 6, short(visible(job.message), 73))
        if job is found:
            print(f"{command}\n{_lines(job.log or '')}", end="")


def _lines(text: str) -> str:
    return "".join(f"{visible(line)}\n" for line in text.splitlines())


def service_of(options: RunOptions) -> str | None:
    """The address of the service that runs the command, if there is one."""
    if named := options.service or os.environ.get(_VARIABLE):
        return named
    old = as_text(options.on or os.environ.get(_OLD_VARIABLE, ""))
    return old_form(old) if re.search(r"(^|,)https?://", old) else None


def old_form(address: str | None) -> str | None:
    """The address of a service that ``--on`` names, with a warning; None as it is."""
    if address:
        warn(Caution("old-name", "--on names key columns; it takes addresses in this release only", "use --service"))
    return address


def on_service(url: str, command: str, options: RunOptions, *, details: bool) -> tuple[Campaign, Failure | None, int]:
    """Queue a job, follow it, and bring its records home; gives them, why it failed, and its exit status.

    Where the job's output has been printed already, only the end of standard output is printed.
    """
    from msgspec.structs import replace

    from merge_bench.analysis.documents.error import Failure
    from merge_bench.cli.campaigns import given_options
    from merge_bench.cluster import signals
    from merge_bench.config.shipped import SUFFIX, find_config
    from merge_bench.records.reader import read_campaign
    from merge_bench.service.client import PATIENCE_SECONDS, Client
    from merge_bench.view.titles import tunes

    if options.dry_run:
        raise UsageError("--dry-run shows what this machine would start; it cannot be combined with a service")
    results = Path(read_sources(options, None, os.environ, [_RESULTS]).results)
    client = Client(url, results=results, wait=PATIENCE_SECONDS, insecure=options.insecure)
    (request, typed), printed = _request(command), [""]
    try:
        with signals.raising():
            job = _follow(client, client.add(request).id, printed)
    except signals.Interrupted as interrupted:
        number = client.add(request).id  # the same job, by its key
        later = f"python -m merge_bench jobs cancel {number} --service {url}"
        say(f"{interrupted}; cancelling job {number}; Ctrl-C again leaves at once, and this cancels it later: {later}")
        job = _follow(client, client.cancel(number).id, printed)
    status, error = 0, None
    if job.state != "done":
        kinds = {each.exit_status: each for each in (UsageError, WrongResult, GateNotMet) if job.state == "failed"}
        kind = kinds.get(job.status or 0, RunFailed)
        said = [line for line in printed[0].splitlines() if line.startswith(_SAID)]  # the last sentence is why
        why = job.message or (said[-1].removeprefix(_SAID) if said else job.state)
        error = Failure(kind.code, visible(f"job {job.id} of {url}: {why}"))
        if job.result is None:
            raise kind(error.message)
        status = kind.exit_status
        say(visible(f"job {job.id} of {url}: {job.message or job.state}"))
    try:
        campaign = read_campaign(client.fetch_records(job, results))
    except UsageError as unreadable:
        raise RunFailed(str(unreadable)) from None
    # Here the result is of the command that was typed, with the user's own files.
    own = {find_config(name).name.removesuffix(SUFFIX): name for name in typed}
    configs = [replace(each, path=own.get(each.name)) for each in campaign.head.configs]
    head = replace(campaign.head, argv=list(sys.argv), options=given_options(), configs=configs)
    campaign = dataclasses.replace(campaign, head=head)
    found = f"probe {campaign.probe}" if campaign.probe else "tune" if tunes(campaign) else "run"
    if found != command or not campaign.head.configs:
        raise RunFailed(f"job {job.id} of {url} has records of `{visible(cut(found))}`, not of `{command}`")
    if one_stream() and not options.json and not details:
        click.get_current_context().with_resource(_only_the_end(campaign.records))
    return campaign, error, status


@contextlib.contextmanager
def _only_the_end(records: Path) -> Iterator[None]:
    """Print no more than what comes next and where files are: the rest has been printed by the job."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        yield
    _, found, end = printed.getvalue().rpartition("\nNext: ")
    print(f"{found.lstrip()}{end.partition(chr(10) * 2)[0].rstrip()}" if found else f"Records: {records}")


def gate_at_home(campaign: Campaign, options: RunOptions) -> CompareDocument | None:
    """The comparison that a job's gate made, unless the earlier result has never been brought home."""
    from merge_bench.history.gates import Gate

    against = options.against and str(campaign.folder.parent / options.against)
    if against and not Path(against).is_dir():
        return None
    gate = Gate.from_options(
        dataclasses.replace(options, against=against), compared=len(set(campaign.labels)), runs=len(campaign.runs)
    )
    return gate.evaluate(campaign)[0] if gate else None


def _follow(client: Client, number: int, printed: list[str]) -> Job:
    """Print on standard error what is new about a job until it ends; `printed`: the end of its log so far."""
    ahead = -1
    while True:
        job = client.job(number)
        if job.state == "queued" and job.ahead != ahead:
            ahead = job.ahead
            say(f"job {job.id} is queued at {client.url}; jobs before it: {ahead}")
        before, log = printed[0], "".join((job.log or "").rpartition("\n")[:2])  # whole lines
        if not log.startswith(before):
            log = log.partition("\n")[2]  # the first line may be cut
            before = next(log[:size] for size in range(len(log), -1, -1) if before.endswith(log[:size]))
        print(_lines(log[len(before) :]), end="", file=sys.stderr, flush=True)
        printed[0] = log
        if job.state not in ("queued", "running"):
            return job
        time.sleep(_POLL_SECONDS)


def job_request(root: click.Command, words: Sequence[str]) -> JobRequest:
    """The job that the words of a command below `root` ask for, its values as text; the service's rules judge them."""
    from merge_bench.service.documents import JobRequest

    command, names, rest, context = root, list[str](), list(words), click.Context(root)
    while isinstance(command, click.Group) and rest:
        name, found, rest = command.resolve_command(context, rest)
        command, names = found or command, [*names, name or ""]
        context = click.Context(command, parent=context)
    given, _, _ = command.make_parser(context).parse_args(rest)
    # What was not given is None, or an object of click.
    options: dict[str, Any] = {key: each for key, each in given.items() if isinstance(each, str | bool | list | tuple)}
    named = (options.pop(key, "") for key in ("named", "baseline", "config", "configs"))
    texts = ",".join(each if isinstance(each, str) else ",".join(each) for each in named)
    configs = list(dict.fromkeys(filter(None, texts.split(","))))
    return JobRequest(command=" ".join(names), options=options, configs=configs, resume=True)


def _request(command: str) -> tuple[JobRequest, list[str]]:
    """The job of this command and the configs as they were typed.

    With the options that are in the environment; a config of the user becomes settings.
    """
    from msgspec.structs import replace

    from merge_bench.config.shipped import FOLDER, SUFFIX, find_config
    from merge_bench.service.rules import read_settings, settings_file_name

    context = click.get_current_context()
    typed = job_request(context.find_root().command, [*command.split(), *context.obj])
    known = {param.name for param in context.command.params}
    options = {
        option.key: option.parse(text) if option.flag else text
        for option in OPTIONS
        if option.in_config and option.key in known and (text := os.environ.get(option.variable))
    } | typed.options
    paths, settings, name = [find_config(name) for name in typed.configs], dict[str, str](), None
    if not all(path.resolve().parent == FOLDER for path in paths):
        if len(paths) > 1:
            raise UsageError("a service compares shipped configs only; name those, or one file")
        own = paths.pop()
        settings, name = read_settings(own), own.name.removesuffix(SUFFIX)
        settings_file_name(settings, name)  # refused here if the service would refuse it
        say(f"{typed.configs[0]} is sent as settings; its results have the config name {name}")
    request = replace(
        typed, options={
            name: value
            for name, value in options.items()
            if name not in _HERE and not (name == "on" and "://" in as_text(value))
        },
        configs=[path.name for path in paths], settings=settings, name=name, key=secrets.token_hex(16),
    )  # fmt: skip
    return request, typed.configs
