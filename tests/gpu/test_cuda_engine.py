"""What only the engine cuda does, on a GPU: its own kernels, and stepping back to libcudf's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from merge_bench.merge.engines import cuda_join, engine_class
from merge_bench.merge.engines.cuda_join import EMPTY
from merge_bench.merge.frame import Frame
from tests.helpers import merge_cases
from tests.helpers.process_pair import POOL

pytestmark = pytest.mark.gpu
ROWS = 50_000


@pytest.fixture(scope="module", autouse=True)
def pool() -> None:
    pytest.importorskip("pylibcudf", reason="the stack in this environment has no pylibcudf: set up cu12 or cu13")
    from merge_bench.merge.engines.gpu_memory import set_up_pool

    set_up_pool(POOL)


def joined(engine: str, left: pa.Table, right: pa.Table) -> tuple[pa.Table, Any]:
    """The result in the order of its columns, and the engine, of one worker that merges twice."""
    frames = [Frame.from_arrow(merge_cases.canonical(table)) for table in (left, right)]
    made: Any = engine_class(engine)(merge_cases.shapes(*frames, ("key",), 1)[0])
    made.load(*frames)
    for _ in range(2):
        made.begin()
        made.partition()
        rows = made.join()
    result = pa.concat_tables(made.results())
    assert result.num_rows == rows
    return result.sort_by([(name, "ascending") for name in result.column_names]), made


def table(keys: Any, name: str, kinds: str) -> pa.Table:
    """Columns whose values follow from the row, one of each of these types of NumPy."""
    numbers = np.arange(len(keys))
    return pa.table(
        {"key": keys, **{f"{name}{at}": (numbers * 7).astype(kind) for at, kind in enumerate(kinds.split())}}
    )


SOME = np.random.default_rng(1)
CASES: dict[str, tuple[Any, Any, bool]] = {
    "unique": (SOME.permutation(ROWS), SOME.permutation(2 * ROWS)[: ROWS + 1], True),
    "repeated on both sides": (SOME.integers(0, ROWS // 3, ROWS), SOME.integers(0, ROWS // 3, ROWS - 5), True),
    "one key on most rows of the larger side": (np.r_[np.full(ROWS, 9), np.arange(50)], np.arange(999), True),
    "one key on most rows of the smaller side": (np.arange(ROWS), np.r_[np.full(ROWS // 2, 9), np.arange(50)], False),
    "the mark of free slots": (np.arange(ROWS), np.r_[np.uint64(EMPTY).view(np.int64), np.arange(50)], False),
    "a key just often enough": (np.arange(ROWS), np.r_[np.full(cuda_join.MOST_EQUAL, 7), np.arange(99)], True),
    "no match": (np.arange(ROWS), -1 - np.arange(ROWS), True),
    "one row": (np.array([7]), np.array([7]), True),
}


@pytest.mark.parametrize("kinds", [("i8", "i8"), ("", ""), ("f8 i1 i2", "i4 i2 i1 u1"), ("i2", "f8 i8 i1")])
@pytest.mark.parametrize("case", CASES)
def test_the_rows_are_those_of_libcudf(case: str, kinds: tuple[str, str]) -> None:
    left, right, ours = CASES[case]
    for swap in (False, True):
        tables = [table(keys, name, each) for keys, name, each in zip((left, right), "lr", kinds, strict=True)]
        found, engine = joined("cuda", *(reversed(tables) if swap else tables))
        expected, _ = joined("cudf", *(reversed(tables) if swap else tables))
        assert engine._own_join == ours
        assert found.equals(expected)


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.uint16(), pa.int32(), pa.uint64(), pa.date32(), pa.timestamp("ns", "UTC")]
)
def test_keys_of_every_width(kind: pa.DataType) -> None:
    width = kind.bit_width // 8
    keys = SOME.integers(-100, 100, 400).astype(f"i{width}")
    left, right = (
        pa.table({"key": pa.Array.from_buffers(kind, len(part), [None, pa.py_buffer(part.tobytes())]), name: part})
        for name, part in (("l", keys), ("r", keys[:77]))
    )
    found, engine = joined("cuda", left, right)
    assert engine._own_join
    assert found.equals(joined("cudf", left, right)[0])
