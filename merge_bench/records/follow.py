"""Follows a campaign while it is written. Each read continues where the last one stopped, up to a limit of memory.

The file may be incomplete, damaged, not a campaign, or larger than memory. A follower returns what it could read, and
a sentence about the problem.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from merge_bench.errors import UsageError
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import LONGEST_LINE, Assembly
from merge_bench.records.schema import IterationLine, Record
from merge_bench.records.writer import RECORDS

LIMIT_BYTES = 256 << 20
"""The largest total size of the lines that are kept in memory."""

BLOCK_BYTES = 8 << 20
"""Bytes read in one step, so that a display can show the progress."""

_WORKER_BYTES = 400  # of a worker in an iteration's line, without its pairs


class Follower:
    """Reads `result`, a campaign's folder or its ``records.jsonl``, block by block; never raises.

    `records`: the file; `offset`: bytes that were read as whole lines; `size`: bytes of the file at the last read;
    `generation`: how often reading started, more than once if the file was replaced.
    """

    def __init__(
        self, result: str | os.PathLike[str], *, lean: bool = False, limit: int = LIMIT_BYTES, block: int = BLOCK_BYTES
    ) -> None:
        path = Path(result)
        self.records = path if path.name == RECORDS else path / RECORDS
        self._lean, self._limit, self._block = lean, limit, block
        self._identity: tuple[int, int] | None = None
        self._unreadable: str | None = None
        self._more = False
        self.generation = 0
        self._start_anew()

    def _start_anew(self) -> None:
        self.generation += 1
        self._stopped: str | None = None
        self.offset = self.size = 0
        self._kept = 0
        self._blocks = 1  # to read at once, more for a long line
        self._assembly = Assembly(self.records, lean=self._lean)
        self._built: Campaign | None = None

    @property
    def problem(self) -> str | None:
        """A sentence that says why nothing, or nothing more, can be read; None if there is no problem."""
        return self._unreadable or self._stopped

    @property
    def behind(self) -> bool:
        """Whether there is more to read now."""
        return self._more and self.problem is None

    @property
    def campaign(self) -> Campaign | None:
        """The campaign as far as it was read; None before its first line."""
        if self._built is None and self._assembly.started:
            self._built = self._assembly.build()
        return self._built

    def read(self) -> list[Record]:
        """Read the next block, and return its records. `campaign` has them, too.

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

    def _read_block(self, descriptor: int) -> list[Record]:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            self._unreadable = f"{self.records} is not a regular file"
            return []
        identity = status.st_dev, status.st_ino
        if self._identity is not None and (identity != self._identity or status.st_size < self.offset):
            self._start_anew()
        self._identity = identity
        self.size = status.st_size
        if self._stopped is not None or self.offset >= self.size:
            return []
        data = os.pread(descriptor, self._block * self._blocks, self.offset)
        end = data.rfind(b"\n") + 1
        self._more = self.offset + len(data) < self.size
        if end == 0:
            self._stop_or_lengthen(len(data))
            return []
        self._blocks = 1
        return self._add_lines(data[:end])

    def _stop_or_lengthen(self, length: int) -> None:
        """After `length` bytes without the end of a line, read more at once next time; stop if the line is too long."""
        if length > LONGEST_LINE:
            self._stopped = (
                f"line {self._assembly.number + 1} of {self.records} is longer than {LONGEST_LINE >> 20} MiB"
            )
        elif self._more:
            self._blocks *= 2

    def _add_lines(self, lines: bytes) -> list[Record]:
        records: list[Record] = []
        for line in lines.split(b"\n")[:-1]:
            if self._kept > self._limit:
                self._stopped = (
                    f"only the first {self.offset / 2**20:,.0f} MiB of {self.size / 2**20:,.0f} MiB were read, "
                    f"up to line {self._assembly.number:,}"
                )
                break
            try:
                record = self._assembly.add(line)
            except UsageError as error:
                self._stopped = str(error)
                break
            self.offset += len(line) + 1
            if self._lean and isinstance(record, IterationLine):
                self._kept += min(len(line), _WORKER_BYTES * (len(record.workers) + 1))
            else:
                self._kept += len(line)
            if record is not None:
                records.append(record)
            self._built = None
        return records
