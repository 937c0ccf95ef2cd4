"""Engines that join some rows while others are on their way: the same rows, from pieces in any order."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.merge.engines import engine_descriptions, import_engine_class
from merge_bench.merge.engines.base import WHOLE, JoinShape, PipelinedEngine
from merge_bench.merge.engines.cpu_base import HostEngine
from merge_bench.merge.frame import Frame
from tests.helpers.examples import examples
from tests.helpers.frames import random_table, seeds
from tests.helpers.merge_cases import CASES, canonical, chunks, rows_of
from tests.merge.in_process import engines_of, result, run_once

ENGINES = [engine.name for engine in engine_descriptions() if engine.in_parts]
SMALL = 40
"""Rows of a bucket, so that even small tables have several parts."""


def made(
    name: str, left: list[Frame], right: list[Frame], keys: tuple[str, ...], join_rows: int | None = None
) -> list[HostEngine]:
    found = engines_of(name, left, right, keys, join_rows=join_rows)
    assert all(isinstance(engine, HostEngine) for engine in found)
    return found


def at_once(engines: list[HostEngine]) -> pa.Table:
    """All phases apart."""
    assert run_once(engines) == result(engines).num_rows
    return result(engines)


def in_parts(engines: list[HostEngine], seed: int = 0) -> pa.Table:
    """The result of `join_parts`."""
    join_parts(engines, seed)
    return result(engines)


def join_parts(engines: list[HostEngine], seed: int = 0) -> None:
    """Pieces arrive in random order; each part is joined when it is there, while later ones are room without data."""
    for engine in engines:
        engine.begin_iteration()
    outgoing = [list(engine.partition_pieces()) for engine in engines]
    for rank, engine in enumerate(engines):
        pieces = engine.pieces
        assert len(outgoing[rank]) == len(pieces)
        order = [(source, number) for source in range(len(engines)) for number in range(len(pieces)) if source != rank]
        random.Random(seed).shuffle(order)
        rooms = {}
        for source, number in order:
            header = outgoing[source][number][rank].header.copy()
            rooms[source, number] = engine.make_receive_buffer(pieces[number], source, header)
            rooms[source, number][:] = 0xEE
        for part in range(engine.join_part_count):
            for source, number in order:
                if pieces[number].part in (WHOLE, part):
                    rooms[source, number][:] = outgoing[source][number][rank].data
            engine.join_part(part)
        assert engine.result_row_count() == sum(piece.num_rows for piece in engine.result_tables())


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("engine", "workers"), [("native", 2), *((engine, 3) for engine in ENGINES)])
def test_rows_are_those_of_all_phases_apart(engine: str, case: str, workers: int) -> None:
    make, keys = CASES[case]
    tables = [chunks(canonical(table), workers) for table in make()]
    rows = sum(frame.rows for frames in tables for frame in frames)
    engines = made(engine, *tables, keys, max(SMALL, rows // 16))  # some calls of its library take ms
    expected = rows_of(at_once(engines))
    received = [engine.received_row_counts() for engine in engines]
    for seed in range(2 if engine == "native" else 1):  # buffers are used again
        assert rows_of(in_parts(engines, seed)) == expected
        assert [engine.received_row_counts() for engine in engines] == received
    if case == "integers":
        assert engines[0].join_part_count > 4


@given(seed=seeds, rows=st.tuples(st.integers(0, 90), st.integers(0, 90)), workers=st.integers(1, 4))
@examples(40)
def test_random_tables(seed: int, rows: tuple[int, int], workers: int) -> None:
    left = random_table(rows[0], ["int64", "large_string", "bool"], seed, distinct=20)
    right = random_table(rows[1], ["int64", "large_binary"], seed + 1, distinct=20).rename_columns(["c0", "other"])
    engines = made("polars", chunks(left, workers), chunks(right, workers), ("c0",), SMALL)
    assert rows_of(in_parts(engines, seed)) == rows_of(at_once(engines))


def test_pieces_are_the_same_on_all_ranks_whatever_rows_they_hold() -> None:
    table = pa.table({"key": range(3000), "a": range(3000)})
    full, empty = Frame.from_arrow(table), Frame.from_arrow(table.slice(0, 0))
    engines = made("polars", [full, empty], [empty, full], ("key",))
    assert isinstance(engines[0], PipelinedEngine)
    assert engines[0].pieces == engines[1].pieces
    assert in_parts(engines).num_rows == 3000


@pytest.mark.parametrize(
    ("rows", "workers", "parts"), [(4e6, 2, 30), (25e6, 2, 32), (1e6, 2, 7), (1e4, 2, 1), (25e6, 16, 23), (25e6, 64, 5)]
)
def test_a_piece_to_one_worker_has_a_mebibyte_or_more(rows: float, workers: int, parts: int) -> None:
    fields = Frame.from_arrow(pa.table({"key": [1], "a": [1]})).fields
    other = Frame.from_arrow(pa.table({"key": [1], "c": [1]})).fields
    engine = import_engine_class("polars")(JoinShape(fields, other, ("key",), workers, 0, int(2 * rows * workers)))
    assert isinstance(engine, HostEngine)
    assert engine.join_part_count == parts
    assert parts == 1 or 16 * rows / workers / parts >= 1 << 20
