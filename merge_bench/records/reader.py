"""Reads a campaign back, in one pass over its lines.

A campaign that was killed is a campaign: a half-written last line is left out, and the ``end``
line may be missing. A file that is something else, or damaged inside, is refused in one sentence.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import msgspec

from merge_bench.errors import UsageError
from merge_bench.records import schema as s
from merge_bench.records.campaign import Campaign, Launch
from merge_bench.records.codec import KINDS, decode, decode_head
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
    """The first line of `records`; None where there is none that this version can read."""
    try:
        with records.open("rb") as stream:
            record = _decode(stream.readline())
    except (OSError, ValueError, _NewerSchema):
        return None
    return record if isinstance(record, s.CampaignLine) else None


@dataclass
class _LaunchParts:
    """A launch while its lines come in."""

    line: s.LaunchLine | None = None
    iterations: list[s.IterationLine] = field(default_factory=list)
    verifications: list[s.VerificationLine] = field(default_factory=list)
    link: s.LinkLine | None = None
    lanes: s.LanesLine | None = None
    memory: s.MemoryLine | None = None
    warnings: list[s.WarningLine] = field(default_factory=list)
    failures: list[s.FailureLine] = field(default_factory=list)
    end: s.LaunchEndLine | None = None
    traffic: list[s.TrafficLine] = field(default_factory=list)
    probes: list[s.ProbeLine] = field(default_factory=list)

    def build(self, index: int) -> Launch:
        return Launch(
            index,
            self.line,
            tuple(self.iterations),
            tuple(self.verifications),
            self.link,
            self.lanes,
            self.memory,
            tuple(self.warnings),
            tuple(self.failures),
            self.end,
            tuple(self.traffic),
            tuple(self.probes),
        )


@dataclass
class _Parts:
    """A campaign while its lines come in. `add` raises ValueError for a line that does not fit the ones before."""

    head: s.CampaignLine
    lean: bool = False
    launches: dict[int, _LaunchParts] = field(default_factory=dict)
    warnings: list[s.WarningLine] = field(default_factory=list)
    failures: list[s.FailureLine] = field(default_factory=list)
    end: s.EndLine | None = None
    skipped: Counter[str] = field(default_factory=Counter)
    added: list[s.ConfigLine] = field(default_factory=list)
    tuning: list[s.TuneLine] = field(default_factory=list)

    def __post_init__(self) -> None:
        for run in self.head.runs:
            self._check_key(run.config, run.plan)

    def add(self, record: s.Record) -> None:
        self.end = None  # whatever follows an end is of a campaign that was gone on with
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
                self._add_launch(record)
            case s.WarningLine() if record.launch is None:
                self.warnings.append(record)
            case s.FailureLine():
                self._add_failure(record)
            case s.WarningLine(launch=int(index)):
                self._launch(index).warnings.append(record)
            case s.LaunchEndLine():
                self._launch(record.launch).end = record
            case _:
                self._add_measurement(record)

    def _add_launch(self, record: s.LaunchLine) -> None:
        self._check_key(record.config, record.plan)
        parts = self._launch(record.launch)
        if parts.line is not None:
            raise ValueError(f"launch {record.launch} is there twice")
        parts.line = record

    def _add_failure(self, record: s.FailureLine) -> None:
        if record.config is not None and record.plan is not None:
            self._check_key(record.config, record.plan)
        if record.launch is None:
            self.failures.append(record)
        else:
            self._launch(record.launch).failures.append(record)

    def _add_measurement(self, record: s.Record) -> None:
        parts = self.launches.get(record.launch) if hasattr(record, "launch") and record.launch is not None else None
        if parts is None or parts.line is None:
            raise ValueError("it belongs to a launch that has no line before it")
        match record:
            case s.IterationLine():
                if self.lean and parts.iterations:
                    parts.iterations[-1] = msgspec.structs.replace(parts.iterations[-1], pairs=[])
                parts.iterations.append(record)
            case s.VerificationLine():
                parts.verifications.append(record)
            case s.ProbeLine():
                parts.probes.append(record)
            case s.LinkLine():
                parts.link = record
            case s.LanesLine():
                if any(pair.protocols is not None and pair.protocols >= len(record.protocols) for pair in record.pairs):
                    raise ValueError("a pair has protocols that are not in it")
                parts.lanes = record
            case s.TrafficLine():
                parts.traffic.append(record)
            case s.MemoryLine():
                parts.memory = record

    def _launch(self, index: int) -> _LaunchParts:
        return self.launches.setdefault(index, _LaunchParts())

    def _check_key(self, config: str, plan: int) -> None:
        known = {each.name for each in (*self.head.configs, *(line.config for line in self.added))}
        if plan >= len(self.head.plans) or config not in known:
            raise ValueError(f"config {config!r} with plan {plan} is not in the campaign's first line")

    def build(self, records: Path, *, truncated: bool) -> Campaign:
        return Campaign(
            records,
            self.head,
            tuple(self.launches[index].build(index) for index in sorted(self.launches)),
            tuple(self.warnings),
            tuple(self.failures),
            self.end,
            truncated,
            dict(self.skipped),
            tuple(self.added),
            tuple(self.tuning),
        )


@dataclass
class Assembly:
    """A campaign while its lines are read; `path` is only for sentences.

    Attributes
    ----------
    lean : bool
        Keep the traffic between pairs of each launch's last iteration only: with many workers it is most of the size.
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
