"""Small tables of types and names on which dataframe libraries differ, and the join of two tables in plain Python."""

from __future__ import annotations

import decimal
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from merge_bench.merge.engines.base import JoinKind
from tests.helpers.merge_cases import Tables, canonical, moments

MOST, LEAST = 2**63 - 1, -(2**63) + 1
NAN = ("NaN",)  # equal to itself
WIDE = decimal.Context(prec=80)


def _ticks(kind: pa.DataType, ticks: Sequence[int]) -> pa.Array:
    return moments(np.array(ticks, np.int32 if kind.bit_width == 32 else np.int64), kind)


def _digits(kind: pa.DataType, numbers: Sequence[int]) -> pa.Array:
    return pa.array([decimal.Decimal(number).scaleb(-kind.scale, WIDE) for number in numbers], kind)


DAY = 86_400
VALUES: dict[str, Callable[[], pa.Array]] = {
    "int8": lambda: pa.array([-128, 127, 0, 5, 6], pa.int8()),
    "int64 beyond 2**53": lambda: pa.array([2**53, 2**53 + 1, MOST, LEAST, 0], pa.int64()),
    "uint64 beyond 2**63": lambda: pa.array([2**63, 2**64 - 1, 2**53 + 1, 0, 2**63 + 1], pa.uint64()),
    "boolean": lambda: pa.array([True, False], pa.bool_()),
    "float": lambda: pa.array([0.0, -0.0, 1.5, float("nan"), float("inf")], pa.float32()),
    "double": lambda: pa.array([-0.0, 0.0, 5e-324, float("nan"), -1e308], pa.float64()),
    "date32": lambda: _ticks(pa.date32(), [0, 2_932_896, 2_932_897, -719_163, 2**31 - 1, -(2**31) + 1]),
    "time32[s]": lambda: _ticks(pa.time32("s"), [0, 1, DAY - 1]),
    "time32[ms]": lambda: _ticks(pa.time32("ms"), [0, 1, DAY * 1000 - 1]),
    "time64[us]": lambda: _ticks(pa.time64("us"), [0, 1, DAY * 10**6 - 1]),
    "time64[ns]": lambda: _ticks(pa.time64("ns"), [0, 1, 1001, DAY * 10**9 - 1]),
    **{
        f"timestamp[{unit}{', UTC' * zoned}]": lambda unit=unit, zoned=zoned: _ticks(
            pa.timestamp(unit, "UTC" if zoned else None), [0, 1, -1, 253_402_300_800, 9_223_372_037, MOST, LEAST]
        )
        for unit in ("s", "ms", "us", "ns")
        for zoned in (False, True)
    },
    **{
        f"duration[{unit}]": lambda unit=unit: _ticks(pa.duration(unit), [0, 1, -1, 9_223_372_037, MOST, LEAST])
        for unit in ("s", "ms", "us", "ns")
    },
    "decimal128(5, 2)": lambda: _digits(pa.decimal128(5, 2), [99999, -99999, 0, 1]),
    "decimal128(38, 0)": lambda: _digits(pa.decimal128(38, 0), [10**38 - 1, 1 - 10**38, 0, 1, 2**64]),
    "decimal128(38, 37)": lambda: _digits(pa.decimal128(38, 37), [10**38 - 1, 1 - 10**38, 0, 1]),
    "large_string": lambda: pa.array(["", "a", "A", "a\0", "ä", "a\u0308", "日本語 🎉", " ", "NaN"], pa.large_string()),
    "large_binary": lambda: pa.array([b"", b"\xff\xfe", b"\0", b"\0\0", b"ascii", "ä".encode()], pa.large_binary()),
}
"""Distinct values of each type under which columns travel."""
NAMES = [
    "_merge",
    "_left_indicator",
    "_right_indicator",
    "_left_merge",
    "_exists",
    "_partitions",
    "_shuffle",
    "__index_level_0__",
    "index",
    "level_0",
    "hash",
    "__hash_partition",
    "id",
    "id_right",
    "id_left",
    "id_x",
    "id_y",
    "key_0",
    "key_1",
    "k0",
    "k1",
    "l0",
    "l1",
    "r0",
    "r1",
    "c0",
    "c1",
    "left_rows",
    "right_rows",
    "row",
    "",
    " ",
    "a.b",
    "a,b",
    'q"uote',
    "apo'strophe",
    "`tick`",
    "back\\slash",
    "new\nline",
    "tab\t",
    "ключ",
    "鍵 🔑",
    "e\u0301",
    "é",
    "A",
    "a",
    "None",
    "nan",
    "0",
    "-1",
    "columns",
    "values",
    "shape",
    "T",
    "select",
    "SELECT",
    "*",
    "$1",
    "{}",
    "%s",
    "__dask_graph__",
    "__name__",
    "literal",
    "#",
    "x" * 300,
]


def table_of(values: pa.Array, key: str, others: Sequence[str], rows: Sequence[int | None]) -> pa.Table:
    """A key column of these of the values (None: a null), and others that hold them in other orders."""
    taken = [np.roll(np.array([-1 if row is None else row for row in rows]), shift) for shift in range(len(others) + 1)]
    columns = [values.take(pa.array(some, pa.int64(), mask=some < 0)) for some in taken]
    return pa.Table.from_arrays(columns, names=[key, *others])


def of_values(values: pa.Array, names: Sequence[str] = ("key", "a", "b"), *, nulls: bool = True) -> Tables:
    """A left and a right table with duplicates, rows without a match on both sides and, if asked, nulls everywhere.

    `names`: of the key, of a left and of a right column.
    """
    count, no = len(values), [None] if nulls else []
    left = [*range(count), 0, *no, *range(0, count, 2), *no]
    right = [count - 1, *range(1, count), *no, count - 1]
    return table_of(values, names[0], names[1:2], left), table_of(values, names[0], names[2:3], right)


def plain(column: pa.ChunkedArray) -> list[Any]:
    """Python values that are equal where the column's are; None for null, `NAN` for NaN, integers for times."""
    if pa.types.is_temporal(column.type):
        whole = pa.int32() if column.type.bit_width == 32 else pa.int64()
        column = pa.chunked_array([chunk.view(whole) for chunk in column.chunks], whole)
    values = column.to_pylist()
    if pa.types.is_floating(column.type):
        return [None if v is None else NAN if v != v else v + 0.0 for v in values]
    return values


def rows_of(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """The rows without their order."""
    return Counter(zip(*map(plain, table.columns), strict=True))


def by_python(left: pa.Table, right: pa.Table, keys: Sequence[str], how: JoinKind) -> Counter[tuple[Any, ...]]:
    """The rows of the result, left columns first, found with dictionaries."""
    left, right = canonical(left), canonical(right)
    ours, theirs = ([dict(enumerate(row)) for row in zip(*map(plain, t.columns), strict=True)] for t in (left, right))
    ours_at, theirs_at = ([t.column_names.index(key) for key in keys] for t in (left, right))
    others = [at for at in range(right.num_columns) if at not in theirs_at] if how.has_right_columns else []

    def key(row: dict[int, Any], places: Sequence[int]) -> tuple[Any, ...] | None:
        values = tuple(row[at] for at in places)
        return None if None in values or NAN in values else values

    partners = defaultdict(list)
    for row in theirs:
        partners[key(row, theirs_at)].append(row)
    partners.pop(None, None)
    found: Counter[tuple[Any, ...]] = Counter()
    for row in ours:
        mine = (*row.values(),)
        with_it = partners.get(key(row, ours_at), [])
        if how.has_right_columns:
            found.update((*mine, *(other[at] for at in others)) for other in with_it)
        elif bool(with_it) == (how is JoinKind.SEMI):
            found[mine] += 1
        if how.has_right_columns and how.keeps_unmatched_left and not with_it:
            found[(*mine, *(None for _ in others))] += 1
    if how.keeps_unmatched_right:
        matched = {key(row, ours_at) for row in ours}
        for row in theirs:
            if key(row, theirs_at) is None or key(row, theirs_at) not in matched:
                alone: list[Any] = [None] * left.num_columns
                for mine_at, its_at in zip(ours_at, theirs_at, strict=True):
                    alone[mine_at] = row[its_at]
                found[(*alone, *(row[at] for at in others))] += 1
    return found


def every_value(*, rows: int = 40) -> Tables:
    """Both tables with an integer key and, beside it, a column with nulls of each of `VALUES`."""
    columns = {name: make() for name, make in VALUES.items()}

    def table(prefix: str, keys: list[int | None], step: int) -> pa.Table:
        of_rows = {
            f"{prefix} {name}": values.take(
                pa.array([None if row % 4 == 3 else step * row % len(values) for row in range(len(keys))], pa.int64())
            )
            for name, values in columns.items()
        }
        return pa.table({"key": pa.array(keys, pa.int64()), **of_rows})

    left: list[int | None] = [None if row % 9 == 8 else row % (rows // 2) for row in range(rows)]
    return table("left", left, 1), table("right", [row // 2 for row in range(rows // 4, rows)], 3)


def of_names(first: int) -> Tables:
    """A key and five columns on each side with the names of `NAMES` from number `first` on, round about."""
    key, *others = (NAMES[(first + number) % len(NAMES)] for number in range(11))
    numbers = pa.array([10, 20, 30, 40])
    rows = [[0, 1, 2, 2, None], [2, 2, 3, None, 0]]
    left, right = (
        table_of(numbers, key, some, each) for some, each in zip((others[:5], others[5:]), rows, strict=True)
    )
    return left, right


NAMED = tuple(range(0, len(NAMES), 7))
"""From which numbers on `of_names` has each name as a column of either side, and some of every kind as a key."""


def found_rows(pieces: Sequence[pa.Table], left: pa.Table, right: pa.Table, keys: Sequence[str], how: JoinKind) -> Any:
    """The rows of a result's pieces; each must have the columns and the types of the tables, in their order."""
    left, right = canonical(left), canonical(right)
    fields = [*left.schema, *(field for field in right.schema if how.has_right_columns and field.name not in keys)]
    rows: Counter[tuple[Any, ...]] = Counter()
    for piece in pieces:
        assert [(each.name, each.type) for each in piece.schema] == [(each.name, each.type) for each in fields]
        rows += rows_of(piece)
    return rows
