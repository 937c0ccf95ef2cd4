"""Which files a named table consists of: a file, all files below a folder, or those that a pattern matches.

The rules are those of `pyarrow.dataset`: folders are searched whole, names that begin with a dot or an underscore are
left out, and folders called ``name=value`` (Hive partitions) give each of their files a value of a column. A file
counts by its content, not by its name. A table is read whole or refused: what is left out is reported.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import stat
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from merge_bench.errors import RunFailed, UsageError

MAGIC = b"PAR1"
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
HIDDEN, NO_DATA = "hidden", "no data"
MOST_NAMES = 5
"""Names of files left out for one reason that are kept."""
_NO_DATA = re.compile(r".*\.(crc|md|txt|log|html?|ya?ml)|readme|license|success", re.IGNORECASE)
_LFS = b"version https://git-lfs"
_LOGS = {"Delta": "_delta_log", "Hudi": ".hoodie"}
_LIBRARIES = {"Delta": "the package deltalake", "Hudi": "Spark", "Iceberg": "the package pyiceberg"}

Partitions = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class TableFile:
    """One Parquet file: its absolute path, and names and values of the Hive partitions that it lies in."""

    path: str
    partitions: Partitions = ()


@dataclass(frozen=True)
class LeftOut:
    """Files and whole folders that are left out of a table for one `reason`. `names`: the first of them."""

    reason: str
    count: int
    names: tuple[str, ...]

    def __str__(self) -> str:
        more = f" and {self.count - len(self.names)} more" if self.count > len(self.names) else ""
        return f"{', '.join(self.names)}{more} ({self.reason})"


@dataclass(frozen=True)
class TableFiles:
    """The files of a table, sorted, and what was left out."""

    files: tuple[TableFile, ...]
    left_out: tuple[LeftOut, ...] = ()


def find_files(table: str) -> TableFiles:
    """The files of a table that is given as a path, a pattern (``*``, ``?``, ``[…]``, ``**``) or a ``file://`` address.

    Raises
    ------
    UsageError
        If there is none, if one of them cannot be read or is not a Parquet file, or if they belong to a table format
        with a log of its own.
    RunFailed
        If a file is damaged.
    """
    base, pattern = _split_at_pattern(table)
    search = _Search(table, base)
    search.take(base, pattern)
    if not search.files and not search.left_out:
        raise UsageError(f"no file matches {table}" if pattern else f"folder {table} has no Parquet file")
    if not os.path.isfile(base):
        search.refuse_formats({os.path.dirname(file) for file in search.files})
    if not search.files:
        raise UsageError(f"{table} has no Parquet file; left out: {'; '.join(map(str, search.summary()))}")
    files = (TableFile(file, _hive_partitions(file, base)) for file in sorted(search.files))
    return TableFiles(tuple(files), search.summary())


def _split_at_pattern(table: str) -> tuple[str, tuple[str, ...]]:
    """The longest beginning of a path that exists as it stands, absolute, and the parts of the pattern after it."""
    local = table
    if "://" in table:
        address = urlsplit(table)
        if address.scheme.lower() != "file" or address.netloc not in ("", "localhost"):
            raise UsageError(f"{table} is not on a file system of this host; copy its files here, or mount them")
        local = unquote(table.partition("://")[2].removeprefix(address.netloc))
    try:
        parts = Path(local).expanduser().absolute().parts
    except RuntimeError as error:
        raise UsageError(f"{table}: {error}") from None
    for length in range(len(parts), 0, -1):
        base = os.path.join(*parts[:length])
        try:
            os.lstat(base)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            raise _unreadable_error(table, error) from None
        pattern = parts[length:]
        if pattern and not glob.has_magic(pattern[0]):
            break
        return base, pattern
    if any(map(glob.has_magic, pattern)):
        raise UsageError(f"no file matches {table}: there is no {os.path.join(base, pattern[0])}")
    raise UsageError(f"no such file: {table}")


class _Search:
    """Looks through folders; `files` and `left_out` are what it found."""

    def __init__(self, table: str, base: str) -> None:
        self.table, self.base = table, base
        self.files: set[str] = set()
        self.left_out: dict[str, str] = {}

    def take(self, path: str, pattern: tuple[str, ...], above: frozenset[tuple[int, int]] = frozenset()) -> None:
        """Take a file, or of a folder all that matches `pattern`; an empty one matches everything.

        `above`: the folders that `path` lies in.
        """
        try:
            status = os.stat(path)
            if stat.S_ISDIR(status.st_mode):
                here = (status.st_dev, status.st_ino)
                if here in above:
                    raise UsageError(f"{path} is a link to a folder that it lies in; remove it")
                with os.scandir(path) as entries:
                    names = sorted(entry.name for entry in entries)
                self._take_names(path, names, pattern, above | {here})
            elif not pattern:
                self._take_file(path, status)
        except (OSError, ValueError) as error:
            raise _unreadable_error(path, error) from None

    def summary(self) -> tuple[LeftOut, ...]:
        """The files and folders that were left out, by reason."""
        groups = []
        for reason in (HIDDEN, NO_DATA):
            names = sorted(os.path.relpath(path, self.base) for path, why in self.left_out.items() if why == reason)
            if names:
                groups.append(LeftOut(reason, len(names), tuple(names[:MOST_NAMES])))
        return tuple(groups)

    def refuse_formats(self, folders: Collection[str]) -> None:
        """Refuse `folders` that belong to a table of Delta, Hudi or Iceberg."""
        inside = {Path(folder) for folder in folders}
        around = inside | {parent for folder in inside for parent in folder.parents}
        for folder in sorted(around):
            logs = [(name, folder / log) for name, log in _LOGS.items() if (folder / log).is_dir()]
            if folder in inside or folder / "data" in around:
                logs += [("Iceberg", log) for log in (folder / "metadata").glob("*.metadata.json")]
            for name, log in logs:
                raise UsageError(
                    f"{self.table} belongs to a table of {name}, whose log {log} says which files and rows count; write"
                    f" its present rows to a folder of Parquet files with {_LIBRARIES[name]}, and merge that folder"
                )

    def _take_names(
        self, folder: str, names: Iterable[str], pattern: tuple[str, ...], above: frozenset[tuple[int, int]]
    ) -> None:
        if not pattern:
            self.refuse_formats([folder])  # before its other files are looked at
        head, rest = (pattern[0], pattern[1:]) if pattern else ("*", ())
        deep = head == "**"
        if deep:
            self._take_names(folder, names, rest, above)
        for name in names:
            path = os.path.join(folder, name)
            if (deep and not (rest and os.path.isdir(path))) or not fnmatch.fnmatchcase(name, head):
                continue
            if name[0] in "._" and head[0] != name[0]:
                self.left_out[path] = HIDDEN
            else:
                self.take(path, pattern if deep else rest, above)

    def _take_file(self, path: str, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(
                f"{path} is a pipe, a socket or a device, not a file; remove it, or name the table's files"
            )
        problem = _parquet_problem(path, status.st_size)
        if problem is None:
            if not _is_utf8(path):
                raise UsageError(f"{path} has a name that is not UTF-8, which pyarrow cannot open; rename it")
            self.files.add(path)
        elif path != self.base and _NO_DATA.fullmatch(os.path.basename(path)):
            self.left_out[path] = NO_DATA
        else:
            raise UsageError(f"{path} is not a readable Parquet file: {problem}")


def _parquet_problem(path: str, size: int) -> str | None:
    """Why a file is not a Parquet file; None if it is one."""
    if size == 0:
        return "it is empty"
    with open(path, "rb") as file:
        head = file.read(len(_LFS))
        file.seek(-min(size, len(MAGIC)), os.SEEK_END)
        tail = file.read()
    if tail == b"PARE":
        return "its footer is encrypted"
    if head == _LFS:
        return "it is a pointer of Git LFS; run: git lfs pull"
    if tail != MAGIC:
        return "its end is missing" if head.startswith(MAGIC) else "it has other content"
    if not head.startswith(MAGIC):
        raise RunFailed(f"{path} is damaged: it ends like a Parquet file, but does not begin like one")
    return None


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _hive_partitions(file: str, base: str) -> Partitions:
    """The Hive partitions that the names of the folders between `base` and the file say, outermost first."""
    values: dict[str, str | None] = {}
    for folder in Path(file).relative_to(base).parts[:-1]:
        name, equals, value = folder.partition("=")
        if not name or not equals:
            continue
        try:
            name, value = (unquote(text, errors="strict") for text in (name, value))
        except UnicodeDecodeError:
            raise UsageError(f"{file} has a partition {folder!r} in its path, which is not UTF-8; rename it") from None
        if name in values:
            raise UsageError(f"{file} has two partitions called {name!r} in its path")
        values[name] = None if value == NULL_PARTITION else value
    return tuple(values.items())


def _unreadable_error(path: str, error: OSError | ValueError) -> UsageError:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    link = ", which is a link," if os.path.islink(path) else ""
    return UsageError(f"{path}{link} cannot be read: {reason}")
