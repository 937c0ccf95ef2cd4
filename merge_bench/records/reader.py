"""Reads a campaign in one pass over its lines.

A killed campaign can be read: a half-written last line is left out, and the ``end`` line may be missing. A file that is
no campaign, or is damaged before its last line, is refused.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from merge_bench.errors import UsageError
from merge_bench.records import schema as s
from merge_bench.records.campaign import Campaign, Launch
from merge_bench.records.codec import KINDS, decode, decode_head
from merge_bench.records.plan import Plan
from merge_bench.records.writer import RECORDS


def read_campaign(result: str | os.PathLike[str]) -> Campaign:
    """Read `result`: a campaign's folder, or its ``records.jsonl``.

    Raises
    ------
    UsageError
        If there is nothing to read there, or it is no campaign, or it is damaged before its last line,
        or a newer merge_bench wrote it. The sentence names the file, and the line where there is one.
    """
    path = Path(result)
    records = path / RECORDS if path.is_dir() else path
    try:
        with records.open("rb") as stream:
            return _read(records, stream)
    except FileNotFoundError:
        what = f"the folder {path} holds no {RECORDS}" if path.is_dir() else f"there is no file {path}"
        raise UsageError(f"{what}; a result is a campaign's folder or its {RECORDS}") from None
    except OSError as error:
        raise UsageError(f"cannot read {records}: {error.strerror}") from error


def read_head(records: Path) -> s.CampaignLine | None:
    """The first line of `records`; None if this version cannot read it."""
    try:
        with records.open("rb") as stream:
            record = _decode(stream.readline())
    except (OSError, ValueError, _NewerSchema):
        return None
    return record if isinstance(record, s.CampaignLine) else None


_ONCE: Mapping[type[s.Line], str] = {
    s.LaunchLine: "line",
    s.LinkLine: "link",
    s.LanesLine: "lanes",
    s.MemoryLine: "memory",
    s.LaunchEndLine: "end",
}
"""The field of `Launch` that a line is; the last one counts."""

_SEVERAL: Mapping[type[s.Line], str] = {
    s.IterationLine: "iterations",
    s.VerificationLine: "verifications",
    s.WarningLine: "warnings",
    s.FailureLine: "failures",
    s.TrafficLine: "traffic",
    s.ProbeLine: "probes",
}
"""The field of `Launch` that holds lines of a kind, in their order."""


@dataclass
class _Parts:
    """A campaign while its lines come in. `add` raises ValueError for a line that does not fit the ones before.

    `launches`: the fields of each launch, by its index.
    """

    head: s.CampaignLine
    lean: bool = False
    launches: dict[int, dict[str, Any]] = field(default_factory=dict)
    warnings: list[s.WarningLine] = field(default_factory=list)
    failures: list[s.FailureLine] = field(default_factory=list)
    end: s.EndLine | None = None
    skipped: Counter[str] = field(default_factory=Counter)
    added: list[s.ConfigLine] = field(default_factory=list)
    tuning: list[s.TuneLine] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plans = tuple(map(Plan.of, self.head.plans))
        for run in self.head.runs:
            self._check_key(run.config, run.plan)

    def add(self, record: s.Record) -> None:
        self.end = None  # a line after an end belongs to a campaign that was resumed
        match record:
            case s.CampaignLine():
                raise ValueError("it begins a second campaign")
            case s.EndLine():
                self.end = record
            case s.ConfigLine():
                self.added.append(record)
            case s.TuneLine():
                if record.plan >= len(self.head.plans):
                    raise ValueError(f"plan {record.plan} is not in the campaign's first line")
                self.tuning.append(record)
            case s.LaunchLine():
                self._check_key(record.config, record.plan)
                if "line" in self.launches.get(record.launch, ()):
                    raise ValueError(f"launch {record.launch} is there twice")
                self._keep(record.launch, record)
            case s.WarningLine():
                if record.launch is None:
                    self.warnings.append(record)
                else:
                    self._keep(record.launch, record)
            case s.FailureLine():
                if record.config is not None and record.plan is not None:
                    self._check_key(record.config, record.plan)
                if record.launch is None:
                    self.failures.append(record)
                else:
                    self._keep(record.launch, record)
            case s.LaunchEndLine():
                self._keep(record.launch, record)
            case _:
                self._check_measurement(record)
                self._keep(record.launch, record)

    def _check_measurement(self, record: s.Measurement) -> None:
        if "line" not in self.launches.get(record.launch, ()):
            raise ValueError("it belongs to a launch that has no line before it")
        if isinstance(record, s.LanesLine) and any(
            pair.protocols is not None and pair.protocols >= len(record.protocols) for pair in record.pairs
        ):
            raise ValueError("a pair has protocols that are not in it")

    def _keep(self, launch: int, record: s.Record) -> None:
        fields = self.launches.setdefault(launch, {})
        if name := _ONCE.get(type(record)):
            fields[name] = record
            return
        lines = fields.setdefault(_SEVERAL[type(record)], [])
        if self.lean and lines and isinstance(record, s.IterationLine):
            lines[-1] = msgspec.structs.replace(lines[-1], pairs=[])
        lines.append(record)

    def _check_key(self, config: str, plan: int) -> None:
        known = {each.name for each in (*self.head.configs, *(line.config for line in self.added))}
        if plan >= len(self.head.plans) or config not in known:
            raise ValueError(f"config {config!r} with plan {plan} is not in the campaign's first line")

    def build(self, records: Path, *, truncated: bool) -> Campaign:
        return Campaign(
            records,
            self.head,
            self.plans,
            tuple(_launch(index, fields) for index, fields in sorted(self.launches.items())),
            tuple(self.warnings),
            tuple(self.failures),
            self.end,
            truncated,
            dict(self.skipped),
            tuple(self.added),
            tuple(self.tuning),
        )


def _launch(index: int, fields: Mapping[str, Any]) -> Launch:
    found: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    return Launch(index=index, **found)


@dataclass
class Assembly:
    """A campaign while its lines are read; `path` is only for sentences.

    Attributes
    ----------
    lean : bool
        Keep the traffic between pairs for the last iteration of each launch only: with many workers it takes the most
        memory.
    number : int
        Lines that were added.
    """

    path: Path
    lean: bool = False
    number: int = 0
    _parts: _Parts | None = None

    @property
    def started(self) -> bool:
        """Whether the campaign's first line was added."""
        return self._parts is not None

    def add(self, line: bytes) -> s.Record | None:
        """Add the next line; None: of a kind that this version does not know.

        Raises
        ------
        UsageError
            If it is damaged, or of a newer schema, or the first line is no campaign's. Then nothing was added.
        """
        number = self.number + 1
        try:
            record = _decode(line)
            if self._parts is None:
                if not isinstance(record, s.CampaignLine):
                    raise ValueError("it does not begin with a campaign line")
                self._parts = _Parts(record, lean=self.lean)
            elif isinstance(record, str):
                self._parts.skipped[record] += 1
            else:
                self._parts.add(record)
        except _NewerSchema as newer:
            raise NewerSchema(
                f"line {number} of {self.path} has schema {newer}; this merge_bench reads {s.SCHEMA}: use a newer one"
            ) from None
        except ValueError as error:
            if self._parts is None:
                raise UsageError(f"{self.path} is not a campaign of merge_bench: {error}") from None
            raise UsageError(f"line {number} of {self.path} is damaged: {error}") from None
        self.number = number
        return None if isinstance(record, str) else record

    def build(self, *, truncated: bool = False) -> Campaign:
        """The campaign as far as it was added.

        Raises
        ------
        UsageError
            If there is no first line.
        """
        if self._parts is None:
            raise UsageError(f"{self.path} is empty: no campaign was recorded in it")
        return self._parts.build(self.path, truncated=truncated)


class NewerSchema(UsageError):
    """A newer merge_bench wrote the line."""


def _read(path: Path, stream: BinaryIO) -> Campaign:
    assembly = Assembly(path)
    for line in stream:
        try:
            assembly.add(line)
        except NewerSchema:
            raise
        except UsageError:
            if assembly.started and not line.endswith(b"\n"):
                return assembly.build(truncated=True)
            raise
    return assembly.build()


class _NewerSchema(Exception):
    """A line of a schema that is newer than this reader."""


def _decode(line: bytes) -> s.Record | str:
    """The record of `line`, or the name of its kind where this version does not know it."""
    try:
        record = decode(line)
    except ValueError:
        head = decode_head(line)
        if head.schema <= s.SCHEMA:
            if head.kind not in KINDS:
                return head.kind
            raise
        raise _NewerSchema(head.schema) from None
    if record.schema > s.SCHEMA:
        raise _NewerSchema(record.schema)
    return record
