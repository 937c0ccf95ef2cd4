"""Lists campaigns. It reads only the first line and the end of each file."""

from __future__ import annotations

import functools
import itertools
import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from merge_bench.analysis import published
from merge_bench.records import schema as s
from merge_bench.records.campaign import INTERRUPTED
from merge_bench.records.codec import decode
from merge_bench.records.recorded_plan import Plan
from merge_bench.records.writer import RECORDS
from merge_bench.view.text import short, visible
from merge_bench.view.titles import is_tuning, short_times, title_of, unusual_engines

YOURS, SHIPPED, PUBLISHED = "yours", "shipped", "published"
_SUBFOLDERS = {"curated": SHIPPED, "published": PUBLISHED}
_LONGEST_HEAD = 1 << 20
_TAIL = 4096
_DAY = 86400.0
_MOST = 200_000
"""Folders that are listed at most."""

MERGE, TUNE, IMPORTED, PROBE = "merge", "tune", "import", "probe"
DONE, RUNNING, UNFINISHED, UNREADABLE = "done", "running", "unfinished", "unreadable"
_ENDED = {0: DONE, 2: "wrong usage", 3: "failed", 4: "wrong result", 5: "requirement not met"}


@dataclass(frozen=True)
class Entry:
    """A campaign in the list.

    `origin`: yours, shipped or published. `modified`: seconds since the epoch. `head`: its first line as far as lists
    need it, None if it cannot be read. `ended`: the exit status in its last line, None if that is no end.
    `interrupted`: whether a signal ended it, as Ctrl-C and Stop do. `written`: whether a process of this machine writes
    it.
    """

    folder: Path
    origin: str
    size: int = 0
    modified: float = 0.0
    head: s.CampaignLine | None = None
    ended: int | None = None
    interrupted: bool = False
    written: bool = False
    plans: tuple[Plan, ...] = ()

    @property
    def id(self) -> str:
        """The folder's path."""
        return str(self.folder)

    @property
    def status(self) -> str:
        """How it ended, or whether it runs, in a word or two."""
        if self.head is None:
            return UNREADABLE
        if self.ended is None and self.written:
            return RUNNING
        if self.interrupted:
            return INTERRUPTED
        return UNFINISHED if self.ended is None else _ENDED.get(self.ended, f"status {self.ended}")

    @property
    def kind(self) -> str:
        """``merge``, ``tune``, ``import`` or ``probe NAME``."""
        if self.head is None:
            return ""
        if self.head.imported_from is not None:
            return IMPORTED
        if is_tuning(self.plans):
            return TUNE
        probe = self.plans[0].probe if self.plans else None
        return f"{PROBE} {probe}" if probe else MERGE

    @property
    def configs(self) -> tuple[str, ...]:
        """The names of its configs."""
        return tuple(config.name for config in self.head.configs) if self.head else ()

    @property
    def title(self) -> str:
        """What it is called for people; the folder's name if its first line cannot be read."""
        return self.title_with(())

    def title_with(self, measured: Collection[int]) -> str:
        """The same; of a tuning with the sizes of the plans that it has `measured`, which its first line has not."""
        return self.folder.name if self.head is None else title_of(self.head, self.plans, measured)

    @property
    def started(self) -> float | None:
        """When it began, seconds since the epoch."""
        return self.head.time if self.head else None


class Index:
    """Lists the campaigns of one results folder. It reads a file again only after the file has changed.

    Of a campaign that ended well the file cannot change, and is not looked at again.

    Safe to use from several threads. For `hold_seconds` after a listing, callers get the same listing again.
    """

    def __init__(self, results: str | os.PathLike[str], *, hold_seconds: float = 0.0) -> None:
        self.results = Path(results)
        self.problem: str | None = None
        self._known: dict[str, Entry] = {}
        self._hold = hold_seconds
        self._last: tuple[tuple[Entry, ...], float] | None = None
        self._lock = threading.Lock()

    def scan(self) -> tuple[Entry, ...]:
        """Every campaign, the newest first; `problem` is then why the folder could not be read, or None."""
        with self._lock:
            if self._last is None or time.monotonic() - self._last[1] >= self._hold:
                self._last = self._scan(), time.monotonic()
            return self._last[0]

    def look_at(self, names: Sequence[str]) -> tuple[Entry, ...]:
        """The last listing, in which only the campaigns in these folders are new, the oldest first."""
        with self._lock:
            entries, when = self._last or (self._scan(), time.monotonic())
            writers = _written_files()
            looked = [self._entry(f"{self.results}/{name}", YOURS, writers) for name in names]
            new = {entry.id: entry for entry in reversed(looked) if entry is not None}
            self._last = tuple((new | {entry.id: entry for entry in entries} | new).values()), when
            return self._last[0]

    def _scan(self) -> tuple[Entry, ...]:
        self.problem = None
        writers = _written_files()
        folders = dict(self._folders())
        self._known = {folder: entry for folder, entry in self._known.items() if folder in folders}
        found = (self._entry(folder, origin, writers) for folder, origin in folders.items())
        return tuple(sorted(filter(None, found), key=_order, reverse=True))

    def _entry(self, folder: str, origin: str, writers: Collection[int]) -> Entry | None:
        entry = self._known.get(folder)
        if entry is not None and entry.ended == 0 and entry.head is not None:
            return entry
        try:
            found = os.stat(f"{folder}/{RECORDS}")
        except FileNotFoundError:
            return None
        except OSError:
            return Entry(Path(folder), origin)
        if entry is None or (entry.size, entry.modified) != (found.st_size, found.st_mtime):
            entry = self._known[folder] = _read(Path(folder), origin, found)
        if origin == SHIPPED and entry.head is None:
            return None  # A result of one of this project's benchmarks, whose records are different.
        return replace(entry, written=found.st_ino in writers)

    def _folders(self) -> Iterator[tuple[str, str]]:
        yield from self._inside(self.results, YOURS)
        shipped = published.FOLDER.parent
        places = {self.results / name: origin for name, origin in _SUBFOLDERS.items()}
        if self.results.resolve() != shipped:
            places |= {published.FOLDER: PUBLISHED, shipped / "curated": SHIPPED}
        for place, origin in places.items():
            if place.is_dir():
                yield from self._inside(place, origin)

    def _inside(self, place: Path, origin: str) -> Iterator[tuple[str, str]]:
        try:
            with os.scandir(place) as found:
                names = [item.name for item, _ in zip(found, range(_MOST + 1), strict=False) if item.is_dir()]
        except FileNotFoundError:
            return  # There was no run yet.
        except OSError as error:
            self.problem = f"cannot read the folder {place}: {error.strerror}"
            return
        if len(names) > _MOST:
            self.problem = f"{place} has more than {_MOST:,} folders; the others are not listed"
        yield from ((f"{place}/{name}", origin) for name in names[:_MOST] if origin != YOURS or name not in _SUBFOLDERS)


def _order(entry: Entry) -> tuple[bool, float, str]:
    """What cannot be read comes last; a start in the far future is wrong, and the file's time counts instead."""
    started = entry.started if entry.started is not None and entry.started < entry.modified + _DAY else entry.modified
    return entry.head is not None, started, entry.id


def _label(entry: Entry) -> str:
    """Its title, its engines if one is not the usual one, and its status."""
    return " · ".join(filter(None, (short(entry.title, 60), unusual_engines(entry.plans), entry.status)))


def offered(entries: Sequence[Entry], name: Callable[[Entry], str] = _label) -> dict[str, str]:
    """The id of each of `entries` by when it began and its `name`: ``25 Nov 14:02 · tcp: … · done``.

    The folder's name is added where two have the same label, and the year where there are several.
    """
    began = short_times((entry.started for entry in entries), clock=True)
    labels = [" · ".join(filter(None, (time, visible(name(each))))) for time, each in zip(began, entries, strict=True)]
    counts = Counter(labels)
    return {
        label + f" ({visible(entry.folder.name)})" * (counts[label] > 1): entry.id
        for label, entry in zip(labels, entries, strict=True)
    }


def newest_running(entries: Sequence[Entry]) -> Entry | None:
    """The campaign to watch: the newest that runs, or else the newest of yours."""
    running = (entry for entry in entries if entry.written and entry.status == RUNNING)
    yours = (entry for entry in entries if entry.origin == YOURS and entry.head is not None)
    return next(itertools.chain(running, yours), None)


def _read(folder: Path, origin: str, found: os.stat_result) -> Entry:
    """Read the first line and the end; the entry is as small as it can be, for there may be many."""
    if not stat.S_ISREG(found.st_mode):
        return Entry(folder, origin)
    try:
        descriptor = os.open(folder / RECORDS, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            first = os.pread(descriptor, _LONGEST_HEAD, 0)
            tail = os.pread(descriptor, _TAIL, max(found.st_size - _TAIL, 0))
        finally:
            os.close(descriptor)
    except OSError:
        return Entry(folder, origin)
    line, newline, _ = first.partition(b"\n")
    record = _record(line) if newline else None  # the first line, if it is whole
    head: s.CampaignLine | None = None
    plans: tuple[Plan, ...] = ()
    if isinstance(record, s.CampaignLine) and record.schema <= s.SCHEMA:
        plans = _plans(msgspec.json.encode(record.plans))
        names = [s.Config(name=config.name) for config in record.configs]
        head = msgspec.structs.replace(record, argv=[], git=None, configs=names, plans=[], runs=[], surroundings={})
    *before, last = tail.rpartition(b"\n")[0].split(b"\n")  # the lines that are whole, and a part of one
    end = _record(last)
    status = end.status if isinstance(end, s.EndLine) else None
    # A tuning that can be resumed has no end line: then its last launch tells.
    of_last = [*before[-1:], last] if status is None else before if status else ()
    failures = [each for each in map(_record, of_last) if isinstance(each, s.FailureLine)]
    interrupted = bool(failures) and failures[-1].code == INTERRUPTED
    return Entry(folder, origin, found.st_size, found.st_mtime, head, status, interrupted, plans=plans)


@functools.lru_cache(maxsize=1000)
def _plans(recorded: bytes) -> tuple[Plan, ...]:
    """Of a first line; campaigns with equal plans share them."""
    return tuple(map(Plan.of, msgspec.json.decode(recorded)))


def _record(line: bytes) -> s.Record | None:
    try:
        return decode(line)
    except ValueError:
        return None


def _written_files() -> frozenset[int]:
    """Inodes of locked files: the writer of a campaign holds a lock until it ends.

    They are read from the kernel's list: to test a lock by taking it would stop a run that needs it.
    """
    try:
        with open("/proc/locks", encoding="ascii") as stream:
            fields = [line.split() for line in stream]
    except OSError:
        return frozenset()
    found = (each[5].rpartition(":")[2] for each in fields if len(each) > 5 and each[1] == "FLOCK")
    return frozenset(int(inode) for inode in found if inode.isdigit())
