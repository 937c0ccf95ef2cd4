"""The command that finds the release of UCX which made something slower or faster."""

from __future__ import annotations

import contextlib
import sys

import click

from merge_bench.cli import common
from merge_bench.command.options import BisectOptions, ExecOptions, options_of_run_for_bisect
from merge_bench.config.options import RunOptions


@click.command(
    "bisect", cls=common.SectionedHelpCommand, context_settings={**common.CONTEXT, "allow_interspersed_args": False}
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] [COMMAND [ARGUMENT]...]")
@common.add_options("bisect_options", BisectOptions)
@common.add_options("exec_options", ExecOptions)
@common.add_options("run_options", RunOptions, options_of_run_for_bisect())
def bisect_releases(
    words: tuple[str, ...], bisect_options: BisectOptions, exec_options: ExecOptions, run_options: RunOptions
) -> int:
    """Find the release of UCX that made COMMAND, or without one the merge, slower or faster.

    The first and the last release are compared. If they differ, the release in the middle is compared with the first
    one, and so on, until two neighbours are left. Type the same command again to resume. COMMAND is as for `exec`.
    """
    caller = common.make_calling_program()
    from merge_bench.command.bisect_campaign import BisectTask, run_bisection
    from merge_bench.command.bisect_view import print_bisection
    from merge_bench.view.progress import make_progress
    from merge_bench.view.streams import print_document

    task = BisectTask(words, exec_options, run_options, bisect_options)
    if run_options.dry_run:
        print(task.dry_run_text())
        return 0
    with contextlib.closing(make_progress(sys.stderr, quiet=run_options.json)) as progress:
        document = run_bisection(task, progress, caller)
    if run_options.json:
        print_document(document)
    else:
        print_bisection(document)
    return 0
