"""Which campaigns there are: known from the first line and the end of each file, never from the whole of it."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from merge_bench.analysis import published
from merge_bench.records import schema as s
from merge_bench.records.codec import decode
from merge_bench.records.plan import Plan
from merge_bench.records.writer import RECORDS

YOURS, SHIPPED, PUBLISHED = "yours", "shipped", "published"
_SUBFOLDERS = {"curated": SHIPPED, "published": PUBLISHED}
_LONGEST_HEAD = 1 << 20
_TAIL = 4096
_DAY = 86400.0
_MOST = 20_000
"""Folders that are looked at; a results folder with more is no results folder."""

MERGE, TUNE, IMPORTED = "merge", "tune", "import"
DONE, RUNNING, UNFINISHED, UNREADABLE = "done", "running", "unfinished", "unreadable"
_ENDED = {0: DONE, 2: "wrong usage", 3: "failed", 4: "wrong result", 5: "gate not met"}


@dataclass(frozen=True)
class Entry:
    """A campaign as the list shows it.

    `origin`: yours, shipped or published. `modified`: seconds since the epoch. `head` is None where it cannot
    be read. `ended` is the exit status of its last line, None if that is no end.
    """

    folder: Path
    origin: str
    size: int
    modified: float
    head: s.CampaignLine | None
    ended: int | None
    written: bool = False

    @property
    def id(self) -> str:
        """What it is called by: the folder's path."""
        return str(self.folder)

    @property
    def status(self) -> str:
        """In a word or two; running only where this machine sees who writes."""
        if self.head is None:
            return UNREADABLE
        if self.ended is not None:
            return _ENDED.get(self.ended, f"status {self.ended}")
        return RUNNING if self.written else UNFINISHED

    @property
    def kind(self) -> str:
        """``merge``, ``tune``, ``import``, or which probe it is."""
        if self.head is None:
            return ""
        if self.head.imported_from is not None:
            return IMPORTED
        if self.head.argv[:1] == [TUNE]:
            return TUNE
        probe = self.plans[0].probe if self.plans else None
        return f"probe {probe}" if probe else MERGE

    @cached_property
    def plans(self) -> tuple[Plan, ...]:
        """The plans of its first line."""
        return tuple(map(Plan.of, self.head.plans)) if self.head else ()

    @property
    def configs(self) -> tuple[str, ...]:
        """Names of the configs of its first line."""
        return tuple(config.name for config in self.head.configs) if self.head else ()

    @property
    def started(self) -> float | None:
        """Seconds since the epoch."""
        return self.head.time if self.head else None

    def of_plans(self, name: str) -> tuple[object, ...]:
        """The values of one option in its plans, each once."""
        values = [getattr(plan, name) for plan in self.plans]
        return tuple(dict.fromkeys(value for value in values if value is not None))


class Index:
    """The campaigns of one results folder, with what is known of unchanged files kept from one look to the next.

    Safe to ask from several threads; a look that is younger than `hold_seconds` serves for all that ask.
    """

    def __init__(self, results: str | os.PathLike[str], *, hold_seconds: float = 0.0) -> None:
        self.results = Path(results)
        self.problem: str | None = None
        self._known: dict[Path, tuple[tuple[int, int], Entry]] = {}
        self._hold = hold_seconds
        self._last: tuple[float, tuple[Entry, ...]] | None = None
        self._lock = threading.Lock()

    def scan(self) -> tuple[Entry, ...]:
        """Every campaign, the newest first. `problem` says afterwards why the folder cannot be read, or None.

        Files are opened only where size or time of change differ from the last look.
        """
        with self._lock:
            if self._last is None or time.monotonic() - self._last[0] >= self._hold:
                found = self._scan()
                self._last = time.monotonic(), found
            return self._last[1]

    def _scan(self) -> tuple[Entry, ...]:
        self.problem = None
        writers = _written_files()
        known: dict[Path, tuple[tuple[int, int], Entry]] = {}
        entries: list[Entry] = []
        for folder, origin in self._folders():
            try:
                found = (folder / RECORDS).stat()
            except FileNotFoundError:
                continue  # No campaign, and nothing that claims to be one.
            except OSError:
                entries.append(_unreadable(folder, origin))
                continue
            key = found.st_size, found.st_mtime_ns
            held = self._known.get(folder)
            entry = held[1] if held is not None and held[0] == key else _look(folder, origin, found)
            known[folder] = key, entry
            if origin == SHIPPED and entry.head is None:
                continue  # A result of a benchmark of this project, which has records of its own.
            entries.append(replace(entry, written=found.st_ino in writers))
        self._known = known
        return tuple(sorted(entries, key=_order, reverse=True))

    def _folders(self) -> Iterator[tuple[Path, str]]:
        yield from self._inside(self.results, YOURS)
        shipped = published.FOLDER.parent
        places = {self.results / name: origin for name, origin in _SUBFOLDERS.items()}
        if self.results.resolve() != shipped:
            places |= {published.FOLDER: PUBLISHED, shipped / "curated": SHIPPED}
        for place, origin in places.items():
            if place.is_dir():
                yield from self._inside(place, origin)

    def _inside(self, place: Path, origin: str) -> Iterator[tuple[Path, str]]:
        try:
            with os.scandir(place) as found:
                names = [item.name for item, _ in zip(found, range(_MOST + 1), strict=False) if item.is_dir()]
        except FileNotFoundError:
            return  # No run was made yet.
        except OSError as error:
            self.problem = f"cannot read the folder {place}: {error.strerror}"
            return
        if len(names) > _MOST:
            self.problem = f"{place} has more than {_MOST:,} folders; the others are not listed"
        yield from ((place / name, origin) for name in names[:_MOST] if origin != YOURS or name not in _SUBFOLDERS)


def _order(entry: Entry) -> tuple[bool, float, str]:
    """What cannot be read stands last; a campaign from the far future counts from when it was written."""
    started = entry.started if entry.started is not None and entry.started < entry.modified + _DAY else entry.modified
    return entry.head is not None, started, entry.id


def newest_running(entries: Sequence[Entry]) -> Entry | None:
    """The campaign to watch: the newest that runs, else the newest of yours, else none."""
    running = [entry for entry in entries if entry.status == RUNNING]
    yours = [entry for entry in entries if entry.origin == YOURS and entry.head is not None]
    return next(iter(running or yours), None)


def _look(folder: Path, origin: str, found: os.stat_result) -> Entry:
    """Read the first line and the end."""
    if not stat.S_ISREG(found.st_mode):
        return _unreadable(folder, origin)
    try:
        descriptor = os.open(folder / RECORDS, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            first = os.pread(descriptor, _LONGEST_HEAD, 0)
            tail = os.pread(descriptor, _TAIL, max(found.st_size - _TAIL, 0))
        finally:
            os.close(descriptor)
    except OSError:
        return _unreadable(folder, origin)
    return Entry(folder, origin, found.st_size, found.st_mtime, _head(first), _end(tail))


def _unreadable(folder: Path, origin: str) -> Entry:
    return Entry(folder, origin, 0, 0.0, None, None)


def _head(first: bytes) -> s.CampaignLine | None:
    """The first line, if it is whole and this version can read it. A reader of the whole file says why not."""
    line, end, _ = first.partition(b"\n")
    try:
        record = decode(line) if end else None
    except ValueError:
        return None
    return record if isinstance(record, s.CampaignLine) and record.schema <= s.SCHEMA else None


def _end(tail: bytes) -> int | None:
    """The exit status in the last whole line, if that is an end."""
    lines = tail.split(b"\n")
    if len(lines) < 2:
        return None
    try:
        record = decode(lines[-2])
    except ValueError:
        return None
    return record.status if isinstance(record, s.EndLine) else None


def _written_files() -> frozenset[int]:
    """Inodes of locked files: the writer of a campaign holds a lock until it ends.

    Read from the kernel's list: taking the lock to see whether it is free would be in the way of a run that wants it.
    """
    try:
        with open("/proc/locks", encoding="ascii") as stream:
            fields = [line.split() for line in stream]
    except OSError:
        return frozenset()
    found = (each[5].rpartition(":")[2] for each in fields if len(each) > 5 and each[1] == "FLOCK")
    return frozenset(int(inode) for inode in found if inode.isdigit())
