"""The commands that launch a cluster, make its job, or look at what it would run on."""

from __future__ import annotations

import sys
from typing import Any

import click

from merge_bench.cli.parameters import CONTEXT, AsTyped, SectionedCommand, add_options, add_run_options
from merge_bench.cluster.submit import batches, with_storage
from merge_bench.config.options import CLUSTER_OPTIONS


@click.command(cls=SectionedCommand, context_settings=CONTEXT)
@add_run_options
def run(**values: Any) -> None:
    """Merge two distributed frames, verify the result, and report how fast it was."""
    from merge_bench.cli.run_command import run_command

    sys.exit(run_command(values))


@click.command(context_settings=CONTEXT)
@click.argument("config")
@click.option("--json", "json_output", is_flag=True, help="Print one JSON document on standard output.")
@click.option("--ucx", type=click.Choice(["auto", "wheel", "system"]), default=None, help="Which UCX to check against.")
@click.option("--trust-config", is_flag=True, help="Check CONFIG the way `run --trust-config` would.")
def check(config: str, json_output: bool, ucx: str | None, trust_config: bool) -> None:
    """Show what the installed UCX does with each setting of CONFIG, a file or the bare name of a shipped one."""
    from merge_bench.cli.run_command import check_command

    sys.exit(check_command(config, json_output=json_output, ucx=ucx, trusted=trust_config))


@click.command(cls=AsTyped, context_settings={**CONTEXT, "ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[CONFIG] [OPTION]...")
@click.option("--launcher", type=click.Choice(list(batches())), required=True, help="The batch system.")
@click.option("--nodes", type=click.IntRange(1), required=True, metavar="N", help="Nodes of the job.")
@click.option(
    "--gpus-per-node",
    type=click.IntRange(0),
    default=0,
    metavar="G",
    help="Number of GPUs of each node, and of its workers.",
)
@click.option(
    "--cores-per-node", type=click.IntRange(1), metavar="C", help="Number of cores of each node; by default 12 per GPU."
)
@click.option("--time", required=True, metavar="MM:SS", help="Time limit, also HH:MM:SS.")
@click.option("--account", metavar="NAME", help="Account to charge.")
@click.option("--queue", "--partition", "queue", metavar="NAME", help="The queue, or SLURM's partition.")
@click.option("--storage", metavar="WORD", help=f"File systems that the job needs ({', '.join(with_storage())}).")
@click.option("--module", "modules", multiple=True, metavar="NAME", help="A module to load; may be repeated.")
@click.option("--now", is_flag=True, help="Submit the job instead of printing it.")
@click.pass_obj
def submit(typed: list[str], /, words: tuple[str, ...], launcher: str, now: bool, **asked: Any) -> None:
    """Print, or with --now submit, a batch job that runs a merge under CONFIG (optimized.cfg).

    The job calls ./run-cluster.sh from a checkout, and else the Python that merge_bench is installed in.

    Options that are not listed here, and all after `--`, go to the merge: `submit … tcp.cfg --chunk 25e6`.
    """
    from merge_bench.cli.run_command import submit_command

    sys.exit(submit_command(launcher, words, typed=typed, now=now, asked=asked))


@click.command(cls=SectionedCommand, context_settings=CONTEXT)
@add_options(CLUSTER_OPTIONS)
@click.option("--available", "show_available", is_flag=True, help="Also list what each host's UCX could use.")
def transports(show_available: bool, **values: Any) -> None:
    """Launch the cluster that `run` would, without a merge, and show which transports UCX selects between workers."""
    from merge_bench.cli.run_command import transports_command

    sys.exit(transports_command(values, show_available=show_available))


@click.command(context_settings=CONTEXT)
@click.option("--json", "json_output", is_flag=True, help="Print one JSON document on standard output.")
@click.option("--strict", is_flag=True, help="End with status 5 if any check has the result bad.")
@click.option("--scheduler-address", metavar="ADDRESS", default=None, help="Look at each host of this running cluster.")
@click.option("--scheduler-file", metavar="PATH", default=None, help="The same, by the scheduler's file.")
def doctor(json_output: bool, strict: bool, scheduler_address: str | None, scheduler_file: str | None) -> None:
    """Find what would disturb a run on this host, or on each host of a running cluster, and how to fix it."""
    from merge_bench.cli.run_command import doctor_command

    status = doctor_command(
        json_output=json_output, strict=strict, scheduler_address=scheduler_address, scheduler_file=scheduler_file
    )
    sys.exit(status)
