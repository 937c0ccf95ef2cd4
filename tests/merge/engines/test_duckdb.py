"""What is particular to the engine duckdb: its settings, names, and what happens where memory ends."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from merge_bench.errors import RunFailed
from merge_bench.merge.engines.base import JoinShape
from merge_bench.merge.engines.duckdb import DuckdbEngine
from merge_bench.merge.frame import Frame

LEFT = pa.table({"key": np.arange(1000), "a": np.arange(1000)})
RIGHT = pa.table({"key": np.arange(1000) % 7, "A": np.arange(1000), "b": pa.array(["x"] * 1000, pa.large_string())})


class SmallMemory(DuckdbEngine):
    """Whose database has 4 MB."""

    settings: ClassVar[Mapping[str, str | int | bool]] = {**DuckdbEngine.settings, "memory_limit": "4MB"}


def loaded(
    left: pa.Table = LEFT, right: pa.Table = RIGHT, *, threads: int = 1, kind: type[DuckdbEngine] = DuckdbEngine
) -> DuckdbEngine:
    frames = Frame.from_arrow(left), Frame.from_arrow(right)
    engine = kind(JoinShape(frames[0].fields, frames[1].fields, ("key",), 1, 0, 2000, threads))
    engine.load_chunks(*frames)
    engine.begin_iteration()
    engine.partition_chunks()
    return engine


def running() -> set[str]:
    """The threads of this process: those that end meanwhile are of earlier tests."""
    return set(os.listdir("/proc/self/task"))


@pytest.mark.parametrize("threads", [1, 3])
def test_it_has_the_workers_threads_and_no_more(threads: int) -> None:
    loaded().join_received_rows()  # libraries start threads of their own at first use
    shape, before = loaded().shape, running()
    engine = DuckdbEngine(replace(shape, threads=threads))
    assert len(running() - before) == threads - 1
    engine = loaded(threads=threads)
    before = running()
    assert engine.join_received_rows() == 1000
    assert running() <= before


def test_a_join_that_does_not_fit_fails_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    many = pa.table({"key": np.arange(400_000), "a": np.arange(400_000)})
    engine = loaded(many, many.rename_columns(["key", "b"]), kind=SmallMemory)
    with pytest.raises(RunFailed) as caught:
        engine.join_received_rows()
    assert str(caught.value).startswith("DuckDB's join of the tables failed on rank 0: Out of Memory Error")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_names_that_differ_in_case_alone_are_different_columns() -> None:
    engine = loaded()
    assert engine.join_received_rows() == 1000
    result = pa.concat_tables(list(engine.result_tables()))
    assert result.column_names == ["key", "a", "A", "b"]
    assert result["key"].equals(result["a"])
    assert sorted(result["A"].to_pylist()) == list(range(1000))
    assert result["b"].type == pa.large_string()
