"""Imports a report of cudf-merge: writes its figures as the records of a campaign.

What the report does not tell stays null or empty: hosts, settings, transports, single workers, the warm-up. No result
is verified, and the records say so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from merge_bench.campaign.campaign import git_state
from merge_bench.campaign.cudf_merge_report import LARGEST, Report, read_report
from merge_bench.config.files import read_regular
from merge_bench.config.installation import __version__
from merge_bench.errors import Caution, RunFailed, UsageError
from merge_bench.records import schema as s
from merge_bench.records.campaign import IMPORTED
from merge_bench.records.outputs import replacing
from merge_bench.records.schema import Headline, ImportedFrom, ImportedIteration
from merge_bench.records.writer import CampaignWriter
from merge_bench.units import format_seconds, plural

PROGRAM = "cudf-merge"
DEFINITIONS = (
    "cudf-merge defines two figures slightly differently from merge_bench: its wall-clock is the time of one worker, "
    "including the closing barrier; its bandwidth is bytes ÷ seconds of both frames' exchanges, as the harmonic mean "
    "over workers"
)


def import_text(file: Path, results: Path, argv: Sequence[str] = ()) -> Path:
    """Import the report in `file` as a campaign in the folder `results`; returns the campaign's folder.

    The campaign's logs get a copy of `file`. Raises UsageError, before anything is written, if `file` has no complete
    report; RunFailed if the disk is full.
    """
    content = _read_content(file)
    report = read_report(file, content)
    with CampaignWriter.create(results, file.stem) as writer:
        try:
            with replacing(writer.logs / file.name) as stream:
                stream.write(content)
        except OSError as error:
            raise RunFailed(f"cannot copy {file} to {writer.logs}: {error.strerror}") from error
        for record in _make_records(report, file, hashlib.sha256(content).hexdigest(), writer.campaign_id, argv):
            writer.write(record)
        return writer.folder


def _read_content(file: Path) -> bytes:
    try:
        return read_regular(file, LARGEST)
    except FileNotFoundError:
        raise UsageError(f"there is no file {file}") from None
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error


def _make_records(report: Report, file: Path, digest: str, campaign_id: str, argv: Sequence[str]) -> Iterator[s.Record]:
    yield _campaign_line(report, file, digest, campaign_id, argv)
    for caution in _report_warnings(report):
        yield s.WarningLine.of(caution)
    yield s.LaunchLine(
        launch=0,
        config=_recordable_text(file.stem),
        plan=0,
        cluster=s.Cluster(launcher=IMPORTED, protocol=None),
        workers=[],
        data_bytes=report.data_bytes,
        rows=2 * report.workers * report.rows_per_chunk,
    )
    for index, iteration in enumerate(report.iterations):
        yield s.IterationLine(
            launch=0,
            index=index,
            wall_seconds=iteration.wall.value,
            imported=ImportedIteration(
                bandwidth_bytes_per_second=iteration.bandwidth.value,
                throughput_bytes_per_second=iteration.throughput.value,
                wall_resolution_seconds=iteration.wall.resolution,
            ),
        )
    yield s.LaunchEndLine(launch=0, status=0, seconds=None)
    yield s.EndLine(status=0)


def _campaign_line(report: Report, file: Path, digest: str, campaign_id: str, argv: Sequence[str]) -> s.CampaignLine:
    headline = Headline(
        wall_seconds=report.wall.value,
        wall_resolution_seconds=report.wall.resolution,
        bandwidth_bytes_per_second=report.bandwidth.value,
        throughput_bytes_per_second=report.throughput.value,
    )
    source = ImportedFrom(
        program=PROGRAM,
        file=_recordable_text(str(file)),
        sha256=digest,
        command=report.command,
        fraction=report.fraction,
        headline=headline,
    )
    plan = {
        "rows_per_chunk": report.rows_per_chunk,
        "workers": report.workers,
        "iterations": len(report.iterations),
        "launches": 1,
        "engine": "cudf",
        "verify": IMPORTED,
    }
    return s.CampaignLine(
        campaign_id=campaign_id,
        argv=[_recordable_text(word) for word in argv],
        version=__version__,
        git=git_state(),
        configs=[s.Config(name=_recordable_text(file.stem))],
        plans=[plan],
        runs=[s.RunKey(config=_recordable_text(file.stem), plan=0)],
        imported_from=source,
    )


def _recordable_text(name: str) -> str:
    """`name` without bytes that are no UTF-8, which a file name may have and records may not."""
    return name.encode("utf-8", "replace").decode("utf-8")


def _report_warnings(report: Report) -> Iterator[Caution]:
    """The warnings about an imported report; those that only this report has come first, as a terminal shows two."""
    printed = report.workers_printed
    if report.workers != printed:
        yield Caution(
            "imported-workers",
            f"the imported output lists {printed} workers, but has the data of {report.workers}; the number"
            f" of workers was set to {report.workers}",
        )
    if report.longest > len(report.iterations):
        yield Caution(
            "imported-length",
            f"the imported output may be incomplete: it lists {len(report.iterations)} iterations, but has data for"
            f" {report.longest}",
        )
    if report.traceback is not None:
        yield Caution("imported-error", f"the imported output also contains a Python error: {report.traceback}")
    if report.left_out:
        count = len(report.left_out)
        what = f"{plural(count, 'line')} {'is' if count == 1 else 'are'}"
        first = f"line {report.left_out[0]}: {report.first_left_out}"
        yield Caution("imported-lines", f"{what} not part of the report and left out; the first is {first}")
    yield Caution("imported-definitions", DEFINITIONS)
    coarsest = max(iteration.wall.resolution for iteration in report.iterations)
    finest = min(iteration.wall.resolution for iteration in report.iterations)
    least = "" if coarsest == finest else f"{format_seconds(finest)} to "
    digit = f"{least}{format_seconds(coarsest)}"
    yield Caution(
        "imported-rounded",
        f"the imported output rounds each iteration's wall-clock time to the nearest {digit}",
    )
