"""Small merges that every engine must answer alike, and one worker after the other instead of side by side."""

from __future__ import annotations

import decimal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from merge_bench.merge.engines import import_engine_class
from merge_bench.merge.engines.base import Engine, JoinKind, JoinShape, Side
from merge_bench.merge.frame import Frame, canonical_type
from merge_bench.merge.partition import contiguous_buffers

Tables = tuple[pa.Table, pa.Table]
NAN, INF = float("nan"), float("inf")


def moments(ticks: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Dates or times from their integers."""
    return pa.array(ticks, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


def _integers() -> Tables:
    keys = np.arange(5000)
    left = pa.table({"key": keys, "a": keys * 3, "b": (keys % 7 == 0)})
    right = pa.table({"key": (keys * 5) % 8000, "c": keys.astype(np.float32)})
    return left, right


def _duplicates() -> Tables:
    left = pa.table({"key": pa.array(np.arange(600) % 40, pa.int32()), "a": np.arange(600)})
    right = pa.table({"c": np.arange(300), "key": pa.array(np.arange(300) % 55, pa.int32())})
    return left, right


def _strings() -> Tables:
    words = [None if n % 11 == 0 else f"{'ä' * (n % 5)}key {n % 200}" for n in range(1200)]
    left = pa.table({"key": words, "text": [None if n % 3 == 0 else "x" * (n % 20) for n in range(1200)]})
    right = pa.table({"key": [*words[300:900], ""], "c": list(range(601)), "empty": [""] * 601})
    return left, right


def _nulls_and_nans() -> Tables:
    left = [1.5, NAN, None, 0.0, -0.0, INF, 2.5, -INF, NAN, None]
    right = [NAN, None, -0.0, 2.5, 1.5, INF, 3.5, 0.0]
    return pa.table({"key": left, "a": range(10)}), pa.table({"key": right, "c": [None, *range(7)]})


def _nullable_integers() -> Tables:
    left = pa.table({"key": [None if n % 4 == 0 else n % 90 for n in range(500)], "a": range(500)})
    right = pa.table({"key": [n % 120 for n in range(240)], "c": [None if n % 2 else n for n in range(240)]})
    return left, right


def _decimals() -> Tables:
    kind = pa.decimal128(20, 2)
    values = [None if n % 13 == 0 else decimal.Decimal(n * 7 - 900) / 100 for n in range(400)]
    left = pa.table({"key": pa.array(values, kind), "a": pa.array(values, kind)})
    return left, pa.table({"key": pa.array(values[100:300], kind), "c": range(200)})


def _several_keys() -> Tables:
    numbers = np.arange(900)
    names = [None if n % 10 == 0 else f"n{n % 6}" for n in range(900)]
    left = pa.table({"a": numbers, "number": numbers % 30, "name": names, "day": moments(numbers % 9, pa.date32())})
    right = pa.table({"name": names[:400], "c": numbers[:400], "day": left["day"][:400], "number": numbers[:400] % 31})
    return left, right


def _every_type() -> Tables:
    rows = 64
    whole = np.arange(rows)
    columns: dict[str, pa.Array] = {"key": pa.array(whole, pa.uint16())}
    for number, kind in enumerate(
        [
            pa.int8(),
            pa.uint8(),
            pa.int16(),
            pa.uint32(),
            pa.uint64(),
            pa.float32(),
            pa.date32(),
            pa.time32("s"),
            pa.time64("us"),
            pa.timestamp("ns"),
            pa.timestamp("ms", "UTC"),
            pa.duration("us"),
            pa.decimal128(9, 3),
            pa.bool_(),
            pa.large_string(),
            pa.large_binary(),
        ]
    ):
        values = [None if (n + number) % 5 == 0 else n for n in range(rows)]
        if pa.types.is_boolean(kind):
            values = [None if v is None else v % 2 == 0 for v in values]
        elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
            values = [None if v is None else bytes([65 + v % 50]) * (v % 9) for v in values]
        columns[f"c{number}"] = (
            pa.array(values, pa.large_binary()).view(kind) if number >= 14 else pa.array(values, kind)
        )
    left = pa.table(columns)
    return left, pa.table({"key": pa.array(whole[::-2], pa.uint16()), "time": moments(whole[::-2], pa.time32("ms"))})


def _timely_keys() -> Tables:
    ticks = np.arange(700)
    left = pa.table({"key": moments(ticks % 300, pa.time64("ns")), "at": moments(ticks % 7, pa.timestamp("us", "UTC"))})
    right = pa.table({"key": moments(ticks % 250, pa.time64("ns")), "at": left["at"], "c": ticks})
    return left, right


def _only_keys() -> Tables:
    return pa.table({"key": [1, 2, 2, 5]}), pa.table({"key": [2, 5, 5, 9]})


def _no_match() -> Tables:
    return pa.table({"key": [1, 3, 5], "a": ["x", None, "z"]}), pa.table({"key": [2, 4], "c": [1.0, 2.0]})


def _no_rows() -> Tables:
    left, right = _strings()
    return left.slice(0, 0), right


CASES: dict[str, tuple[Callable[[], Tables], tuple[str, ...]]] = {
    "integers": (_integers, ("key",)),
    "duplicates": (_duplicates, ("key",)),
    "strings": (_strings, ("key",)),
    "nulls and NaN": (_nulls_and_nans, ("key",)),
    "nullable integers": (_nullable_integers, ("key",)),
    "decimals": (_decimals, ("key",)),
    "several keys": (_several_keys, ("number", "name", "day")),
    "every type": (_every_type, ("key",)),
    "times as keys": (_timely_keys, ("key", "at")),
    "only keys": (_only_keys, ("key",)),
    "no match": (_no_match, ("key",)),
    "no rows": (_no_rows, ("key",)),
}


def canonical(table: pa.Table) -> pa.Table:
    return table.cast(pa.schema([(field.name, canonical_type(field.type, field.name)) for field in table.schema]))


def chunks(table: pa.Table, workers: int) -> list[Frame]:
    """The table's rows spread over the workers, under fields that they agree on."""
    whole = Frame.from_arrow(canonical(table))
    nullable = {field.name: field.nullable for field in whole.fields}
    edges = [table.num_rows * n // workers for n in range(workers + 1)]
    parts = [canonical(table).slice(edges[n], edges[n + 1] - edges[n]) for n in range(workers)]
    return [Frame.from_arrow(part).with_nullable_fields(nullable) for part in parts]


def shapes(
    left: Frame, right: Frame, keys: tuple[str, ...], workers: int, how: JoinKind = JoinKind.INNER
) -> list[JoinShape]:
    first = JoinShape(left.fields, right.fields, keys, workers, 0, (left.rows + right.rows) * workers, how=how)
    return [replace(first, rank=rank) for rank in range(workers)]


def merge(
    engine: str,
    case: str,
    workers: int,
    hand_over: Callable[[Any, Any], None],
    iterations: int = 1,
    how: JoinKind = JoinKind.INNER,
    sent: Side | None = None,
) -> pa.Table:
    """The whole result of a case.

    `hand_over(source, target)` does what an exchange does with two runs of bytes; `sent`: the side that is sent whole.
    """
    make, keys = CASES[case]
    return pa.concat_tables(merge_tables(engine, make(), keys, workers, hand_over, iterations, how, sent))


def merge_tables(
    engine: str,
    tables: Tables,
    keys: tuple[str, ...],
    workers: int,
    hand_over: Callable[[Any, Any], None],
    iterations: int = 1,
    how: JoinKind = JoinKind.INNER,
    sent: Side | None = None,
) -> list[pa.Table]:
    """The result in pieces."""
    lefts, rights = (chunks(table, workers) for table in tables)
    rows = 0 if sent is None else tables[sent is Side.RIGHT].num_rows
    engines: list[Engine] = [
        import_engine_class(engine)(replace(shape, sent=sent, sent_rows=rows))
        for shape in shapes(lefts[0], rights[0], keys, workers, how)
    ]
    for one, left_chunk, right_chunk in zip(engines, lefts, rights, strict=True):
        one.load_chunks(left_chunk, right_chunk)
    for _ in range(iterations):
        for one in engines:
            one.begin_iteration()
        outgoing = [one.partition_chunks() for one in engines]
        for side in Side:
            for rank, one in enumerate(engines):
                sent = {source: outgoing[source][side][rank] for source in range(workers) if source != rank}
                assert all(each.header.nbytes == one.parcel_header_bytes(side) for each in sent.values())
                boxes = one.make_receive_buffers(side, {source: each.header.copy() for source, each in sent.items()})
                for source, each in sent.items():
                    hand_over_runs(each.data, boxes[source], hand_over)
            for one in engines:
                one.reuse_sent_parcel_memory(side)
        counts = [one.join_received_rows() for one in engines]
    pieces = [list(one.result_tables()) for one in engines]
    for count, its_pieces in zip(counts, pieces, strict=True):
        assert count == sum(piece.num_rows for piece in its_pieces)
    return [piece for its_pieces in pieces for piece in its_pieces]


def hand_over_runs(source: Any, target: Any, hand_over: Callable[[Any, Any], None]) -> None:
    """Hand over a parcel's data run by run."""
    for one, other in zip(contiguous_buffers(source), contiguous_buffers(target), strict=True):
        assert one.nbytes == other.nbytes
        hand_over(one, other)


def rows_of(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """A table's rows without their order; both zeros and all NaNs count as one value."""

    def plain(value: Any) -> Any:
        if isinstance(value, float):
            return "NaN" if value != value else value + 0.0
        return value

    # Nanoseconds have no type in Python, so instants and times are compared as the integers they are.
    columns = []
    for column in table.columns:
        kind = column.type
        if pa.types.is_temporal(kind):
            column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
        columns.append([plain(value) for value in column.to_pylist()])
    return Counter(zip(*columns, strict=True))


def copy_host(source: Any, target: Any) -> None:
    target[:] = source
