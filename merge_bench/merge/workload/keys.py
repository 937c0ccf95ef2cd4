"""The keys of both tables: whether they exist, and the type in which they are compared."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from merge_bench.config.parsers import Names, quoted
from merge_bench.errors import Caution, UsageError
from merge_bench.merge.workload import parquet, schema

BINARY_KEYS = "binary-keys"
MOST_COLUMNS = 10  # that a message names


def key_columns(path: str, footers: parquet.Footers, on: Sequence[str], option: str) -> list[parquet.FooterColumn]:
    """The columns `on` of a table, which `option` names.

    Raises
    ------
    UsageError
        If there is no such column, or one is named twice.
    """
    columns = {column.name: column for column in footers.columns}
    for key in on:
        if key not in columns:
            other = "; for keys with other names in one table, use --left-on and --right-on" if option == "--on" else ""
            found = _cut_at_comma(key, on, option, footers.names) or _what_it_has(key, footers.names)
            raise UsageError(f"{path} has no column {_named(key)} to merge on; {found}{other}")
        if list(on).count(key) > 1:
            raise UsageError(f"column {_named(key)} of {path} is used as a key more than once")
    return [columns[key] for key in on]


def _named(name: str) -> str:
    """A name as a message has it: as an option takes it if that needs double quotes."""
    shown = quoted(name)
    return repr(name) if shown == name else shown


def _cut_at_comma(key: str, named: Sequence[str], option: str, columns: Iterable[str]) -> str:
    """How to write the column that was read as several names, of which `key` is one; empty without such a column."""
    for column in columns:
        parts = [part.strip() for part in column.split(",")]
        places = [at for at in range(len(named)) if list(named[at : at + len(parts)]) == parts]
        if key in parts and quoted(column) != column and places:
            whole = [*named[: places[0]], column, *named[places[0] + len(parts) :]]
            return f"for its column {quoted(column)}, write {option} {shlex.quote(Names.join(whole))}"
    return ""


def _what_it_has(key: str, columns: Sequence[str]) -> str:
    """The columns of a table that has no `key`; before them those whose names contain it, or are similar."""
    folded, wanted = {name.lower(): name for name in columns}, key.lower()
    parts = sorted((name for name in folded if wanted in name or (len(name) > 1 and name in wanted)), key=len)
    close = difflib.get_close_matches(wanted, [name for name in folded if len(name) > 1], n=3, cutoff=0.5)
    near = ", ".join(quoted(folded[name]) for name in list(dict.fromkeys((*parts, *close)))[:3])
    cut = f" and {len(columns) - MOST_COLUMNS} more" if len(columns) > MOST_COLUMNS else ""
    listed = f"its columns: {', '.join(map(quoted, columns[:MOST_COLUMNS]))}{cut}"
    return f"similar names: {near}; {listed}" if near else listed


def check_columns(columns: Sequence[str], *tables: tuple[str, parquet.Footers]) -> None:
    """Refuse a name of ``--columns`` that no table has."""
    found = dict.fromkeys(name for _, footers in tables for name in footers.names)
    for name in columns:
        if name not in found:
            whole = _cut_at_comma(name, columns, "--columns", found).removeprefix("for its")
            raise UsageError(
                f"--columns names {_named(name)}, which is a column of neither {' nor '.join(t for t, _ in tables)}"
                + (f"; for{whole}" if whole else "")
            )


def key_type(left: parquet.FooterColumn, right: parquet.FooterColumn) -> pa.DataType:
    """The type in which two keys are compared.

    Raises
    ------
    UsageError
        If there is none that holds the values of both.
    """
    common = schema.common_type(left.type, right.type)
    if common is not None and left.type != right.type and any(map(_fixed_binary, (left.stored, right.stored))):
        common = None  # text of a UUID never equals its bytes
    if common is None:
        raise UsageError(
            f"keys {left.name!r} ({left.type}) and {right.name!r} ({right.type}) cannot be compared exactly; convert"
            " one column to the type of the other"
        )
    for column, other in ((left, right), (right, left)):
        if schema.needs_small_values(column.type, common) and (column.largest is None or column.largest >= 2**63):
            why = f"its largest value, {column.largest}, is not below 2**63"
            if column.largest is None:
                why = "its Parquet file does not state the largest value; write the file with statistics"
            raise UsageError(
                f"key {column.name!r} (uint64) cannot be compared with {other.name!r} ({other.type}): {why}"
            )
    return common


def _fixed_binary(arrow_type: pa.DataType) -> bool:
    stored = arrow_type.storage_type if isinstance(arrow_type, pa.BaseExtensionType) else arrow_type
    return bool(pa.types.is_fixed_size_binary(stored))


def cautions(pairs: Iterable[tuple[parquet.FooterColumn, parquet.FooterColumn]]) -> Iterator[Caution]:
    """The warning of keys that are compared as bytes."""
    for left, right in pairs:
        if {left.type, right.type} == {pa.large_string(), pa.large_binary()}:
            yield _binary_keys(left, right)


def _binary_keys(left: parquet.FooterColumn, right: parquet.FooterColumn) -> Caution:
    binary, text = (left, right) if left.type == pa.large_binary() else (right, left)
    return Caution(
        BINARY_KEYS,
        f"key {binary.name!r} is binary and key {text.name!r} is text, so they are compared byte by byte, with text as"
        " UTF-8",
    )
