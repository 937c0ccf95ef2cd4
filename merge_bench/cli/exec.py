"""The command that measures any other command."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from merge_bench.cli import common
from merge_bench.cli.service import NO_OWN_COMMAND, repeat_gate_comparison, run_on_service, service_address
from merge_bench.command.options import ExecOptions, NamedCommandOptions, run_options_for_exec
from merge_bench.config.options import BY_KEY, RunOptions
from merge_bench.errors import UsageError


@click.command(
    "exec", cls=common.SectionedCommand, context_settings={**common.CONTEXT, "allow_interspersed_args": False}
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND [ARGUMENT]...")
@common.add_options("own", ExecOptions)
@common.add_options("of_service", NamedCommandOptions)
@common.add_options("options", RunOptions, run_options_for_exec())
def measure_command(
    words: tuple[str, ...], own: ExecOptions, of_service: NamedCommandOptions, options: RunOptions
) -> int:
    """Measure COMMAND under each config in turn, check that it went well, and report its metrics.

    In the words of COMMAND, {x} becomes -x NAME for each variable of the config (mpirun), {export} becomes
    --export=ALL,NAME... (srun), and {config}, {launch} and {workdir} become the config's name, the launch's number, and
    an empty folder that is removed after the launch. No shell reads COMMAND; for a shell's line, use sh -c '...'.
    """
    caller = common.command_caller()
    from merge_bench import api
    from merge_bench.command.command_campaign import dry_run_text, plan_command_campaign
    from merge_bench.records.reader import read_campaign
    from merge_bench.view.streams import print_warnings

    url, error = service_address(options), None
    _refuse_other_command(words, of_service.named, url)
    if url:
        campaign, error, status = run_on_service(url, "exec", options, details=options.details)
        verdict = repeat_gate_comparison(campaign, options) if status in (0, 5) else None
    else:
        planned = plan_command_campaign(words, own, options)
        print_warnings(planned.warnings)
        if options.dry_run:
            api.gate_of_command(planned, options)  # may refuse
            if options.extend:
                read_campaign(options.extend)
            print(dry_run_text(planned))
            return 0
        result, verdict, status = api.launch_command(planned, options, caller, quiet=options.json)
        campaign = result.campaign
    common.print_launched_campaign(campaign, verdict, error, options, details=options.details)
    return status


def _refuse_other_command(words: Sequence[str], name: str | None, url: str | None) -> None:
    """Raise UsageError unless exactly one command is given: on a service by its name, elsewhere by its words."""
    from merge_bench.records.campaign import JOB

    if url and words:
        raise UsageError(
            f"{NO_OWN_COMMAND}; to run it on this machine, leave out --service, and unset {BY_KEY['service'].variable}"
        )
    if url and not name:
        raise UsageError("a service runs only commands that its operator named; add --named NAME")
    if name and not url and JOB not in os.environ:
        raise UsageError("--named is for a command of a service; add --service URL, or give COMMAND itself")
    if not url and not words:
        raise UsageError("there is no COMMAND to measure; write it after the options, behind --")
