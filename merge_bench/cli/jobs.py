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

from merge_bench.cli.parameters import ListedGroup, combine_decorators, json_option, results_option
from merge_bench.config.option import as_text
from merge_bench.config.options import BY_KEY, OPTIONS, RunOptions
from merge_bench.config.resolve import read_sources
from merge_bench.errors import Caution, GateNotMet, RunFailed, UsageError, WrongResult, say, stdout_is_stderr, warn
from merge_bench.units import format_duration
from merge_bench.view.text import cut, short, visible

if TYPE_CHECKING:
    from merge_bench.analysis.documents import CompareDocument, Failure
    from merge_bench.records.campaign import Campaign
    from merge_bench.service.client import Client
    from merge_bench.service.documents import Job, JobRequest, Jobs

_SERVICE_VARIABLE, _RESULTS_OPTION = BY_KEY["service"].variable, BY_KEY["results"]
_OLD_VARIABLE = BY_KEY["on"].variable
_LOCAL_OPTIONS = ("service", "insecure", "results", "json", "details", "output", "csv_file", "plots", "references")
_POLL_SECONDS = 2.0
_SENTENCE_BEGIN = "merge_bench: "
"""The beginning of every message that `say` prints."""
_SERVICE_OPTIONS = combine_decorators(
    click.option(
        "--service",
        "--on",
        "url",
        required=True,
        envvar=[_SERVICE_VARIABLE, _OLD_VARIABLE],
        show_envvar=True,
        metavar="URL",
        help="Address of the service.",
    ),
    results_option("Results folder of a service on this machine; its token is used if the environment has none."),
    click.option("--insecure", is_flag=True, help="Send the token over a network without TLS."),
    json_option(),
)
_JOB_PARAMETERS = combine_decorators(click.argument("number", type=click.IntRange(0)), _SERVICE_OPTIONS)


@click.group(cls=ListedGroup)
def jobs() -> None:
    """List, show or cancel the jobs of a service; `run --service URL` queues one.

    Your token is read from MERGE_BENCH_TOKEN, or from the file that MERGE_BENCH_TOKEN_FILE names.
    """


@jobs.command("list")
@_SERVICE_OPTIONS
def list_jobs(**service: Any) -> None:
    """List the newest jobs: number, state, how long it waits or ran, who queued it, and the command."""
    _print_jobs(lambda client: client.jobs(), **service)


@jobs.command()
@_JOB_PARAMETERS
def show(number: int, **service: Any) -> None:
    """Show job NUMBER, with the end of its output."""
    _print_jobs(lambda client: client.job(number), **service)


@jobs.command()
@_JOB_PARAMETERS
def cancel(number: int, **service: Any) -> None:
    """Cancel job NUMBER, as Ctrl-C does: what it measured is kept."""
    _print_jobs(lambda client: client.cancel(number), **service)


def _print_jobs(
    request: Callable[[Client], Job | Jobs], *, url: str, results: str, insecure: bool, as_json: bool
) -> None:
    from merge_bench.service.client import Client
    from merge_bench.service.documents import Jobs
    from merge_bench.view.document import print_document

    answer = request(Client(url, results=Path(results), insecure=insecure))
    if as_json:
        print_document(answer)
        return
    room = max(28, shutil.get_terminal_size().columns - 52)
    print(f"{'Job':>5}  {'State':12}  {'Time':>11}  {'Queued by':16}  Command")
    for job in answer.jobs if isinstance(answer, Jobs) else [answer]:
        lasted = format_duration((job.ended or time.time()) - (job.started or job.created))
        command = visible(job.command.removeprefix("merge-bench "))
        by = f"schedule {job.schedule}" if job.schedule else job.who
        print(f"{job.id:5}  {job.shown_state:12}  {lasted:>11}  {short(visible(by), 16):16}  {short(command, room)}")
        if job.message and job.message != job.state:
            print(" " * 6, short(visible(job.message), 73))
        if job is answer:
            print(f"{command}\n{_visible_lines(job.log or '')}", end="")


def _visible_lines(text: str) -> str:
    """The lines of `text` without unprintable characters, each with its line end."""
    return "".join(f"{visible(line)}\n" for line in text.splitlines())


def service_address(options: RunOptions) -> str | None:
    """The address of the service that is to run the command; None if it runs on this machine."""
    if named := options.service or os.environ.get(_SERVICE_VARIABLE):
        return named
    old = as_text(options.on or os.environ.get(_OLD_VARIABLE, ""))
    return address_of_old_option(old) if re.search(r"(^|,)https?://", old) else None


def address_of_old_option(address: str | None) -> str | None:
    """Return `address`, which ``--on``, the old name of ``--service``, gave; warn about that name unless it is None."""
    if address:
        warn(Caution("old-name", "--on names key columns; it takes addresses in this release only", "use --service"))
    return address


def run_on_service(
    url: str, command: str, options: RunOptions, *, details: bool
) -> tuple[Campaign, Failure | None, int]:
    """Run `command` as a job of the service at `url`, and copy its records here.

    Returns the campaign, why the job failed, and its exit status. Where standard output already has the job's output,
    only the end of the report is printed.
    """
    from msgspec.structs import replace

    from merge_bench.analysis.documents import Failure
    from merge_bench.cli.campaigns import given_options
    from merge_bench.cluster import signals
    from merge_bench.config.shipped import SUFFIX, find_config
    from merge_bench.records.reader import read_campaign
    from merge_bench.service.client import PATIENCE_SECONDS, Client
    from merge_bench.view.titles import is_tuning_campaign

    if options.dry_run:
        raise UsageError("--dry-run shows what this machine would start; it cannot be combined with a service")
    results = Path(read_sources(options, None, os.environ, [_RESULTS_OPTION]).results)
    client = Client(url, results=results, wait=PATIENCE_SECONDS, insecure=options.insecure)
    (request, typed), printed = _request_and_configs(command), [""]
    try:
        with signals.raising():
            job = _follow_job(client, client.add(request).id, printed)
    except signals.Interrupted as interrupted:
        number = client.add(request).id  # the same job, by its key
        later = f"python -m merge_bench jobs cancel {number} --service {url}"
        say(f"{interrupted}; cancelling job {number}; Ctrl-C again leaves at once, and this cancels it later: {later}")
        job = _follow_job(client, client.cancel(number).id, printed)
    status, error = 0, None
    if job.state != "done":
        kinds = {each.exit_status: each for each in (UsageError, WrongResult, GateNotMet) if job.state == "failed"}
        kind = kinds.get(job.status or 0, RunFailed)
        messages = [line for line in printed[0].splitlines() if line.startswith(_SENTENCE_BEGIN)]  # the last is why
        why = job.message or (messages[-1].removeprefix(_SENTENCE_BEGIN) if messages else job.state)
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
    recorded = f"probe {campaign.probe}" if campaign.probe else "tune" if is_tuning_campaign(campaign) else "run"
    if recorded != command or not campaign.head.configs:
        raise RunFailed(f"job {job.id} of {url} has records of `{visible(cut(recorded))}`, not of `{command}`")
    if stdout_is_stderr() and not options.json and not details:
        click.get_current_context().with_resource(_only_the_end(campaign.records))
    return campaign, error, status


@contextlib.contextmanager
def _only_the_end(records: Path) -> Iterator[None]:
    """Of what the block prints, keep the next command and the places of files: the job has printed the rest."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        yield
    _, next_step, end = printed.getvalue().rpartition("\nNext: ")
    print(f"{next_step.lstrip()}{end.partition(chr(10) * 2)[0].rstrip()}" if next_step else f"Records: {records}")


def comparison_of_gate(campaign: Campaign, options: RunOptions) -> CompareDocument | None:
    """Compare again as a job's gate did; None without a gate, or if the earlier result is not on this machine."""
    from merge_bench.regressions.gates import Gate

    against = options.against and str(campaign.folder.parent / options.against)
    if against and not Path(against).is_dir():
        return None
    gate = Gate.from_options(
        dataclasses.replace(options, against=against), compared=len(set(campaign.labels)), runs=len(campaign.runs)
    )
    return gate.evaluate(campaign)[0] if gate else None


def _follow_job(client: Client, number: int, printed: list[str]) -> Job:
    """Print what is new about a job on standard error until the job ends; returns the job.

    `printed`: one text, the end of the job's log that has been printed; it is replaced.
    """
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
        print(_visible_lines(log[len(before) :]), end="", file=sys.stderr, flush=True)
        printed[0] = log
        if job.state not in ("queued", "running"):
            return job
        time.sleep(_POLL_SECONDS)


def job_request(root: click.Command, words: Sequence[str]) -> JobRequest:
    """The job that a command line below `root` asks for; values stay text, which the service's rules judge."""
    from merge_bench.service.documents import JobRequest

    command, names, rest, context = root, list[str](), list(words), click.Context(root)
    while isinstance(command, click.Group) and rest:
        name, subcommand, rest = command.resolve_command(context, rest)
        command, names = subcommand or command, [*names, name or ""]
        context = click.Context(command, parent=context)
    values, _, _ = command.make_parser(context).parse_args(rest)
    # What was not given is None, or an object of click.
    options: dict[str, Any] = {key: each for key, each in values.items() if isinstance(each, str | bool | list | tuple)}
    config_values = (options.pop(key, "") for key in ("named", "baseline", "config", "configs"))
    texts = ",".join(each if isinstance(each, str) else ",".join(each) for each in config_values)
    configs = list(dict.fromkeys(filter(None, texts.split(","))))
    return JobRequest(command=" ".join(names), options=options, configs=configs, resume=True)


def _request_and_configs(command: str) -> tuple[JobRequest, list[str]]:
    """The job that this command asks for, and the names of its configs as they were typed.

    Options in the environment are among those of the job; a config file of the user is sent as settings.
    """
    from msgspec.structs import replace

    from merge_bench.config.shipped import FOLDER, SUFFIX, find_config
    from merge_bench.service.job_rules import read_settings, settings_file_name

    context = click.get_current_context()
    typed = job_request(context.find_root().command, [*command.split(), *context.obj])
    own_keys = {param.name for param in context.command.params}
    options = {
        option.key: option.parse(text) if option.flag else text
        for option in OPTIONS
        if option.in_config and option.key in own_keys and (text := os.environ.get(option.variable))
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
            if name not in _LOCAL_OPTIONS and not (name == "on" and "://" in as_text(value))
        },
        configs=[path.name for path in paths], settings=settings, name=name, key=secrets.token_hex(16),
    )  # fmt: skip
    return request, typed.configs
