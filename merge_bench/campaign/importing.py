"""Imports a file with the output of another program: recognises its format, and writes what it says as a campaign."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from merge_bench.campaign.importers import AUTO, ImportedResult, importers, load_format_reader
from merge_bench.campaign.printed_text import PrintedText
from merge_bench.config.files import read_regular_file, replace_file
from merge_bench.config.installation import __version__
from merge_bench.errors import RunFailed, UsageError
from merge_bench.records import schema as s
from merge_bench.records.campaign import IMPORTED
from merge_bench.records.reader import decode_record
from merge_bench.records.writer import CampaignWriter

LARGEST = 64 << 20


def import_file(file: Path, results: Path, argv: Sequence[str] = (), *, format: str = AUTO) -> Path:
    """Import the output in `file` as a campaign in the folder `results`; returns the campaign's folder.

    `format`: the name of an importer; ``auto``: that which recognises the text. The campaign's logs get a copy of
    `file`. Raises UsageError, before anything is written, if no format fits, or the text is not the whole output of one
    run; RunFailed if the disk is full.
    """
    try:
        content = read_regular_file(file, LARGEST)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        problem = f"there is no file {file}" if missing else f"cannot read {file}: {error.strerror}"
        raise UsageError(problem) from error
    text = PrintedText.decode(file, content, " or ".join(importers()) if format == AUTO else format)
    result = load_format_reader(recognise_format(text) if format == AUTO else format).read(text)
    _refuse_unrecordable_figures(file, result)
    with CampaignWriter.create(results, file.stem) as writer:
        try:
            with replace_file(writer.logs / file.name) as stream:
                stream.write(content)
        except OSError as error:
            raise RunFailed(f"cannot copy {file} to {writer.logs}: {error.strerror}") from error
        digest = hashlib.sha256(content).hexdigest()
        for record in _make_campaign_records(result, file, digest, writer.campaign_id, argv):
            writer.write(record)
        return writer.folder


def _refuse_unrecordable_figures(file: Path, result: ImportedResult) -> None:
    """Raise UsageError if a figure is beyond what records can hold, so that no reader could read them."""
    for line in result.measurements:
        try:
            decode_record(msgspec.json.encode(line))
        except ValueError as error:
            raise UsageError(f"{file} has a figure that cannot be right: {error}") from error


def recognise_format(text: PrintedText) -> str:
    """Return the name of the importer that recognises `text`; raises UsageError if none does, or several do."""
    lines = {name: load_format_reader(name).find_identifying_line(text) for name in importers()}
    line_numbers = {name: line for name, line in lines.items() if line}
    parts = {part for name in line_numbers for part in importers()[name].includes}
    line_numbers = {name: line for name, line in line_numbers.items() if name not in parts}
    if not line_numbers:
        raise UsageError(
            f"{text.path} fits none of the formats {', '.join(importers())}{text.python_error_clause};"
            " --format NAME says which one it is"
        )
    if len(line_numbers) > 1:
        where = " and ".join(f"{name} (line {line})" for name, line in line_numbers.items())
        raise UsageError(f"{text.path} has output of {where}; put each into its own file, or choose with --format")
    return next(iter(line_numbers))


def _make_campaign_records(
    result: ImportedResult, file: Path, digest: str, campaign_id: str, argv: Sequence[str]
) -> Iterator[s.Record]:
    from merge_bench.campaign.run_campaign import git_state

    name = _replace_undecodable_bytes(file.stem)
    yield s.CampaignLine(
        campaign_id=campaign_id,
        argv=[_replace_undecodable_bytes(word) for word in argv],
        version=__version__,
        git=git_state(),
        configs=[s.Config(name=name, variables=dict(result.variables))],
        plans=[{**result.plan, "verify": IMPORTED}],
        runs=[s.RunKey(config=name, plan=0)],
        imported_from=s.ImportSource(
            program=result.program,
            file=_replace_undecodable_bytes(str(file)),
            sha256=digest,
            command=result.command,
            fraction=result.fraction,
            headline=result.headline,
        ),
    )
    for caution in result.warnings:
        yield s.WarningLine.from_caution(caution)
    yield s.LaunchLine(
        launch=0,
        config=name,
        plan=0,
        cluster=s.Cluster(launcher=IMPORTED, protocol=None),
        workers=[],
        data_bytes=result.data_bytes,
        rows=result.rows,
    )
    yield from result.measurements
    yield s.LaunchEndLine(launch=0, status=0, seconds=None)
    yield s.CampaignEndLine(status=0)


def _replace_undecodable_bytes(name: str) -> str:
    """Replace the bytes of a file name that are not UTF-8, because records cannot hold them."""
    return name.encode("utf-8", "replace").decode("utf-8")
