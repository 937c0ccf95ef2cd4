"""Frames back to Arrow."""

from __future__ import annotations

import pyarrow as pa
import pytest

from merge_bench.merge.frame import Frame
from tests.helpers import merge_cases


@pytest.mark.parametrize("case", merge_cases.CASES)
def test_there_and_back(case: str) -> None:
    for table in merge_cases.CASES[case][0]():
        plain = merge_cases.canonical(table)
        for part in (plain, plain.slice(3, 21), plain.slice(0, 0)):
            back = Frame.from_arrow(part).to_arrow()
            back.validate(full=True)
            assert back.schema.equals(part.schema.remove_metadata())
            assert merge_cases.rows_of(back) == merge_cases.rows_of(part)


def test_a_column_that_others_hold_nulls_of() -> None:
    frame = Frame.from_arrow(pa.table({"key": [1, 2]})).with_nullable({"key": True})
    assert frame.to_arrow().column("key").null_count == 0
    frame.columns[0].valid[1] = 0  # type: ignore[index]
    assert frame.to_arrow().column("key").to_pylist() == [1, None]
