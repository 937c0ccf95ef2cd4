"""Reads a campaign: in one pass over its lines, or bit by bit while it is written.

The records of a killed campaign can be read: a half-written last line is left out, and the ``end`` line may be missing.
A file that is not a campaign, or is damaged before its last line, is refused. A `CampaignFollower` returns what it
could read, and a sentence about the problem.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from merge_bench.config.files import open_regular_file
from merge_bench.errors import UsageError
from merge_bench.records import schema as s
from merge_bench.records.campaign import INTERRUPTED, Campaign, Launch
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.records.writer import RECORDS

LONGEST_LINE = 256 << 20
"""Bytes of a line that are read at most."""
LIMIT_BYTES = 256 << 20
"""The largest total size of the lines that are kept in memory."""
BLOCK_BYTES = 8 << 20
"""Bytes read in one step, so that a display can show the progress."""
_WORKER_BYTES = 400  # of a worker in an iteration's line, without its pairs
KINDS = frozenset(str(kind.__struct_config__.tag) for kind in get_args(s.Record))
"""The kinds of lines that this version knows."""


class RecordHeader(msgspec.Struct, frozen=True, gc=False):
    """The fields of a recorded line that tell a reader whether it can read the line: its schema version and kind."""

    schema: int
    kind: str


_DECODER: msgspec.json.Decoder[s.Record] = msgspec.json.Decoder(s.Record)
_HEAD_DECODER = msgspec.json.Decoder(RecordHeader)
_TOO_DEEP = "it is nested too deeply"


def decode_record(line: bytes | str) -> s.Record:
    """Decode the record of one line; fields that this version does not know are ignored.

    The description of a machine, a UCX or a repository counts as missing if it has another form, as in older lines.

    Raises ValueError if `line` is not JSON, or lacks a field, or a field has a wrong type.
    """
    try:
        try:
            return _DECODER.decode(line)
        except msgspec.ValidationError:
            return _DECODER.decode(msgspec.json.encode(_remove_old_descriptions(msgspec.json.decode(line))))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def _remove_old_descriptions(line: Any) -> Any:
    """Return a line without descriptions of a repository and of workers' UCX and hardware, whose forms have changed."""
    match line:
        case {"kind": "launch", "workers": list(workers)}:
            return {**line, "workers": [_without_fields(worker, "ucx", "hardware") for worker in workers]}
    return _without_fields(line, "git")


def _without_fields(line: Any, *names: str) -> Any:
    """Return a JSON object without the fields of these names."""
    return {name: line[name] for name in line if name not in names} if isinstance(line, dict) else line


def decode_record_header(line: bytes | str) -> RecordHeader:
    """Decode only ``schema`` and ``kind`` of a line.

    Raises ValueError if `line` is not a JSON object with both.
    """
    try:
        return _HEAD_DECODER.decode(line)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def read_campaign(result: str | os.PathLike[str], *, longest_line: int = LONGEST_LINE) -> Campaign:
    """Read `result`: a campaign's folder, or its ``records.jsonl``. `longest_line`: bytes of a line at most.

    Raises UsageError if there is no such file, or it is not a campaign, or it is damaged before its last line, or a
    newer merge_bench wrote it. The message names the file and, if possible, the line.
    """
    path = Path(result)
    records, folder = path, False
    try:
        folder = path.is_dir()
        records = path / RECORDS if folder else path
        builder = CampaignBuilder(records)
        with open_regular_file(records) as stream:
            while line := stream.readline(longest_line + 1):
                if len(line) > longest_line:
                    raise UsageError(
                        f"line {builder.number + 1} of {records} is longer than {longest_line >> 20} MiB, the limit"
                    )
                try:
                    builder.add_line(line)
                except UsageError as error:
                    if isinstance(error, NewerSchemaError) or not builder.has_first_line or line.endswith(b"\n"):
                        raise
                    return builder.build_campaign(truncated=True)
    except FileNotFoundError:
        what = f"the folder {path} contains no {RECORDS}" if folder else f"there is no file {path}"
        raise UsageError(f"{what}; give the path of a campaign folder or of its {RECORDS}") from None
    except OSError as error:
        raise UsageError(f"cannot read {records}: {error.strerror}") from error
    return builder.build_campaign()


def read_campaign_line(folder: Path) -> s.CampaignLine | None:
    """Read the first line of the records in a result's folder; None if this version cannot read it."""
    try:
        with open_regular_file(folder / RECORDS) as stream:
            record = _decode_record_or_kind(stream.readline(LONGEST_LINE))
    except (OSError, ValueError, UsageError):
        return None
    return record if isinstance(record, s.CampaignLine) else None


_FIELDS = {
    kind: (name, get_origin(hint) is tuple)
    for owner in (Launch, Campaign)
    for name, hint in get_type_hints(owner).items()
    for kind in get_args(hint)
    if isinstance(kind, type) and issubclass(kind, s.RecordLine)
}
"""The field of `Launch` or `Campaign` that contains the lines of a kind, and whether it contains all of them, in their
order; otherwise the last line of the kind counts."""


class CampaignBuilder:
    """Builds a campaign from its lines, one after the other; `path` is only for messages.

    `lean`: keep the traffic between pairs, which needs the most memory with many workers, for the last iteration of
    each launch only; `number`: of lines that were added.
    """

    def __init__(self, path: Path, *, lean: bool = False) -> None:
        self.path = path
        self.number = 0
        self._lean = lean
        self._head: s.CampaignLine | None = None
        self._fields: dict[str, Any] = {}  # of the `Campaign`
        self._launches: dict[int, dict[str, Any]] = {}  # index → fields of the `Launch`
        self._skipped: Counter[str] = Counter()

    @property
    def has_first_line(self) -> bool:
        """Whether the campaign's first line was added."""
        return self._head is not None

    def add_line(self, line: bytes) -> s.Record | None:
        """Add the campaign's next line, and return its record; None if its kind is unknown to this version.

        Raises UsageError if the line is damaged, or has a newer schema, or if the first line is not a campaign's. Then
        nothing was added.
        """
        number = self.number + 1
        try:
            record = _decode_record_or_kind(line)
            if self._head is None:
                self._add_first_record(record)
            elif isinstance(record, str):
                self._skipped[record] += 1
            else:
                self._check_record_fits(self._head, record)
                self._keep_record(record)
        except NewerSchemaError as newer:
            raise NewerSchemaError(f"line {number} of {self.path} {newer}") from None
        except ValueError as error:
            if self._head is None:
                raise UsageError(f"{self.path} is not a campaign of merge_bench: {error}") from None
            raise UsageError(f"line {number} of {self.path} is damaged: {error}") from None
        self.number = number
        return None if isinstance(record, str) else record

    def _add_first_record(self, record: s.Record | str) -> None:
        if not isinstance(record, s.CampaignLine):
            raise ValueError("it does not begin with a campaign line")
        for run in record.runs:
            self._check_run_is_planned(record, run.config, run.plan)
        self._head, self._fields["plans"] = record, [RecordedPlan.from_options(plan) for plan in record.plans]

    def _check_record_fits(self, campaign_line: s.CampaignLine, record: s.Record) -> None:
        """Raise ValueError if a record contradicts the records before it, such as a second line of the same launch."""
        if isinstance(record, s.Measurement) and "line" not in self._launches.get(record.launch, ()):
            raise ValueError("its launch has no launch line before it")
        match record:
            case s.IterationLine(launch=launch, pairs=pairs) | s.LanesLine(launch=launch, pairs=pairs) if pairs:
                ranks = {worker.rank for worker in self._launches[launch]["line"].workers}
                if ranks and not {pair.from_rank for pair in pairs} | {pair.to_rank for pair in pairs} <= ranks:
                    raise ValueError("a pair has a rank that its launch does not have")
        match record:
            case s.CampaignLine():
                raise ValueError("it begins a second campaign")
            case s.TuningStepLine() if record.plan >= len(campaign_line.plans):
                raise ValueError(f"plan {record.plan} is not in the campaign's first line")
            case s.LaunchLine():
                self._check_run_is_planned(campaign_line, record.config, record.plan)
                if "line" in self._launches.get(record.launch, ()):
                    raise ValueError(f"launch {record.launch} appears twice")
            case s.FailureLine(config=str(config), plan=int(plan)):
                self._check_run_is_planned(campaign_line, config, plan)
            case s.LanesLine(pairs=pairs, protocols=protocols) if any(
                pair.protocols is not None and pair.protocols >= len(protocols) for pair in pairs
            ):
                raise ValueError("a pair refers to protocols that are not in this line")

    def _check_run_is_planned(self, campaign_line: s.CampaignLine, config: str, plan: int) -> None:
        names = {
            each.name for each in (*campaign_line.configs, *(line.config for line in self._fields.get("added", ())))
        }
        if plan >= len(campaign_line.plans) or config not in names:
            raise ValueError(f"config {config!r} with plan {plan} is not in the campaign's first line")

    def _keep_record(self, record: s.Record) -> None:
        """Add a record to its launch, or to the campaign."""
        resumed = self._fields.pop("end", None) is not None  # a line after an end belongs to one that was resumed
        if resumed or not (
            isinstance(record, s.CampaignEndLine) and record.status
        ):  # and so does one after an interruption
            before = self._fields.get("failures", [])
            self._fields["failures"] = [each for each in before if each.code != INTERRUPTED]
        launch: int | None = getattr(record, "launch", None)
        fields = self._fields if launch is None else self._launches.setdefault(launch, {})
        name, several = _FIELDS[type(record)]
        if not several:
            fields[name] = record
            return
        lines = fields.setdefault(name, [])
        if self._lean and lines and isinstance(record, s.IterationLine):
            lines[-1] = msgspec.structs.replace(lines[-1], pairs=[])
        lines.append(record)

    def build_campaign(self, *, truncated: bool = False) -> Campaign:
        """Return the campaign with the lines that were added so far.

        Raises UsageError if there is no first line.
        """
        if self._head is None:
            raise UsageError(f"{self.path} is empty; no campaign was recorded")
        launches = tuple(Launch(index, **_lists_to_tuples(fields)) for index, fields in sorted(self._launches.items()))
        head, fields = self._head, _lists_to_tuples(self._fields)
        for line in fields.get("extensions", ())[-1:]:
            plans = [{**plan, "launches": line.launches} for plan in head.plans]
            head = msgspec.structs.replace(head, plans=plans, argv=line.argv, options=line.options)
            fields["plans"] = tuple(map(RecordedPlan.from_options, head.plans))
        return Campaign(self.path, head, launches=launches, truncated=truncated, skipped=dict(self._skipped), **fields)


def _lists_to_tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with lists replaced by tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


class NewerSchemaError(UsageError):
    """Raised for a line that a newer merge_bench wrote."""


def _decode_record_or_kind(line: bytes) -> s.Record | str:
    """Decode the record of `line`, or return the name of its kind if this version does not know it."""
    record: s.Record | str
    try:
        record = decode_record(line)
        schema = record.schema
    except ValueError:
        head = decode_record_header(line)
        record, schema = head.kind, head.schema
        if schema <= s.SCHEMA and head.kind in KINDS:
            raise
    if schema > s.SCHEMA:
        raise NewerSchemaError(
            f"has schema {schema}, but this merge_bench reads only {s.SCHEMA}; use a newer merge_bench"
        )
    return record


class CampaignFollower:
    """Reads `result`, a campaign's folder or its ``records.jsonl``, block by block; never raises.

    Each read continues where the last one stopped. `records`: the file; `offset`: bytes that were read as whole lines;
    `size`: bytes of the file at the last read; `generation`: how often reading started, more than once if the file was
    replaced. `longest_line`: bytes of a line at most.
    """

    def __init__(
        self,
        result: str | os.PathLike[str],
        *,
        lean: bool = False,
        limit: int = LIMIT_BYTES,
        block: int = BLOCK_BYTES,
        longest_line: int = LONGEST_LINE,
    ) -> None:
        path = Path(result)
        self.records = path if path.name == RECORDS else path / RECORDS
        self._lean, self._limit, self._block, self._longest_line = lean, limit, block, longest_line
        self._identity: tuple[int, int] | None = None
        self._unreadable: str | None = None
        self._more = False
        self.generation = 0
        self._restart_reading()

    def _restart_reading(self) -> None:
        """Forget what was read, so that the file is read from its beginning."""
        self.generation += 1
        self._stopped: str | None = None
        self.offset = self.size = 0
        self._kept = 0
        self._blocks = 1  # to read at once, more for a long line
        self._builder = CampaignBuilder(self.records, lean=self._lean)
        self._built: Campaign | None = None

    @property
    def problem(self) -> str | None:
        """A sentence that says why nothing, or nothing more, can be read; None if there is no problem."""
        return self._unreadable or self._stopped

    @property
    def has_more(self) -> bool:
        """Whether the file has more bytes that can be read now."""
        return self._more and self.problem is None

    @property
    def campaign(self) -> Campaign | None:
        """The campaign as far as its file was read; None before its first line."""
        if self._built is None and self._builder.has_first_line:
            self._built = self._builder.build_campaign()
        return self._built

    def read(self) -> list[s.Record]:
        """Read the next block of the file, and return its records, which `campaign` has as well.

        A file that became shorter or was replaced is read again from its beginning.
        """
        self._more, self._unreadable = False, None
        try:
            descriptor = os.open(self.records, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                return self._read_block(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._unreadable = f"cannot read {self.records}: {error.strerror}"
            return []

    def _read_block(self, descriptor: int) -> list[s.Record]:
        """Read the next block of the open file, and return the records of its whole lines."""
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            self._unreadable = f"{self.records} is not a regular file"
            return []
        identity = status.st_dev, status.st_ino
        if self._identity is not None and (identity != self._identity or status.st_size < self.offset):
            self._restart_reading()
        self._identity = identity
        self.size = status.st_size
        if self._stopped is not None or self.offset >= self.size:
            return []
        data = os.pread(descriptor, self._block * self._blocks, self.offset)
        end = data.rfind(b"\n") + 1
        self._more = self.offset + len(data) < self.size
        if end:
            self._blocks = 1
            return self._add_lines(data[:end])
        if len(data) > self._longest_line:
            number = self._builder.number + 1
            self._stopped = f"line {number} of {self.records} is longer than {self._longest_line >> 20} MiB"
        elif self._more:
            self._blocks *= 2  # to reach the end of the line
        return []

    def _add_lines(self, lines: bytes) -> list[s.Record]:
        """Add whole lines to the campaign, and return their records."""
        records: list[s.Record] = []
        for line in lines.split(b"\n")[:-1]:
            if self._kept > self._limit:
                part = f"{self.offset / 2**20:,.0f} MiB of {self.size / 2**20:,.0f} MiB"
                self._stopped = f"only the first {part} were read, up to line {self._builder.number:,}"
                break
            try:
                record = self._builder.add_line(line)
            except UsageError as error:
                self._stopped = str(error)
                break
            self.offset += len(line) + 1
            kept = len(line)
            if self._lean and isinstance(record, s.IterationLine):
                kept = min(kept, _WORKER_BYTES * (len(record.workers) + 1))
            self._kept += kept
            if record is not None:
                records.append(record)
            self._built = None
        return records
