"""The commands that launch a cluster, check or list configs, make a batch job, or examine the hosts."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from merge_bench.cli import common
from merge_bench.cli.service import repeat_gate_comparison, run_on_service, service_address
from merge_bench.cluster.launchers import batch_systems, systems_with_storage_option
from merge_bench.config.files import check_output_file, replace_file
from merge_bench.config.options import CLUSTER_OPTIONS, RunOptions, reset_merge_options
from merge_bench.config.parsers import parse_ucx_origin
from merge_bench.config.shipped import find_config_file, find_shipped_file, shipped_files
from merge_bench.errors import GateNotMet, LaunchFailed, RunFailed, UsageError

if TYPE_CHECKING:
    from merge_bench.config.check import ConfigCheckResult


@click.command(cls=common.SectionedHelpCommand, context_settings=common.CONTEXT)
@click.argument("config_names", nargs=-1, type=common.PATH, metavar="[CONFIG]")
@common.add_options("options", RunOptions)
def run(config_names: tuple[str, ...], options: RunOptions) -> int:
    """Merge two distributed frames under CONFIG, verify the result, and report the speed.

    The merged table is dropped once it is verified; --write-result keeps it.
    """
    caller = common.make_calling_program()
    from merge_bench import api
    from merge_bench.campaign.planned_launches import load_sweep
    from merge_bench.campaign.run_campaign import dry_run_text
    from merge_bench.records.reader import read_campaign
    from merge_bench.regressions.gates import RegressionGate
    from merge_bench.view.streams import print_warnings

    _refuse_second_config(config_names, options)
    if url := service_address(options):
        campaign, error, status = run_on_service(url, "run", options, details=options.details)
        verdict = repeat_gate_comparison(campaign, options) if status in (0, 5) else None
        details = options.details
    else:
        sweep = load_sweep(options.with_command_line_values(config=config_names[0]) if config_names else options)
        print_warnings(warning for prepared in sweep.prepared.values() for warning in prepared.warnings)
        if options.dry_run:
            RegressionGate.from_options(
                sweep.options, choice_count=len(sweep.distinct_labels), run_count=len(sweep.prepared)
            )  # may refuse
            if options.extend:
                read_campaign(options.extend)
            print(dry_run_text(sweep))
            return 0
        result, verdict, status = api.launch_sweep(sweep, caller, quiet=options.json)
        campaign, error, details = result.campaign, None, sweep.options.details
    common.print_launched_campaign(campaign, verdict, error, options, details=details)
    return status


def _refuse_second_config(config_arguments: Sequence[str], options: RunOptions) -> None:
    """Raise UsageError if the command line names two configs, or two results for ``--against``.

    `config_arguments`: the arguments without an option. A pattern after ``--against`` (``results/*``) that matches
    several results makes all but the first of them arguments.
    """
    from merge_bench.records.results_folder import is_result_folder
    from merge_bench.records.writer import RECORDS

    results = [name for name in config_arguments if Path(name).name == RECORDS or is_result_folder(Path(name))]
    if results and options.against:
        every = [options.against, *results]
        newest = max(every, key=lambda name: Path(name.removesuffix(RECORDS)).name)
        raise UsageError(
            f"--against takes one result, but {len(every)} were given ({', '.join(every)}); name one of them, such as"
            f" the newest: --against {shlex.quote(newest)}"
        )
    configs = [*config_arguments, *filter(None, [options.config]), *(options.configs or ())]
    if config_arguments and len(configs) > 1:
        second = config_arguments[1] if len(config_arguments) > 1 else config_arguments[0]
        raise UsageError(f"{second!r} is a second config; to compare configs, use --configs A,B")


@click.command("check", context_settings=common.CONTEXT)
@click.argument("config", type=common.PATH)
@common.json_option()
@click.option(
    "--ucx",
    type=common.ParsedValue("UCX", parse_ucx_origin),
    metavar="UCX",
    help="The UCX to check CONFIG against, as for `run`; by default also every release of UCX in the cache.",
)
@common.flag_option("--trust-config", "Trust CONFIG: accept settings that can load code.")
@common.flag_option("--other-hosts", "Accept what only this machine lacks, since CONFIG is for other hosts.")
def check_config_file(config: str, as_json: bool, ucx: str | None, trust_config: bool, other_hosts: bool) -> int:
    """Show how the installed UCX handles each setting of CONFIG, and whether `run` would refuse it.

    CONFIG is a file or the name of a shipped config.
    """
    from merge_bench.campaign.planned_launches import check_config_for_run
    from merge_bench.config.reader import read_config
    from merge_bench.config.ucx_choice import UcxChoice, choose_ucx, select_ucx_temporarily
    from merge_bench.config.ucx_releases import cached_releases
    from merge_bench.report.host_and_config import print_config_check

    settings = read_config(find_config_file(config), os.environ)

    def check_with_ucx(ucx_origin: str) -> ConfigCheckResult:
        with select_ucx_temporarily(ucx_origin):
            return check_config_for_run(settings, ucx_origin, trusted=trust_config, other_hosts=other_hosts)

    choice = UcxChoice(ucx) if ucx in ("wheel", "system") else choose_ucx(ucx, os.environ)
    result = check_with_ucx(choice.origin)
    releases = cached_releases() if ucx is None else []
    others = {each.name: check_with_ucx(str(each.folder)) for each in releases if str(each.folder) != choice.origin}
    print_config_check(result, others, json_output=as_json)
    return 0 if result.ok else 2


@click.group("configs", cls=common.FullHelpGroup, context_settings=common.CONTEXT, invoke_without_command=True)
@common.json_option("Print the list as one JSON document on standard output.")
@click.pass_context
def list_configs(context: click.Context, as_json: bool) -> None:
    """List, show or copy the shipped configs and the tuning space; list the releases of UCX in the user's cache.

    Every command accepts the name of a shipped config, from any folder. A file of the same name in the working folder
    takes precedence.
    """
    if context.invoked_subcommand is not None:
        if as_json:
            raise click.UsageError(f"`configs {context.invoked_subcommand}` has no option --json; omit --json")
        return
    from merge_bench.config.ucx_releases import cached_releases, releases_folder

    files, releases = shipped_files(), cached_releases()
    if as_json:
        from merge_bench.analysis.documents import CachedUcxRelease, ConfigsDocument, ShippedFile
        from merge_bench.view.streams import print_document

        *shown, space = (ShippedFile(name=file.name, about=file.about, path=str(file.path)) for file in files)
        cached = [
            CachedUcxRelease(
                version=each.name, package=each.package or "", sha256=each.sha256 or "", path=str(each.folder)
            )
            for each in releases
        ]
        print_document(ConfigsDocument(configs=shown, space=space, ucx=cached))
        return
    width = max(len(file.name) for file in files)
    print(*(f"{file.name:{width}}  {file.about}" for file in files), sep="\n")
    if releases:
        print(f"\nReleases of UCX in {releases_folder()}, for --ucx:")
        print(*(f"{each.name:{width}}  {each.package}, SHA-256 {each.sha256}" for each in releases), sep="\n")


@list_configs.command("show", context_settings=common.CONTEXT)
@click.argument("name")
def show_config(name: str) -> None:
    """Print the shipped file NAME; the suffix .cfg may be left out."""
    sys.stdout.write(find_shipped_file(name).read_text(encoding="utf-8"))


@list_configs.command("copy", context_settings=common.CONTEXT)
@click.argument("name")
@click.argument("destination", type=common.PATH, required=False, metavar="[DEST]")
@common.flag_option("--force", "Replace DEST if it exists.")
def copy_config(name: str, destination: str | None, force: bool) -> None:
    """Copy the shipped file NAME to DEST, and print the path of the copy.

    DEST is a file or a folder; by default the working folder.
    """
    source = find_shipped_file(name)
    target = Path(destination or ".")
    if target.is_dir():
        target = target / source.name
    if target.exists() and target.resolve() == source:
        raise UsageError(f"{target} is the shipped file itself and would be overwritten; name another destination")
    if target.exists() and not force:
        raise UsageError(f"{target} already exists; use --force to replace it")
    check_output_file("DEST", target)
    try:
        with replace_file(target) as stream:
            stream.write(source.read_bytes())
    except OSError as error:
        raise RunFailed(f"{target} was not written: {error.strerror}") from error
    print(target)


_WITH_STORAGE = ", ".join(systems_with_storage_option())


@click.command(
    "submit", cls=common.TypedArgumentsCommand, context_settings={**common.CONTEXT, "ignore_unknown_options": True}
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[CONFIG] [OPTION]...")
@click.option("--launcher", type=click.Choice(list(batch_systems())), help="Batch system to use.")
@common.count_option("--nodes", "N", "Number of nodes of the job.")
@common.count_option("--gpus-per-node", "G", "Number of GPUs, and of workers, on each node.", minimum=0, default=0)
@common.count_option("--cores-per-node", "C", "Number of cores on each node; by default 12 per GPU.")
@common.text_option("--time", "MM:SS", "Time limit of the job, as MM:SS or HH:MM:SS.")
@common.text_option("--account", "NAME", "Account to charge for the job.")
@common.text_option("--queue --partition queue", "NAME", "Queue of the job (SLURM: partition).")
@common.text_option(
    "--storage",
    "WORD",
    f"File systems that the job needs, written as the batch system expects; valid only with {_WITH_STORAGE}.",
)
@common.text_option("--module modules", "NAME", "Environment module to load; may be repeated.", multiple=True)
@common.flag_option("--now", "Submit the job instead of printing it.")
@click.pass_obj
def submit_batch_job(
    typed_words: list[str],
    /,
    words: tuple[str, ...],
    launcher: str | None,
    nodes: int | None,
    time: str | None,
    now: bool,
    **more: Any,
) -> None:
    """Print or submit a batch job that runs a merge with CONFIG (by default optimized.cfg).

    From a checkout, the job calls ./run-cluster.sh; otherwise it calls the Python that merge_bench is installed in.

    All other options, and everything after `--`, are passed to the merge: `submit … tcp.cfg --chunk 25e6`.
    """
    from merge_bench.cluster import batch_script

    examples = {"--launcher": "|".join(batch_systems()), "--nodes": "N", "--time": "MM:SS"}
    required = {"--launcher": launcher, "--nodes": nodes, "--time": time}
    missing = [f"{option} {examples[option]}" for option, value in required.items() if value is None]
    if launcher is None or nodes is None or time is None:
        raise UsageError(f"submit also needs {', '.join(missing)}")
    config, options = (words[0], words[1:]) if words and not words[0].startswith("-") else (None, words)
    if config is None and not any(word.partition("=")[0] in ("--config", "--configs") for word in options):
        config = "optimized.cfg"
    script = batch_script.batch_script_text(
        launcher, batch_script.BatchJob(nodes=nodes, time=time, **more), config, options, typed_words
    )
    print(batch_script.submit_batch_script(launcher, script) if now else script, end="\n" if now else "")


@click.command("transports", cls=common.SectionedHelpCommand, context_settings=common.CONTEXT)
@common.add_options("options", RunOptions, CLUSTER_OPTIONS)
@common.flag_option("--available show_available", "Also list the transports that UCX could use on each host.")
def show_transports(show_available: bool, options: RunOptions) -> None:
    """Show the transports that UCX selects for each pair of workers of a cluster.

    The command launches the same cluster as `run`, but does not merge.
    """
    from merge_bench.campaign.machine_checks import check_packages_installed
    from merge_bench.campaign.measure_launch import survey_transports
    from merge_bench.campaign.planned_launches import plan_runs
    from merge_bench.report.host_and_config import print_transports
    from merge_bench.view.progress import make_progress
    from merge_bench.view.streams import print_document, print_log_tail, print_warnings

    strip_merge_options = functools.partial(reset_merge_options, kept_options=CLUSTER_OPTIONS)
    (prepared,) = plan_runs(options.config, options, strip_merge_options, allowed_several=False)
    if prepared.launcher.starts_here:
        check_packages_installed(prepared.plan)
    print_warnings(prepared.warnings)
    name = prepared.config.name if prepared.config is not None else "default"
    try:
        with contextlib.closing(make_progress(sys.stderr, quiet=options.json)) as progress:
            document = survey_transports(prepared, name, progress, common.make_calling_program())
    except LaunchFailed as failure:
        print_log_tail(failure.log_tail)
        raise
    if options.json:
        print_document(document)
    else:
        print_transports(document, show_available=show_available)


@click.command("doctor", context_settings=common.CONTEXT)
@common.json_option()
@common.flag_option("--strict", "Exit with status 5 if the result of any check is bad.")
@common.text_option("--scheduler-address", "ADDRESS", "Examine each host of this running cluster.")
@common.path_option(
    "--scheduler-file", "PATH", "Scheduler file of a running cluster; every host of that cluster is examined."
)
def examine_hosts(as_json: bool, strict: bool, scheduler_address: str | None, scheduler_file: str | None) -> int:
    """Find problems on this host, or on each host of a running cluster, and show how to fix them."""
    from msgspec.structs import replace

    from merge_bench.analysis.documents import DoctorDocument
    from merge_bench.config.ucx_choice import choose_and_use_ucx
    from merge_bench.host.doctor import BAD, compare_host_software, examine_this_host, worst_finding_state
    from merge_bench.host.pinning import describe_binding, expected_gpu_bindings
    from merge_bench.view.streams import print_document

    if scheduler_address or scheduler_file:
        from merge_bench.cluster.scheduler_client import call_on_each_host, call_on_each_worker

        hosts = call_on_each_host(scheduler_address, scheduler_file, examine_this_host)
        answers = call_on_each_worker(scheduler_address, scheduler_file, describe_binding)
        bindings = [replace(each, worker=name) for name, each in answers.items()]
    else:
        with contextlib.suppress(UsageError):  # a UCX that cannot be loaded is among the findings
            choose_and_use_ucx(None)
        hosts = [examine_this_host()]
        bindings = expected_gpu_bindings()
    findings = [finding for host in hosts for finding in host.findings] + compare_host_software(hosts)
    if as_json:
        print_document(DoctorDocument(worst=worst_finding_state(findings), findings=findings, bindings=bindings))
    else:
        from merge_bench.report.host_and_config import print_doctor_findings

        print_doctor_findings(findings, bindings=bindings)
    return GateNotMet.exit_status if strict and worst_finding_state(findings) == BAD else 0
