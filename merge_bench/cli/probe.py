"""The commands that measure the network without a merge: one for each probe, and `show` for stored campaigns."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from merge_bench.cli.jobs import old_form, on_service, service_of
from merge_bench.cli.parameters import (
    PATH,
    ListedGroup,
    SectionedCommand,
    add_options,
    decorated,
    json_option,
    plot_option,
)
from merge_bench.config.option import Options
from merge_bench.config.options import PROBE_OPTIONS, RunOptions
from merge_bench.errors import RunFailed, UsageError, printed_above, say
from merge_bench.probe import probes

if TYPE_CHECKING:
    from merge_bench.errors import Caution
    from merge_bench.probe.shared.base import ProbeKind
    from merge_bench.probe.view.output import Output
    from merge_bench.records.campaign import Campaign
    from merge_bench.records.probe_rows import Row

_OUTPUT_OPTIONS = decorated(
    click.option("--csv", "csv_file", type=PATH, metavar="FILE", help="Write the results to this CSV file."),
    plot_option("results over message size"),
    click.option("--reference", "references", multiple=True, metavar="NAME",
                 help="Published results to show beside the measured ones; `--reference list` prints their names."),
)  # fmt: skip
_PROBE_OPTIONS = decorated(
    click.option("--on", metavar="URL", hidden=True),
    click.option("--baseline", type=PATH, metavar="CFG", help="Baseline config of the comparison; shown first."),
    click.option("--config", "configs", multiple=True, type=PATH, metavar="CFG",
                 help="Config to measure; may be repeated."),
    _OUTPUT_OPTIONS,
    add_options("options", RunOptions, PROBE_OPTIONS),
)  # fmt: skip


class _Probes(ListedGroup):
    """A command for each probe beside those of the group, made when any of them is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        self._add_probes()
        return super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        self._add_probes()
        return super().get_command(ctx, cmd_name)

    def _add_probes(self) -> None:
        for name, kind in probes().items():
            if name not in self.commands:
                self.add_command(_command(kind))


@click.group(cls=_Probes)
def probe() -> None:
    """Measure the network without a merge, with the same launchers, configs and records as `run`."""


def _command(kind: ProbeKind[Any]) -> click.Command:
    def command(**given: Any) -> int:
        return measure(kind, **given)

    made = click.command(kind.name, cls=SectionedCommand, help=kind.help)
    return made(add_options("own", kind.options)(_PROBE_OPTIONS(command)))


def measure(
    kind: ProbeKind[Any],
    *,
    on: str | None,
    baseline: str | None,
    configs: Sequence[str],
    csv_file: str | None,
    plots: Sequence[str],
    references: Sequence[str],
    options: RunOptions,
    own: Options,
) -> int:
    """`probe NAME`: measure every config, interleaved; show what was measured and what failed."""
    from merge_bench.cli.campaigns import this_command
    from merge_bench.probe.shared import probe_campaign as campaigns
    from merge_bench.probe.shared.stored_rows import rows_in_order
    from merge_bench.probe.view.output import LIST, check_outputs, print_references
    from merge_bench.records.reader import read_campaign
    from merge_bench.view.messages import say_warnings
    from merge_bench.view.progress import progress_for

    as_json = options.json
    if LIST in references:
        print_references(as_json=as_json)
        return 0
    output = check_outputs(csv_file, plots, references)
    made, whole = kind.make(own, options), getattr(own, "details", True)
    named: list[str | None] = list(dict.fromkeys(filter(None, [baseline, *configs])))
    if url := service_of(options) or old_form(on):
        campaign, _, status = on_service(url, f"probe {kind.name}", options, details=whole)
    else:
        head, jobs = campaigns.plan_campaign(made, named or [None], options)
        say_warnings(warning for job in jobs for warning in job.prepared.warnings)
        if options.dry_run:
            print(campaigns.describe_dry_run(made, head, jobs))
            return 0
        with contextlib.closing(progress_for(sys.stderr, quiet=as_json)) as progress:
            folder, status = campaigns.run_campaign(
                made,
                head,
                jobs,
                progress,
                fresh=options.fresh,
                caller=this_command(),
                wait_for_quiet=options.wait_for_quiet,
            )
        campaign = read_campaign(folder)
    return max(status, _show([campaign], rows_in_order(campaign), output, as_json=as_json, whole=whole))


@probe.command()
@click.argument("results", nargs=-1, type=PATH, metavar="RESULT...")
@_OUTPUT_OPTIONS
@json_option()
def show(
    results: Sequence[str], csv_file: str | None, plots: Sequence[str], references: Sequence[str], as_json: bool
) -> int:
    """Show the results of stored `probe` campaigns without measuring again.

    A RESULT is a campaign folder, its records.jsonl, or a CSV file of the ping-pong, whose file name says where the
    ping-pong was measured. Several RESULTs are shown together.
    """
    from merge_bench.probe.shared import stored_rows
    from merge_bench.probe.shared.stored_rows import label_rows
    from merge_bench.probe.view.output import LIST, check_outputs, print_references
    from merge_bench.records.reader import read_campaign

    if LIST in references:
        print_references(as_json=as_json)
        return 0
    if not results:
        raise UsageError("no RESULT given; name the folder of a `probe` campaign or its records.jsonl")
    output = check_outputs(csv_file, plots, references)
    files = [Path(result) for result in dict.fromkeys(results) if str(result).endswith(".csv")]
    found = [read_campaign(result) for result in results if not str(result).endswith(".csv")]
    rows = [*(row for _, row in label_rows(found)), *(row for file in files for row in stored_rows.read_csv_rows(file))]
    return _show(found, rows, output, as_json=as_json)


def show_campaign(campaign: Campaign, *, as_json: bool, whole: bool) -> int:
    """Print a stored campaign as the command that measured it does; gives the exit status."""
    from merge_bench.probe.shared.stored_rows import rows_in_order
    from merge_bench.probe.view.output import Output

    return _show([campaign], rows_in_order(campaign), Output(), as_json=as_json, whole=whole)


def _show(
    found: Sequence[Campaign], measured: Sequence[Row], output: Output, *, as_json: bool, whole: bool = True
) -> int:
    """Tables first, then files; the document of `--json` last, as it contains which files could not be written."""
    from merge_bench.analysis.documents.error import Failure
    from merge_bench.cli.campaigns import failures_of, say_failures
    from merge_bench.probe.view.document import ProbeDocument
    from merge_bench.probe.view.output import write_files
    from merge_bench.view.document import print_document

    rows = [*measured, *output.references]
    warnings = list(dict.fromkeys(caution for one in found for caution in one.cautions))
    if not as_json:
        above = printed_above()
        _print(found, measured, rows, [each for each in warnings if each not in above], whole=whole)
    problems = write_files(output, rows, found) if measured else []
    failures = failures_of(found)
    if as_json:
        errors = [*map(Failure.of, failures), *(Failure("not-written", problem) for problem in problems)]
        records = [str(one.records) for one in found]
        document = ProbeDocument(
            records=records[0] if len(records) == 1 else records, rows=rows,
            warnings=warnings, error=errors[0] if errors else None,
        )  # fmt: skip
        print_document(document)
    say_failures(failures)
    for problem in problems:
        say(problem)
    return RunFailed.exit_status if problems else 0


def _print(
    found: Sequence[Campaign], measured: Sequence[Row], rows: Sequence[Row],
    warnings: Sequence[Caution], *, whole: bool,
) -> None:  # fmt: skip
    from merge_bench.probe.shared.stored_rows import ucx_latency_rows
    from merge_bench.probe.view.show import print_rows, print_summary

    configs = list(dict.fromkeys(row.config for row in measured if row.source is None))
    remarks = [] if measured else ["nothing was measured, and no file was written"]
    if len(found) > 1 and len(configs) > 1:
        remarks.append("the campaigns ran at different times; speed-ups include any change of the machines in between")
    remarks += [f"campaign {one.head.campaign_id} did not finish" for one in found if one.end is None]
    baseline = configs[0] if len(configs) > 1 else None
    records = [one.records for one in found]
    if measured and not whole and rows == list(measured):  # published rows need the tables
        ucx = ucx_latency_rows(found[0].folder.parent)
        print_summary(measured, ucx, warnings=warnings, remarks=remarks, records=records)
        return
    print_rows(rows, baseline=baseline, warnings=warnings, remarks=remarks, records=records)
