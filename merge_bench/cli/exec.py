"""The command that measures any other command."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from merge_bench.cli import common
from merge_bench.cli.service import NO_OWN_COMMAND, repeat_gate_comparison, run_on_service, service_address
from merge_bench.command.options import ExecOptions, NamedCommandOptions, options_of_run_for_exec
from merge_bench.config.options import BY_KEY, RunOptions
from merge_bench.errors import UsageError


@click.command(
    "exec", cls=common.SectionedHelpCommand, context_settings={**common.CONTEXT, "allow_interspersed_args": False}
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND [ARGUMENT]...")
@common.add_options("exec_options", ExecOptions)
@common.add_options("named_command_options", NamedCommandOptions)
@common.add_options("run_options", RunOptions, options_of_run_for_exec())
def measure_command(
    words: tuple[str, ...],
    exec_options: ExecOptions,
    named_command_options: NamedCommandOptions,
    run_options: RunOptions,
) -> int:
    """Measure COMMAND under each config in turn, check that it went well, and report its metrics.

    In the words of COMMAND, {x} becomes -x NAME for each variable of the config (mpirun), {export} becomes
    --export=ALL,NAME... (srun), and {config}, {launch} and {workdir} become the config's name, the launch's number, and
    an empty folder that is removed after the launch. No shell reads COMMAND; for a shell's line, use sh -c '...'.
    """
    caller = common.make_calling_program()
    from merge_bench import api
    from merge_bench.command.command_campaign import dry_run_text, plan_command_campaign
    from merge_bench.records.reader import read_campaign
    from merge_bench.view.streams import print_warnings

    url, error = service_address(run_options), None
    _require_one_command(words, named_command_options.named, url)
    if url:
        campaign, error, status = run_on_service(url, "exec", run_options, details=run_options.details)
        verdict = repeat_gate_comparison(campaign, run_options) if status in (0, 5) else None
    else:
        planned = plan_command_campaign(words, exec_options, run_options)
        print_warnings(planned.warnings)
        if run_options.dry_run:
            api.gate_of_command(planned, run_options)  # may refuse
            if run_options.extend:
                read_campaign(run_options.extend)
            print(dry_run_text(planned))
            return 0
        result, verdict, status = api.launch_command(planned, run_options, caller, quiet=run_options.json)
        campaign = result.campaign
    common.print_launched_campaign(campaign, verdict, error, run_options, details=run_options.details)
    return status


def _require_one_command(words: Sequence[str], command_name: str | None, service_url: str | None) -> None:
    """Raise UsageError unless one command is given: for a service by `command_name`, otherwise by its words."""
    from merge_bench.records.campaign import JOB

    if service_url and words:
        raise UsageError(
            f"{NO_OWN_COMMAND}; to run it on this machine, leave out --service, and unset {BY_KEY['service'].variable}"
        )
    if service_url and not command_name:
        raise UsageError("a service runs only commands that its operator named; add --named NAME")
    if command_name and not service_url and JOB not in os.environ:
        raise UsageError("--named is for a command of a service; add --service URL, or give COMMAND itself")
    if not service_url and not words:
        raise UsageError("there is no COMMAND to measure; write it after the options, behind --")
