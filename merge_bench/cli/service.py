"""The service: `serve`, its schedules and tokens; its jobs; commands that measure on it (``--service URL``)."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from merge_bench.cli import common
from merge_bench.config import parsers
from merge_bench.config.option import format_option_value, parse_option_text
from merge_bench.config.options import BY_KEY, OPTIONS, RunOptions, read_option_sources, refuse_address_as_columns
from merge_bench.errors import (
    GateNotMet,
    GateWithoutBaseline,
    RunFailed,
    UsageError,
    WarningMessage,
    WrongResult,
    print_message,
    print_warning,
    stdout_and_stderr_are_same,
)
from merge_bench.units import format_duration
from merge_bench.view.text import mark_unprintable, shorten_middle, truncate

if TYPE_CHECKING:
    from merge_bench.analysis.documents import CompareDocument, Failure
    from merge_bench.records.campaign import Campaign
    from merge_bench.service.client import Client
    from merge_bench.service.documents import Job, JobList, JobRequest
    from merge_bench.service.store import ServiceStore

_SERVICE_VARIABLE, _RESULTS_OPTION = BY_KEY["service"].environment_variable, BY_KEY["results"]
_LOCAL_OPTIONS = ("service", "insecure", "results", "json", "details", "output", "csv_file", "plots", "references")
_POLL_SECONDS = 2.0
_COPIED = ", copied to this machine"
_SENTENCE_BEGIN = "merge_bench: "
"""The beginning of every message that `print_message` prints."""
NO_OWN_COMMAND = "a service runs only commands that its operator named; use --named NAME instead of COMMAND"
_SERVICE_OPTIONS = common.combine_decorators(
    common.text_option(
        "--service --on url",
        "URL",
        "Address of the service.",
        type=common.ParsedValue("URL", parsers.parse_service_address),
        required=True,
        envvar=_SERVICE_VARIABLE,
        show_envvar=True,
    ),
    common.results_option(
        "Results folder of a service on this machine; its token is used if the environment has none."
    ),
    common.flag_option("--insecure", "Send the token over a network without TLS."),
    common.json_option(),
)


def _parse_job_number(text: str) -> int:
    """Parse the number of a job; raises ValueError if `text` is none."""
    if not re.fullmatch("[0-9]{1,18}", text):
        raise ValueError(f"{text!r} is not the number of a job, such as 7; `jobs list` shows the numbers")
    return int(text)


_JOB_PARAMETERS = common.combine_decorators(
    click.argument("number", type=common.ParsedValue("NUMBER", _parse_job_number)), _SERVICE_OPTIONS
)


@click.group("jobs", cls=common.FullHelpGroup)
def job_commands() -> None:
    """List, show or cancel the jobs of a service; `run --service URL` queues one.

    Your token is read from MERGE_BENCH_TOKEN, or from the file that MERGE_BENCH_TOKEN_FILE names.
    """


@job_commands.command("list")
@_SERVICE_OPTIONS
def list_jobs(**service: Any) -> None:
    """List the newest jobs: number, state, how long it waits or ran, who queued it, and the command."""
    _print_jobs(lambda client: client.fetch_jobs(), **service)


@job_commands.command("show")
@_JOB_PARAMETERS
def show_job(number: int, **service: Any) -> None:
    """Show job NUMBER, with the end of its output."""
    _print_jobs(lambda client: client.fetch_job(number), **service)


@job_commands.command("cancel")
@_JOB_PARAMETERS
def cancel_job(number: int, *, url: str, results: str, insecure: bool, as_json: bool) -> None:
    """Cancel job NUMBER, as Ctrl-C does: what it measured is kept. One that has ended stays as it is."""
    from merge_bench.service.client import Client
    from merge_bench.view.streams import print_document

    client = Client(url, results=Path(results), insecure=insecure)
    job = client.fetch_job(number)
    had_ended = job.ended is not None
    job = job if had_ended else client.cancel_job(number)
    if as_json:
        print_document(job)
    elif job.ended is None:
        print(f"job {number} is being cancelled; what it measured is kept")
    elif job.state == "cancelled" and not had_ended:
        print(f"job {number} is cancelled; it had not begun")
    else:
        reason = f" ({mark_unprintable(job.message)})" if job.message and job.message != job.state else ""
        print(f"job {number} has already ended: {job.displayed_state}{reason}")


def _print_jobs(
    request_jobs: Callable[[Client], Job | JobList], *, url: str, results: str, insecure: bool, as_json: bool
) -> None:
    """Send a request to a service and print its answer: a table of jobs, and of one job also the end of its output."""
    from merge_bench.service.client import Client
    from merge_bench.service.documents import JobList
    from merge_bench.view.streams import print_document

    answer = request_jobs(Client(url, results=Path(results), insecure=insecure))
    if as_json:
        print_document(answer)
        return
    room = max(28, shutil.get_terminal_size().columns - 52)
    print(f"{'Job':>5}  {'State':12}  {'Time':>11}  {'Queued by':16}  Command")
    for job in answer.jobs if isinstance(answer, JobList) else [answer]:
        lasted = format_duration((job.ended or time.time()) - (job.started or job.created))
        command = mark_unprintable(job.command.removeprefix("merge-bench "))
        by = f"schedule {job.schedule}" if job.schedule else job.who
        print(
            f"{job.id:5}  {job.displayed_state:12}  {lasted:>11}  {shorten_middle(mark_unprintable(by), 16):16}"
            f"  {shorten_middle(command, room)}"
        )
        if job.message and job.message != job.state:
            print(" " * 6, shorten_middle(mark_unprintable(job.message), 73))
        if job is answer:
            print(f"{command}\n{_printable_lines(job.log or '')}", end="")


def _printable_lines(text: str) -> str:
    """Return the lines of `text` without unprintable characters, each with its line end."""
    return "".join(f"{mark_unprintable(line)}\n" for line in text.splitlines())


def service_address(options: RunOptions) -> str | None:
    """Return the address of the service that runs the command; None if the command runs on this machine.

    Raises UsageError if a variable of the environment has no address, or that of `--on` has one.
    """
    refuse_address_as_columns(read_option_sources(RunOptions(), None, os.environ, [BY_KEY["on"]]))
    if options.service:
        return options.service
    if text := os.environ.get(_SERVICE_VARIABLE):
        return parse_option_text(parsers.parse_service_address, text, f"environment variable {_SERVICE_VARIABLE}")
    old = format_option_value(options.on or "")
    return service_address_from_on_option(old) if re.search(r"(^|,)https?://", old) else None


def service_address_from_on_option(address: str | None) -> str | None:
    """Return the service's address that ``--on``, the old name of ``--service``, gave, and warn about the old name."""
    if address:
        print_warning(
            WarningMessage(
                "old-name", "--on names key columns; it takes addresses in this release only", "use --service"
            )
        )
    return address


def run_on_service(
    url: str, command: str, options: RunOptions, *, details: bool
) -> tuple[Campaign, Failure | None, int]:
    """Run `command` as a job of the service at `url`, and copy the job's records to this machine.

    Returns the campaign, why the job failed, and its exit status. Where standard output already has the job's output,
    only the end of the report is printed.
    """
    from msgspec.structs import replace

    from merge_bench.analysis.documents import Failure
    from merge_bench.cluster import signals
    from merge_bench.config.shipped import SUFFIX, find_config_file
    from merge_bench.records.reader import read_campaign
    from merge_bench.regressions.gates import NO_BASELINE_REMEDY
    from merge_bench.service.client import PATIENCE_SECONDS, Client

    if options.dry_run:
        raise UsageError("--dry-run shows what this machine would start; it cannot be combined with a service")
    results = Path(read_option_sources(options, None, os.environ, [_RESULTS_OPTION]).results)
    client = Client(url, results=results, wait=PATIENCE_SECONDS, insecure=options.insecure)
    (request, typed), printed = _make_typed_job_request(command), [""]
    try:
        with signals.raise_on_signals():
            job = _follow_job(client, client.queue_job(request).id, printed)
    except signals.Interrupted as interrupted:
        number = client.queue_job(request).id  # the same job, by its key
        later = f"python -m merge_bench jobs cancel {number} --service {url}"
        print_message(
            f"{interrupted}; cancelling job {number}; Ctrl-C again leaves at once, and this cancels it later: {later}"
        )
        job = _follow_job(client, client.cancel_job(number).id, printed)
    status, error = 0, None
    if job.state != "done":
        kinds = {each.exit_status: each for each in (UsageError, WrongResult, GateNotMet) if job.state == "failed"}
        kind = kinds.get(job.status or 0, RunFailed)
        messages = [line for line in printed[0].splitlines() if line.startswith(_SENTENCE_BEGIN)]  # the last is why
        why = job.message or (messages[-1].removeprefix(_SENTENCE_BEGIN) if messages else job.displayed_state)
        if kind is GateNotMet and why.endswith(NO_BASELINE_REMEDY):
            kind = GateWithoutBaseline
        error = Failure(kind.code, mark_unprintable(f"job {job.id} of {url}: {why}"))
        if job.result is None:
            raise kind(error.message)
        status = kind.exit_status
        print_message(mark_unprintable(f"job {job.id} of {url}: {job.message or job.displayed_state}"))
    try:
        campaign = read_campaign(client.fetch_records(job, results))
    except UsageError as unreadable:
        raise RunFailed(str(unreadable)) from None
    # Here the result is of the command that was typed, with the user's own files.
    own = {find_config_file(name).name.removesuffix(SUFFIX): name for name in typed}
    configs = [replace(each, path=own.get(each.name)) for each in campaign.head.configs]
    head = replace(campaign.head, argv=list(sys.argv), options=common.typed_options(), configs=configs)
    campaign = dataclasses.replace(campaign, head=head)
    recorded = _command_of_campaign(campaign)
    if recorded != command or not campaign.head.configs:
        raise RunFailed(
            f"job {job.id} of {url} has records of `{mark_unprintable(truncate(recorded))}`, not of `{command}`"
        )
    if stdout_and_stderr_are_same() and not options.json and not details:
        click.get_current_context().with_resource(_print_only_final_lines(campaign.records))
    return campaign, error, status


def _command_of_campaign(campaign: Campaign) -> str:
    """The command that makes campaigns of this kind: ``run``, ``tune``, ``exec`` or ``probe NAME``."""
    from merge_bench.view.titles import is_tuning_campaign

    if campaign.probe:
        return f"probe {campaign.probe}"
    return "tune" if is_tuning_campaign(campaign) else "exec" if campaign.command is not None else "run"


@contextlib.contextmanager
def _print_only_final_lines(records: Path) -> Iterator[None]:
    """Print only the last lines of what the `with` block prints: the next command, and the paths of files.

    The job has printed the rest, with the path of the records on its machine, so the path of the copy says what it is.
    """
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        yield
    _, next_step, end = printed.getvalue().rpartition("\nNext: ")
    last = f"{next_step.lstrip()}{end.partition(chr(10) * 2)[0].rstrip()}" if next_step else f"Records: {records}"
    print(re.sub("(?m)^Records: .*", rf"\g<0>{_COPIED}", last))


def repeat_gate_comparison(campaign: Campaign, options: RunOptions) -> CompareDocument | None:
    """Repeat the comparison by which a job's gate decided.

    None without a gate, or if the earlier result is not on this machine.
    """
    from merge_bench.regressions.gates import RegressionGate

    against = options.against and str(campaign.folder.parent / options.against)
    if against and not Path(against).is_dir():
        return None
    gate = RegressionGate.from_options(
        dataclasses.replace(options, against=against),
        choice_count=len(set(campaign.run_labels)),
        run_count=len(campaign.runs),
    )
    return gate.judge_campaign(campaign)[0] if gate else None


def _follow_job(client: Client, job_number: int, printed_log: list[str]) -> Job:
    """Print what is new about a job on standard error until the job ends; returns the job.

    `printed_log`: one text, the end of the job's log that has been printed; it is replaced.
    """
    ahead = -1
    while True:
        job = client.fetch_job(job_number)
        if job.state == "queued" and job.ahead != ahead:
            ahead = job.ahead
            print_message(f"job {job.id} is queued at {client.url}; jobs before it: {ahead}")
        before, log = printed_log[0], "".join((job.log or "").rpartition("\n")[:2])  # whole lines
        if not log.startswith(before):
            log = log.partition("\n")[2]  # the first line may be cut
            before = next(log[:size] for size in range(len(log), -1, -1) if before.endswith(log[:size]))
        print(_printable_lines(log[len(before) :]), end="", file=sys.stderr, flush=True)
        printed_log[0] = log
        if job.state not in ("queued", "running"):
            return job
        time.sleep(_POLL_SECONDS)


def parse_job_request(root_command: click.Command, words: Sequence[str]) -> JobRequest:
    """Parse the words of a command line, of a command below `root_command`, into a request for a job.

    Values stay text, which the service's rules check.
    """
    from merge_bench.service.documents import JobRequest

    command, names, rest, context = root_command, list[str](), list(words), click.Context(root_command)
    while isinstance(command, click.Group) and rest:
        name, subcommand, rest = command.resolve_command(context, rest)
        command, names = subcommand or command, [*names, name or ""]
        context = click.Context(command, parent=context)
    values, _, _ = command.make_parser(context).parse_args(rest)
    # What was not given is None, or an object of click.
    options: dict[str, Any] = {key: each for key, each in values.items() if isinstance(each, str | bool | list | tuple)}
    if options.pop("words", ()):
        raise UsageError(NO_OWN_COMMAND)
    config_values = (options.pop(key, "") for key in ("config_names", "baseline", "config", "configs"))
    texts = ",".join(each if isinstance(each, str) else ",".join(each) for each in config_values)
    configs = list(dict.fromkeys(filter(None, texts.split(","))))
    return JobRequest(command=" ".join(names), options=options, configs=configs, resume=True)


def _make_typed_job_request(command: str) -> tuple[JobRequest, list[str]]:
    """Make the request for the job of the present command line; also returns the names of its configs as typed.

    Options in the environment are among those of the job; a config file of the user is sent as settings.
    """
    from msgspec.structs import replace

    from merge_bench.config.shipped import FOLDER, SUFFIX, find_config_file
    from merge_bench.service.job_rules import read_config_settings, settings_file_name

    context = click.get_current_context()
    typed = parse_job_request(context.find_root().command, [*command.split(), *context.obj])
    if "://" in format_option_value(typed.options.get("on", "")):  # the address of the service, by the old name
        typed = replace(typed, options={key: value for key, value in typed.options.items() if key != "on"})
    own_keys = {param.name for param in context.command.params}
    options = {
        option.key: option.parse(text) if option.flag else text
        for option in OPTIONS
        if option.in_config and option.key in own_keys
        for text in filter(None, map(os.environ.get, option.environment_variables))
    } | typed.options
    paths, settings, name = [find_config_file(name) for name in typed.configs], dict[str, str](), None
    if not all(path.resolve().parent == FOLDER for path in paths):
        if len(paths) > 1:
            raise UsageError("a service compares shipped configs only; name those, or one file")
        own = paths.pop()
        settings, name = read_config_settings(own), own.name.removesuffix(SUFFIX)
        settings_file_name(settings, name)  # refused here if the service would refuse it
        print_message(f"{typed.configs[0]} is sent as settings; its results have the config name {name}")
    sent = {name: value for name, value in options.items() if name not in _LOCAL_OPTIONS}
    configs, key = [path.name for path in paths], secrets.token_hex(16)
    return replace(typed, options=sent, configs=configs, settings=settings, name=name, key=key), typed.configs


class ServiceOptions(NamedTuple):
    """The options of `serve` that its subcommands need: the results folder, folders of tables, and named commands."""

    results: Path
    tables: Sequence[Path]
    commands: Mapping[str, Sequence[str]]


_DURATION = common.ParsedValue("DURATION", parsers.parse_positive_duration)


@click.group(cls=common.FullHelpGroup, invoke_without_command=True)
@common.results_option("Folder of the results; the service keeps its jobs and tokens there, too.")
@common.port_option(5007)
@common.address_option("Address to listen on; any other than loopback needs --tls-cert or --insecure.")
@common.text_option(
    "--host-name host_names",
    "NAME[:PORT]",
    "Name by which clients reach it, with the port of a proxy; may be repeated.",
    multiple=True,
)
@common.path_option("--tls-cert", "FILE", "Certificate, as PEM; serves https.")
@common.path_option("--tls-key", "FILE", "Private key of the certificate, as PEM.")
@common.flag_option("--insecure", "Serve other machines without TLS. Anyone who can read the traffic gets the tokens.")
@common.path_option("--tables", "DIR", "Folder of Parquet tables that jobs may merge; may be repeated.", multiple=True)
@common.text_option(
    "--command commands",
    "NAME=COMMAND",
    "Command that jobs of `exec` may run as --named NAME, without a shell; may be repeated.",
    multiple=True,
)
@common.count_option("--queue-limit", "N", "Number of jobs that can wait.", default=1000)
@common.text_option("--job-time", "DURATION", "Longest time of a job.", type=_DURATION, default="4h", show_default=True)
@common.count_option("--request-limit", "N", "Number of requests a minute of each token.", default=600)
@common.flag_option("--check", "Check the settings and the folder without starting the service.")
def serve(
    check: bool,
    results: str,
    tables: Sequence[str],
    commands: Sequence[str],
    queue_limit: int,
    job_time: float,
    request_limit: int,
    **more: Any,
) -> int:
    """Run jobs of several clients one after the other, with a queue, tokens and an HTTP interface.

    Clients send jobs to /api/jobs; /api/openapi.json describes all requests. Your own token is in the file
    RESULTS/.service/token.
    """
    from merge_bench.service.named_commands import parse_named_commands

    context, folders, named = click.get_current_context(), tuple(map(Path, tables)), parse_named_commands(commands)
    if context.invoked_subcommand is not None:
        context.obj = ServiceOptions(Path(results), folders, named)
        return 0
    from merge_bench.service import serve as service
    from merge_bench.service.api import ServiceLimits

    limits = ServiceLimits(queue_limit, job_time, request_limit)
    settings = service.ServiceSettings(Path(results), tables=folders, commands=named, limits=limits, **more)
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise UsageError("--tls-cert and --tls-key belong together; give both")
    if not check:
        from merge_bench.dashboard.app import make_dashboard_application

        return service.serve_until_signal(settings, make_dashboard_application)
    print(f"The service can start; its newest job: {service.check_service_can_start(settings)}.")
    return 0


def _open_store(options: ServiceOptions) -> ServiceStore:
    """Open the database of a service, which may be running; it is closed when the command ends."""
    from merge_bench.service.store import open_service_store

    opened = contextlib.closing(open_service_store(options.results))
    return click.get_current_context().with_resource(opened)


_ANYWAY_OPTION = common.flag_option("--anyway", "Add it even if no service of these results is running.")


def _open_store_of_running_service(options: ServiceOptions, *, anyway: bool, consequence: str) -> ServiceStore:
    """Open the database of a service; raises UsageError if the service is not running, unless `anyway`.

    `consequence`: what would happen then, for the message.
    """
    from merge_bench.service.store import has_running_service

    results = options.results
    if not anyway and not has_running_service(results):
        raise UsageError(
            f"no service of {results} is running on this machine, so {consequence};"
            f" start it (merge-bench serve --results {shlex.quote(str(results))}),"
            " name its folder (merge-bench serve --results FOLDER …), or use --anyway"
        )
    return _open_store(options)


@serve.group("token", cls=common.FullHelpGroup)
def token_commands() -> None:
    """Add, list or remove the tokens of clients; give --results before `token`."""


@token_commands.command("add")
@common.text_option("--name", "NAME", "Whose token it is.", required=True)
@common.choice_option(
    "--role", ["read", "run"], "read: look at jobs and results; run: also queue jobs and cancel its own."
)
@_ANYWAY_OPTION
@click.pass_obj
def add_token(options: ServiceOptions, name: str, role: str, anyway: bool) -> None:
    """Make a token and print it, once: only its hash is kept."""
    store = _open_store_of_running_service(options, anyway=anyway, consequence="nothing would accept this token")
    print(store.add_token(name, role))
    print("Keep it in a file that only its user can read; it is not shown again.", file=sys.stderr)


@token_commands.command("list")
@click.pass_obj
def list_tokens(options: ServiceOptions) -> None:
    """List names and roles of all tokens."""
    tokens = _open_store(options).list_tokens()
    _print_list("token", [f"{each.role:4}  {_utc_time_text(each.created)[:10]}  {each.name}" for each in tokens])


@token_commands.command("remove")
@click.argument("name")
@click.pass_obj
def remove_token(options: ServiceOptions, name: str) -> None:
    """Remove the token named NAME and its schedules; it is refused from then on."""
    _open_store(options).remove_token(name)
    print(f"The token {name} and its schedules are removed.")


@serve.group("schedule", cls=common.FullHelpGroup)
def schedule_commands() -> None:
    """Add, list or remove schedules; give --results, --tables and --command as for the service, before `schedule`."""


_MISSED = (
    "If the service did not run then: wait for the next time (skip), or run the job once when it runs again (run)."
)


@schedule_commands.command("add")
@common.text_option("--name", "NAME", "Name of the schedule.", required=True)
@common.text_option("--at", "HH:MM", "Time of day, such as 02:30.", required=True)
@common.text_option("--days", "DAYS", "Days, such as mon-fri or sat,sun.", default="daily", show_default=True)
@common.text_option("--zone", "ZONE", "Time zone, such as Europe/Berlin.", default="UTC", show_default=True)
@common.choice_option("--missed", ["skip", "run"], _MISSED)
@_ANYWAY_OPTION
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND [OPTION]...")
@click.pass_obj
def add_schedule(options: ServiceOptions, /, words: tuple[str, ...], anyway: bool, **values: Any) -> None:
    """Queue COMMAND again and again: `run`, `tune`, a `probe`, or `exec --named`, with the options of a job."""
    from merge_bench.service import schedules
    from merge_bench.service.documents import ScheduleRequest
    from merge_bench.service.job_rules import JobRules
    from merge_bench.service.store import LOCAL

    root = click.get_current_context().find_root().command
    request = ScheduleRequest(job=parse_job_request(root, words), **values)
    store = _open_store_of_running_service(options, anyway=anyway, consequence="this schedule would never run")
    rules = JobRules(options.results.resolve(), options.tables, options.commands)
    added = schedules.add_schedule(store, rules, LOCAL, request)
    print(f"{added.name} begins at {_utc_time_text(added.next)}.")


@schedule_commands.command("list")
@click.pass_obj
def list_schedules(options: ServiceOptions) -> None:
    """List all schedules, with their next times and why no job was queued the last time."""
    lines: list[str] = []
    for entry in _open_store(options).list_schedules():
        times = f"{entry.at} {entry.days} {entry.zone}, next {_utc_time_text(entry.next)}"
        lines.append(f"{entry.name}  {times}  {entry.who}  {entry.command}")
        lines += [f"  no job the last time: {entry.message}"] if entry.message is not None else []
    _print_list("schedule", lines)


@schedule_commands.command("remove")
@click.argument("name")
@click.pass_obj
def remove_schedule(options: ServiceOptions, name: str) -> None:
    """Remove the schedule named NAME; a job that it has queued stays."""
    if not _open_store(options).remove_schedule(name):
        raise UsageError(f"there is no schedule named {name}")
    print(f"The schedule {name} is removed; a job that it has queued stays.")


def _print_list(item_name: str, lines: Sequence[str]) -> None:
    """Print lines, or a message on standard error that there is no item of the kind `item_name` yet."""
    print("\n".join(lines) or f"There is no {item_name} yet.", file=None if lines else sys.stderr)


def _utc_time_text(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
