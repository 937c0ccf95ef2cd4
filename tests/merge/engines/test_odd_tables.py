"""Types and names on which dataframe libraries differ, on every engine for CPUs, against a join in plain Python."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merge_bench.merge.engines import engine_descriptions
from merge_bench.merge.engines.base import JoinKind
from tests.helpers.examples import examples
from tests.helpers.merge_cases import Tables, chunks
from tests.helpers.odd_tables import NAMED, VALUES, by_python, every_value, found_rows, of_names, of_values
from tests.merge.engines.test_parts import join_parts
from tests.merge.in_process import engines_of, run_once

ENGINES = [engine.name for engine in engine_descriptions() if not engine.device_memory]
CELLS = [
    pytest.param(engine, how, marks=() if engine == "native" else (pytest.mark.slow,))
    for engine in ENGINES
    for how in JoinKind
]

OF_TYPES = [
    *(("native", (how,)) for how in JoinKind),
    *(pytest.param(engine, tuple(JoinKind), marks=pytest.mark.slow) for engine in ENGINES if engine != "native"),
]


def check(engine: str, tables: Tables, how: JoinKind, *, parts: bool, keys: tuple[str, ...] = ()) -> None:
    """Merge on two workers, in small buckets, phases apart or in parts, and compare every row, name and type."""
    keys = keys or (tables[0].column_names[0],)
    lefts, rights = (chunks(table, 2) for table in tables)
    engines: Any = engines_of(engine, lefts, rights, keys, how=how, join_rows=8)
    if parts:
        join_parts(engines)
    else:
        run_once(engines)
    pieces = [piece for one in engines for piece in one.result_tables()]
    assert found_rows(pieces, *tables, keys, how) == by_python(*tables, keys, how)


@pytest.mark.parametrize(("engine", "hows"), OF_TYPES)
def test_every_type_as_a_key(engine: str, hows: tuple[JoinKind, ...]) -> None:
    """Each type in each kind of join on the engine that is the default, in one on the others; `--soak` has all."""
    for number, (make, how) in enumerate(zip(VALUES.values(), itertools.cycle(hows), strict=False)):
        check(engine, of_values(make(), nulls=number % 5 > 0), how, parts=number // len(hows) % 2 > 0)


@pytest.mark.parametrize(("engine", "how"), CELLS)
def test_every_type_beside_the_key(engine: str, how: JoinKind) -> None:
    for parts in (False, True):
        check(engine, every_value(), how, parts=parts)


@pytest.mark.parametrize(("engine", "how"), CELLS)
def test_every_name(engine: str, how: JoinKind) -> None:
    for first in NAMED:
        check(engine, of_names(first), how, parts=first % 2 > 0)


def cells() -> Iterator[tuple[str, Tables]]:
    """Every type with nulls and without, alone and in pairs as keys; every name as a key."""
    for (name, make), nulls in itertools.product(VALUES.items(), (False, True)):
        yield f"{name}, {nulls=}", of_values(make(), nulls=nulls)
    for first in range(len(of_names(0)[0].column_names) * 7):
        yield f"names from {first}", of_names(first)


@pytest.mark.soak
@pytest.mark.parametrize("engine", ENGINES)
def test_the_whole_matrix(engine: str) -> None:
    for (_, tables), how, parts in itertools.product(cells(), JoinKind, (False, True)):
        check(engine, tables, how, parts=parts)


def two_keys(one: str, other: str, rows: list[tuple[int, int]], split: int, *, nulls: bool) -> Tables:
    """Tables with two key columns of these types; `rows`: of both, numbers of their values."""
    tables = []
    for number, some in enumerate((rows[:split], rows[split:])):
        columns: dict[str, pa.Array] = {}
        for at, kind in enumerate((one, other)):
            values = VALUES[kind]()
            taken = [None if nulls and row[at] % 7 == 6 else row[at] % len(values) for row in some]
            columns[f"_{at}"] = values.take(pa.array(taken, pa.int64()))
        tables.append(pa.table({**columns, ("index", "_merge")[number]: pa.array(range(len(some)), pa.int64())}))
    return tables[0], tables[1]


RANDOM = {
    "one": st.sampled_from(list(VALUES)),
    "other": st.sampled_from(list(VALUES)),
    "rows": st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=40),
    "share": st.floats(0, 1),
    "nulls": st.booleans(),
    "engine": st.sampled_from(ENGINES),
    "how": st.sampled_from(JoinKind),
    "parts": st.booleans(),
}


def check_random(
    one: str,
    other: str,
    rows: list[tuple[int, int]],
    share: float,
    nulls: bool,
    engine: str,
    how: JoinKind,
    parts: bool,
) -> None:
    tables = two_keys(one, other, rows, int(share * len(rows)), nulls=nulls)
    check(engine, tables, how, parts=parts, keys=("_0", "_1"))


@given(**RANDOM)
@examples(15)
def test_random_pairs_of_keys(**given_values: Any) -> None:
    check_random(**given_values)


@pytest.mark.soak
@given(**RANDOM)
@settings(max_examples=3000, deadline=None)
def test_thousands_of_random_pairs_of_keys(**given_values: Any) -> None:
    check_random(**given_values)
