"""The files of a table, found for the proof alone: it must not depend on the list that the engines read.

The rules are those of `docs/merging.md`, written a second time on purpose. Whatever cannot be read whole is refused.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from merge_bench.errors import RunFailed, UsageError

MAGIC = b"PAR1"
HIDDEN = (".", "_")
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
LEFTOVERS = re.compile(r"(?i).*\.(crc|md|txt|log|html?|ya?ml)|readme|license|success")
LOGS = {"_delta_log": "Delta Lake", ".hoodie": "Hudi"}


@dataclass(frozen=True)
class TableFile:
    """One Parquet file of a table: its absolute path, and the names and values of its Hive partitions; None is null."""

    path: str
    partitions: tuple[tuple[str, str | None], ...] = ()


def find_table_files(path: str) -> list[TableFile]:
    """Return the Parquet files, sorted, of a table given as a file, a folder, a pattern or a `file://` address.

    Raises `UsageError` if there are none, or if one of them cannot be read, and `RunFailed` if one of them is damaged.
    """
    parts = _local_path(path).parts
    depth = next(n for n in range(len(parts), 0, -1) if os.path.exists(os.path.join(*parts[:n])))
    base, pattern = os.path.join(*parts[:depth]), parts[depth:]
    files: set[str] = set()
    if any(map(glob.has_magic, pattern)):
        for match in _matching_paths(base, pattern):
            files.update(_data_files_below(match) if os.path.isdir(match) else _keep_if_data_file(match))
    elif pattern:
        raise UsageError(f"{path} cannot be read: there is no such file")
    else:
        files.update(_data_files_below(base) if os.path.isdir(base) else _keep_if_data_file(base, named_by_user=True))
    if not files:
        raise UsageError(f"{path} has no Parquet file")
    if pattern or os.path.isdir(base):
        for folder in {base, *map(os.path.dirname, files)}:
            _refuse_table_format(folder)
    return [TableFile(each, _hive_partitions(os.path.relpath(each, base))) for each in sorted(files)]


def _local_path(path: str) -> Path:
    """Return the absolute path of a table that is given as a path or a ``file://`` address."""
    scheme, separator, rest = path.partition("://")
    if separator and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        host, slash, name = rest.partition("/")
        if scheme.lower() != "file" or host not in ("", "localhost"):
            raise UsageError(f"{path} is no file of this machine")
        path = unquote(slash + name, errors="surrogateescape")
    return Path(path).expanduser().absolute()


def _matching_paths(
    folder: str, pattern: Sequence[str], enclosing_folders: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Yield the paths below a folder that match a pattern, given in its parts; ``**`` is any number of folders."""
    names, enclosing_folders = _list_folder(folder, enclosing_folders)
    wanted, rest = pattern[0], pattern[1:]
    if wanted == "**":
        yield from _matching_paths(folder, rest) if rest else [folder]
    for name in names:
        if name.startswith(HIDDEN) and not (wanted != "**" and wanted.startswith(name[0])):
            continue
        path = os.path.join(folder, name)
        if wanted == "**":
            if os.path.isdir(path):
                yield from _matching_paths(path, pattern, enclosing_folders)
        elif fnmatch.fnmatchcase(name, wanted):
            if not rest:
                yield path
            elif os.path.isdir(path):
                yield from _matching_paths(path, rest, enclosing_folders)


def _data_files_below(folder: str, enclosing_folders: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the data files below a folder, without hidden names; links are followed.

    `enclosing_folders`: the real paths of the folders that it is in.
    """
    names, enclosing_folders = _list_folder(folder, enclosing_folders)
    for name in names:
        path = os.path.join(folder, name)
        if name.startswith(HIDDEN):
            continue
        if os.path.isdir(path):
            yield from _data_files_below(path, enclosing_folders)
        else:
            yield from _keep_if_data_file(path)


def _list_folder(folder: str, enclosing_folders: frozenset[str]) -> tuple[list[str], frozenset[str]]:
    """List a folder's names, and add the folder to `enclosing_folders`; raises `UsageError` for a loop of links."""
    real = os.path.realpath(folder)
    if real in enclosing_folders:
        raise UsageError(f"{folder} is a link to a folder that contains it, so the table has no end")
    try:
        return sorted(os.listdir(folder)), enclosing_folders | {real}
    except OSError as error:
        raise UsageError(f"folder {folder} cannot be read: {error.strerror}") from None


def _keep_if_data_file(file: str, *, named_by_user: bool = False) -> list[str]:
    """Return a list with this file, or an empty one if it is no data file.

    Raises an error if it is damaged or unreadable. `named_by_user`: the user named the file itself, so it cannot be
    left out.
    """
    try:
        kind = os.stat(file)
        if not stat.S_ISREG(kind.st_mode):
            raise UsageError(f"{file} is no regular file, so the table cannot be read whole")
        with open(file, "rb") as opened:
            first = opened.read(4)
            opened.seek(max(0, kind.st_size - 4))
            last = opened.read(4)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    if last == MAGIC and first == MAGIC:
        return [file]
    if last == MAGIC:
        raise RunFailed(f"{file} is damaged: it ends like a Parquet file, but does not begin like one")
    if not named_by_user and LEFTOVERS.fullmatch(os.path.basename(file)):
        return []
    raise UsageError(f"{file} is not a whole Parquet file, so the table cannot be read whole")


def _refuse_table_format(folder: str) -> None:
    """Raise `UsageError` for a folder of Delta Lake, Hudi or Iceberg, whose log says which files count."""
    below: tuple[str, ...] = ()
    for place in (Path(folder), *Path(folder).parents):
        name = next((LOGS[log] for log in LOGS if (place / log).is_dir()), None)
        if not below or below[0] == "data":
            name = name or ("Iceberg" if any(place.glob("metadata/*.metadata.json")) else None)
        if name:
            raise UsageError(f"{place} is a {name} table, whose log says which files count; files alone are not read")
        below = (place.name, *below)


def _hive_partitions(relative_path: str) -> tuple[tuple[str, str | None], ...]:
    """Return the names and values of the Hive partitions in a file's path relative to the table; None is null."""
    values: dict[str, str | None] = {}
    for part in relative_path.split(os.sep)[:-1]:
        name, equals, value = part.partition("=")
        if equals and name:
            try:
                name, value = unquote(name, errors="strict"), unquote(value, errors="strict")
            except UnicodeDecodeError:
                raise UsageError(f"{relative_path} names a partition {part!r}, which is not UTF-8") from None
            if name in values:
                raise UsageError(f"{relative_path} names partition {name!r} twice")
            values[name] = None if value == NO_VALUE else value
    return tuple(values.items())
