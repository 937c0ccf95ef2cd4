"""The results in a folder. Nothing else looks into such a folder: whoever needs a result finds it here.

A result is a folder with a ``records.jsonl``. A list has its first line and its end, and reads a file again only after
it has changed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from merge_bench.config.files import open_regular_file
from merge_bench.errors import UsageError
from merge_bench.records.campaign import INTERRUPTED
from merge_bench.records.reader import decode_record, read_campaign_line
from merge_bench.records.recorded_plan import RecordedPlan, is_tuning
from merge_bench.records.schema import SCHEMA, CampaignEndLine, CampaignLine, Config, FailureLine, Record
from merge_bench.records.writer import RECORDS

YOURS = "yours"
"""The origin of the results of a folder, unless it is another's."""
MERGE, TUNE, IMPORTED, PROBE, COMMAND = "merge", "tune", "import", "probe", "command"
DONE, RUNNING, UNFINISHED, UNREADABLE = "done", "running", "unfinished", "unreadable"
_ENDED = {0: DONE, 2: "wrong usage", 3: "failed", 4: "wrong result", 5: "requirement not met"}
_LONGEST_HEAD = 1 << 20
_TAIL = 4096
_DAY = 86400.0


@dataclass(frozen=True)
class ResultEntry:
    """A result in a list of results, with what lists show of it.

    `modified`: seconds since the epoch. `head`: its first line as far as lists need it, None if it cannot be read.
    `end_status`: the exit status in its last line, None if that is no end. `interrupted`: whether a signal ended it, as
    Ctrl-C and Stop do. `written`: whether a process of this machine writes it.
    """

    folder: Path
    origin: str = YOURS
    size: int = 0
    modified: float = 0.0
    inode: int = 0
    head: CampaignLine | None = None
    end_status: int | None = None
    interrupted: bool = False
    written: bool = False
    plans: tuple[RecordedPlan, ...] = ()

    @property
    def id(self) -> str:
        """The path of the result's folder."""
        return str(self.folder)

    @property
    def status(self) -> str:
        """The state of the result's command in a word or two: that it still runs, or how it ended."""
        if self.head is None:
            return UNREADABLE
        if self.end_status is None and self.written:
            return RUNNING
        if self.interrupted:
            return INTERRUPTED
        return UNFINISHED if self.end_status is None else _ENDED.get(self.end_status, f"status {self.end_status}")

    @property
    def kind(self) -> str:
        """The kind of result: ``merge``, ``tune``, ``import``, ``command`` or ``probe NAME``."""
        if self.head is None:
            return ""
        if self.head.imported_from is not None:
            return IMPORTED
        if is_tuning(self.plans):
            return TUNE
        if self.plans and self.plans[0].command is not None:
            return COMMAND
        return f"{PROBE} {self.probe}" if self.probe else MERGE

    @property
    def probe(self) -> str | None:
        """The name of the network measurement, also of an imported one; None for others."""
        return self.plans[0].probe if self.plans else None

    @property
    def configs(self) -> tuple[str, ...]:
        """The names of the result's configs."""
        return tuple(config.name for config in self.head.configs) if self.head else ()

    @property
    def started(self) -> float | None:
        """The start of the result's campaign, in seconds since the epoch; None if its first line cannot be read."""
        return self.head.time if self.head else None


class ResultChange(NamedTuple):
    """A result that is new, or not in its known state any more.

    `state`: its new state, None if it is gone; `final`: its state if it has ended well, after which its records are not
    looked at again until its folder changes. `records`: None if they cannot be looked at.
    """

    name: str
    state: str | None
    final: str = ""
    records: os.stat_result | None = None


class ResultsFolder:
    """The results in the folder `path`, as a list that is updated when files change. Safe to use from several threads.

    `other_folders`: folders whose readable results `entries` has as well; `hold_seconds`: for so long `entries` is not
    listed again; `problem`: why a folder could not be read when it was listed last.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        origin: str = YOURS,
        *,
        other_folders: Sequence[ResultsFolder] = (),
        hold_seconds: float = 0.0,
    ) -> None:
        self.path = Path(path)
        self.problem: str | None = None
        self._origin, self._other_folders, self._hold_seconds = origin, other_folders, hold_seconds
        self._states: dict[str, str] = {}
        self._entries: dict[str, ResultEntry] = {}
        self._last: tuple[tuple[ResultEntry, ...], float] | None = None
        self._lock = threading.Lock()

    def entries(self) -> tuple[ResultEntry, ...]:
        """List every result, the newest first."""
        with self._lock:
            if self._last is None or time.monotonic() - self._last[1] >= self._hold_seconds:
                self._last = self._list_entries(), time.monotonic()
            return self._last[0]

    def refresh_entries(self, names: Sequence[str]) -> tuple[ResultEntry, ...]:
        """Read only the results of these `names` anew, the oldest first, and return the whole list."""
        with self._lock:
            entries, when = self._last or (self._list_entries(), time.monotonic())
            looked = self._update_entries(names)
            new = {looked[name].id: looked[name] for name in reversed(names) if name in looked}
            self._last = tuple((new | {entry.id: entry for entry in entries} | new).values()), when
            return self._last[0]

    def find_newest_results(
        self, is_wanted: Callable[[CampaignLine], bool], *, is_wanted_name: Callable[[str], bool] = lambda name: True
    ) -> Iterator[tuple[Path, CampaignLine]]:
        """Find the results whose first line `is_wanted`, the newest name first: the folder and that line of each.

        `is_wanted_name`: only results with such a name, which begins with the time. A folder that cannot be read has no
        results.
        """
        try:
            folders = self._folder_states()
        except OSError:
            return
        for name in sorted(filter(is_wanted_name, folders), reverse=True):
            head = read_campaign_line(self.path / name)
            if head is not None and is_wanted(head):
                yield self.path / name, head

    def find_changed_results(
        self, known_states: Mapping[str, str], names: Sequence[str] | None = None
    ) -> Iterator[ResultChange]:
        """Find the results whose state differs from `known_states`, by name; `names`: look only at these.

        Raises OSError if the folder cannot be read.
        """
        folders = self._folder_states() if names is None else self._states_of_folders(names)
        for name in [name for name in names or known_states if name in known_states and name not in folders]:
            yield ResultChange(name, None)
        for name in sorted(name for name, final in folders.items() if known_states.get(name) != final):
            try:
                records = os.stat(self.path / name / RECORDS)
            except FileNotFoundError:
                if name in known_states:
                    yield ResultChange(name, None)
                continue
            except OSError:
                change = ResultChange(name, UNREADABLE)
            else:
                change = ResultChange(name, f"{records.st_size} {records.st_mtime_ns}", folders[name], records)
            if change.state != known_states.get(name):
                yield change

    def _folder_states(self) -> dict[str, str]:
        """Return the folders in the results folder by name, each with the state of a result that has ended well."""
        states: dict[str, str] = {}
        with os.scandir(self.path) as items:
            for item in items:
                try:  # quicker than `suppress`, of 100,000
                    if item.is_dir():
                        states[item.name] = _final_folder_state(item.stat())
                except FileNotFoundError:
                    continue
        return states

    def _states_of_folders(self, names: Sequence[str]) -> dict[str, str]:
        """Return those of the named folders that exist, each with the state of a result that has ended well."""
        states: dict[str, str] = {}
        for name in names:
            with contextlib.suppress(OSError):
                states[name] = _final_folder_state(os.stat(self.path / name))
        return states

    def _list_entries(self) -> tuple[ResultEntry, ...]:
        """Read every result that has changed, and return all, the newest first."""
        self.problem = None
        entries: list[ResultEntry] = []
        try:
            entries += self._update_entries().values()
        except FileNotFoundError:
            pass  # there was no run yet
        except OSError as error:
            self.problem = f"cannot read the folder {self.path}: {error.strerror}"
        for place in self._other_folders:
            entries += (entry for entry in place.entries() if entry.head is not None)
            self.problem = self.problem or place.problem
        return tuple(sorted(entries, key=_entry_sort_key, reverse=True))

    def _update_entries(self, names: Sequence[str] | None = None) -> dict[str, ResultEntry]:
        """Read the results that have changed, and return all by the names of their folders."""
        for change in self.find_changed_results(self._states, names):
            if change.state is None:
                self._states.pop(change.name, None)
                self._entries.pop(change.name, None)
            else:
                entry = _read_result_entry(self.path / change.name, self._origin, change.records)
                well = entry.end_status == 0 and entry.head is not None
                self._states[change.name] = change.final if well else change.state
                self._entries[change.name] = entry
        writers = _find_locked_inodes()
        written = (item for item in self._entries.items() if item[1].inode in writers)
        return self._entries | {name: replace(entry, written=True) for name, entry in written}


def is_result_folder(folder: Path) -> bool:
    """Whether the folder contains the records of a campaign."""
    return (folder / RECORDS).is_file()


def _final_folder_state(folder: os.stat_result) -> str:
    """The state of a result whose campaign has ended well, as text that changes whenever its folder changes."""
    return f"ended {folder.st_ino} {folder.st_mtime_ns}"


def _entry_sort_key(entry: ResultEntry) -> tuple[bool, float, str]:
    """The key that sorts results by their start; results that cannot be read have the lowest key.

    If the start is in the far future, the file's time counts.
    """
    started = entry.started if entry.started is not None and entry.started < entry.modified + _DAY else entry.modified
    return entry.head is not None, started, entry.id


def _read_result_entry(folder: Path, origin: str, records: os.stat_result | None) -> ResultEntry:
    """Read the first and the last lines of a result into a small entry, because there may be many results."""
    if records is None or not stat.S_ISREG(records.st_mode):
        return ResultEntry(folder, origin)
    try:
        with open_regular_file(folder / RECORDS) as stream:
            first = os.pread(stream.fileno(), _LONGEST_HEAD, 0)
            tail = os.pread(stream.fileno(), _TAIL, max(records.st_size - _TAIL, 0))
    except (OSError, UsageError):
        return ResultEntry(folder, origin)
    line, newline, _ = first.partition(b"\n")
    record = _decode_record_or_none(line) if newline else None  # the first line, if it is whole
    head: CampaignLine | None = None
    plans: tuple[RecordedPlan, ...] = ()
    if isinstance(record, CampaignLine) and record.schema <= SCHEMA:
        plans = _decode_shared_plans(msgspec.json.encode(record.plans))
        names = [Config(name=config.name) for config in record.configs]
        head = msgspec.structs.replace(record, argv=[], git=None, configs=names, plans=[], runs=[], surroundings={})
    *before, last = tail.rpartition(b"\n")[0].split(b"\n")  # the lines that are whole, and a part of one
    end = _decode_record_or_none(last)
    status = end.status if isinstance(end, CampaignEndLine) else None
    # A tuning that can be resumed has no end line: then its last launch tells.
    of_last = [*before[-1:], last] if status is None else before if status else ()
    failures = [failure for failure in map(_decode_record_or_none, of_last) if isinstance(failure, FailureLine)]
    interrupted = any(failure.code == INTERRUPTED for failure in failures[-1:])
    file = records.st_size, records.st_mtime, records.st_ino
    return ResultEntry(folder, origin, *file, head, status, interrupted, plans=plans)


@functools.lru_cache(maxsize=1000)
def _decode_shared_plans(recorded: bytes) -> tuple[RecordedPlan, ...]:
    """Decode the plans of a campaign's first line; results with equal plans share one copy."""
    return tuple(map(RecordedPlan.from_options, msgspec.json.decode(recorded)))


def _decode_record_or_none(line: bytes) -> Record | None:
    """Decode the record of a line; None if it is damaged or unknown."""
    try:
        return decode_record(line)
    except ValueError:
        return None


def _find_locked_inodes() -> frozenset[int]:
    """Return the inodes of locked files on this machine: the writer of a campaign holds a lock until it ends.

    They are read from the kernel's list: to test a lock by taking it would stop a run that needs it.
    """
    try:
        with open("/proc/locks", encoding="ascii") as stream:
            locks = [line.split() for line in stream]
    except OSError:
        return frozenset()
    inodes = (lock[5].rpartition(":")[2] for lock in locks if len(lock) > 5 and lock[1] == "FLOCK")
    return frozenset(int(inode) for inode in inodes if inode.isdigit())
