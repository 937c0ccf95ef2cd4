"""The commands that measure the network without a merge: one for each probe, and `show_probes` for stored campaigns."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from merge_bench.cli import common
from merge_bench.cli.service import run_on_service, service_address, service_address_from_on_option
from merge_bench.config.option import Options
from merge_bench.config.options import PROBE_OPTIONS, RunOptions
from merge_bench.errors import RunFailed, UsageError, print_message, warnings_already_printed
from merge_bench.probe import probes

if TYPE_CHECKING:
    from merge_bench.errors import WarningMessage
    from merge_bench.probe.shared import ProbeKind
    from merge_bench.probe.view import ProbeOutputOptions
    from merge_bench.records.campaign import Campaign
    from merge_bench.records.probe_rows import ProbeRow

_OUTPUT_OPTIONS = common.combine_decorators(
    common.path_option("--csv csv_file", "FILE", "Write the results to this CSV file."),
    common.plot_option("results over message size"),
    common.text_option(
        "--reference references",
        "NAME",
        "Published results to show beside the measured ones; `--reference list` prints their names.",
        multiple=True,
    ),
)
_PROBE_OPTIONS = common.combine_decorators(
    common.text_option("--on", "URL", "", hidden=True),
    common.path_option("--baseline", "CFG", "Baseline config of the comparison; shown first."),
    common.path_option("--config configs", "CFG", "Config to measure; may be repeated.", multiple=True),
    _OUTPUT_OPTIONS,
    common.add_options("run_options", RunOptions, PROBE_OPTIONS),
)


class _ProbeGroup(common.FullHelpGroup):
    """The group `probe`, to which a command for each probe is added when any command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        self._add_probes()
        return super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        self._add_probes()
        return super().get_command(ctx, cmd_name)

    def _add_probes(self) -> None:
        for name, kind in probes().items():
            if name not in self.commands:
                self.add_command(_make_probe_command(kind))


@click.group("probe", cls=_ProbeGroup)
def probe_commands() -> None:
    """Measure the network without a merge, with the same launchers, configs and records as `run`."""


def _make_probe_command(kind: ProbeKind[Any]) -> click.Command:
    """Make the click command ``probe NAME`` for one kind of probe."""

    def measure_probe(**arguments: Any) -> int:
        return run_probe(kind, **arguments)

    decorate = click.command(kind.name, cls=common.SectionedHelpCommand, help=kind.help)
    return decorate(common.add_options("probe_options", kind.options)(_PROBE_OPTIONS(measure_probe)))


def run_probe(
    kind: ProbeKind[Any],
    *,
    on: str | None,
    baseline: str | None,
    configs: Sequence[str],
    csv_file: str | None,
    plots: Sequence[str],
    references: Sequence[str],
    run_options: RunOptions,
    probe_options: Options,
) -> int:
    """Run ``probe NAME``: measure the configs in turn, and show what was measured and what failed.

    Returns the exit status.
    """
    from merge_bench.probe.shared import probe_campaign as campaigns
    from merge_bench.probe.shared.stored_rows import sorted_campaign_rows
    from merge_bench.probe.view import LIST, parse_output_options, print_published_references
    from merge_bench.records.reader import read_campaign
    from merge_bench.view.progress import make_progress
    from merge_bench.view.streams import print_warnings

    as_json = run_options.json
    if LIST in references:
        print_published_references(as_json=as_json)
        return 0
    output = parse_output_options(csv_file, plots, references)
    prepared_probe, details = kind.make(probe_options, run_options), getattr(probe_options, "details", True)
    config_names: list[str | None] = list(dict.fromkeys(filter(None, [baseline, *configs])))
    if url := service_address(run_options) or service_address_from_on_option(on):
        campaign, _, status = run_on_service(url, f"probe {kind.name}", run_options, details=details)
    else:
        head, jobs = campaigns.plan_probe_campaign(prepared_probe, config_names or [None], run_options)
        print_warnings(warning for job in jobs for warning in job.prepared.warnings)
        if run_options.dry_run:
            print(campaigns.dry_run_text(prepared_probe, head, jobs))
            return 0
        with contextlib.closing(make_progress(sys.stderr, quiet=as_json)) as progress:
            folder, status = campaigns.run_probe_campaign(
                prepared_probe,
                head,
                jobs,
                progress,
                fresh=run_options.fresh,
                caller=common.make_calling_program(),
                wait_for_quiet=run_options.wait_for_quiet,
            )
        campaign = read_campaign(folder)
    return max(
        status, _show_probe_rows([campaign], sorted_campaign_rows(campaign), output, as_json=as_json, details=details)
    )


@probe_commands.command("show")
@click.argument("results", nargs=-1, type=common.RESULT, metavar="RESULT...")
@_OUTPUT_OPTIONS
@common.json_option()
def show_probes(
    results: Sequence[str], csv_file: str | None, plots: Sequence[str], references: Sequence[str], as_json: bool
) -> int:
    """Show the results of stored `probe` campaigns without measuring again.

    A RESULT is a campaign folder, its records.jsonl, or a CSV file of the ping-pong, whose file name says where the
    ping-pong was measured. Several RESULTs are shown together.
    """
    from merge_bench.probe.shared import stored_rows
    from merge_bench.probe.shared.stored_rows import rows_with_campaigns
    from merge_bench.probe.view import LIST, parse_output_options, print_published_references
    from merge_bench.records.reader import read_campaign

    if LIST in references:
        print_published_references(as_json=as_json)
        return 0
    if not results:
        raise UsageError("no RESULT given; name the folder of a `probe` campaign or its records.jsonl")
    output = parse_output_options(csv_file, plots, references)
    files = [Path(result) for result in dict.fromkeys(results) if str(result).endswith(".csv")]
    campaigns = [read_campaign(result) for result in results if not str(result).endswith(".csv")]
    rows = [
        *(row for _, row in rows_with_campaigns(campaigns)),
        *(row for file in files for row in stored_rows.read_ping_pong_csv(file)),
    ]
    return _show_probe_rows(campaigns, rows, output, as_json=as_json)


def compare_probe_campaigns(campaigns: Sequence[Campaign], *, as_json: bool) -> int:
    """Print the rows of stored network measurements beside those of the first config; returns the exit status.

    Raises UsageError if there is only one config.
    """
    from merge_bench.probe.shared.stored_rows import rows_with_campaigns
    from merge_bench.probe.view import ProbeOutputOptions

    rows = [row for _, row in rows_with_campaigns(campaigns)]
    if len({row.config for row in rows}) < 2:
        raise UsageError(f"{campaigns[0].folder} contains only one config; name a second result to compare it with")
    return _show_probe_rows(campaigns, rows, ProbeOutputOptions(), as_json=as_json)


def show_probe_campaign(campaign: Campaign, *, as_json: bool, details: bool) -> int:
    """Print a stored `probe` campaign as the command that measured it does; returns the exit status."""
    from merge_bench.probe.shared.stored_rows import sorted_campaign_rows
    from merge_bench.probe.view import ProbeOutputOptions

    return _show_probe_rows(
        [campaign], sorted_campaign_rows(campaign), ProbeOutputOptions(), as_json=as_json, details=details
    )


def _show_probe_rows(
    campaigns: Sequence[Campaign],
    measured_rows: Sequence[ProbeRow],
    output: ProbeOutputOptions,
    *,
    as_json: bool,
    details: bool = True,
) -> int:
    """Print rows of probes, or the document of ``--json``, and write the files of `output`; returns the exit status.

    The document is printed last, as it names the files that could not be written.
    """
    from merge_bench.analysis.documents import Failure
    from merge_bench.probe.view import ProbeDocument, write_output_files
    from merge_bench.view.streams import print_document

    rows = [*measured_rows, *output.references]
    warnings = list(dict.fromkeys(caution for one in campaigns for caution in one.cautions))
    if not as_json:
        above = warnings_already_printed()
        _print_probe_tables(
            campaigns, measured_rows, rows, [caution for caution in warnings if caution not in above], details
        )
    problems = write_output_files(output, rows, campaigns) if measured_rows else []
    failures = common.unrepeated_failures(campaigns)
    if as_json:
        errors = [*map(Failure.from_line, failures), *(Failure("not-written", problem) for problem in problems)]
        records = [str(one.records) for one in campaigns]
        named, error = records[0] if len(records) == 1 else records, errors[0] if errors else None
        print_document(ProbeDocument(records=named, rows=rows, warnings=warnings, error=error))
    common.print_failures(failures)
    for problem in problems:
        print_message(problem)
    return RunFailed.exit_status if problems else 0


def _print_probe_tables(
    campaigns: Sequence[Campaign],
    measured_rows: Sequence[ProbeRow],
    rows: Sequence[ProbeRow],
    warnings: Sequence[WarningMessage],
    details: bool,
) -> None:
    from merge_bench.probe.shared.stored_rows import newest_ucx_latency_rows
    from merge_bench.probe.view.show import print_mpi_summary, print_row_tables

    configs = list(dict.fromkeys(row.config for row in measured_rows if row.source is None))
    remarks = [] if measured_rows else ["nothing was measured, and no file was written"]
    if len(campaigns) > 1 and len(configs) > 1:
        remarks.append("the campaigns ran at different times; speed-ups include any change of the machines in between")
    remarks += [f"campaign {one.head.campaign_id} did not finish" for one in campaigns if one.end is None]
    remarks += [
        f"imported from {source.file}, which {source.program} printed; not verified by merge_bench"
        for one in campaigns
        if (source := one.head.imported_from) is not None
    ]
    baseline = configs[0] if len(configs) > 1 else None
    records = [one.records for one in campaigns]
    if measured_rows and not details and rows == list(measured_rows):  # published rows need the tables
        ucx = newest_ucx_latency_rows(campaigns[0].folder.parent)
        print_mpi_summary(measured_rows, ucx, warnings=warnings, remarks=remarks, records=records)
        return
    print_row_tables(rows, baseline=baseline, warnings=warnings, remarks=remarks, records=records)
