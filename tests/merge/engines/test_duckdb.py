"""What is particular to the engine duckdb: its settings, names, and what happens where memory ends."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from merge_bench.errors import RunFailed
from merge_bench.merge.engines.base import JoinShape
from merge_bench.merge.engines.duckdb import DuckdbEngine
from merge_bench.merge.frame import Frame

LEFT = pa.table({"key": np.arange(1000), "a": np.arange(1000)})
RIGHT = pa.table({"key": np.arange(1000) % 7, "A": np.arange(1000), "b": pa.array(["x"] * 1000, pa.large_string())})


def loaded(left: pa.Table = LEFT, right: pa.Table = RIGHT, *, threads: int = 1) -> DuckdbEngine:
    frames = Frame.from_arrow(left), Frame.from_arrow(right)
    engine = DuckdbEngine(JoinShape(frames[0].fields, frames[1].fields, ("key",), 1, 0, 2000, threads))
    engine.load(*frames)
    engine.begin()
    engine.partition()
    return engine


def setting(engine: DuckdbEngine, name: str) -> object:
    found = engine._database.execute(f"SELECT current_setting('{name}')").fetchone()
    assert found is not None
    return found[0]


def running() -> set[str]:
    """The threads of this process: those that end meanwhile are of earlier tests."""
    return set(os.listdir("/proc/self/task"))


@pytest.mark.parametrize("threads", [1, 3])
def test_it_has_the_workers_threads_and_no_more(threads: int) -> None:
    loaded().join()  # libraries start threads of their own at first use
    shape, before = loaded().shape, running()
    engine = DuckdbEngine(replace(shape, threads=threads))
    assert len(running() - before) == threads - 1
    assert setting(engine, "threads") == threads
    engine = loaded(threads=threads)
    before = running()
    assert engine.join() == 1000
    assert running() <= before


def test_it_writes_no_file_and_shows_no_progress() -> None:
    engine = loaded()
    assert setting(engine, "temp_directory") == ""
    assert setting(engine, "enable_progress_bar") is False
    assert setting(engine, "autoinstall_known_extensions") is False


def test_a_join_that_does_not_fit_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    many = pa.table({"key": np.arange(400_000), "a": np.arange(400_000)})
    engine = loaded(many, many.rename_columns(["key", "b"]))
    engine._database.execute("SET memory_limit = '4MB'")
    with pytest.raises(RunFailed) as caught:
        engine.join()
    assert str(caught.value).startswith("DuckDB's join of the tables failed on rank 0: Out of Memory Error")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_names_that_differ_in_case_alone_are_different_columns() -> None:
    engine = loaded()
    assert engine.join() == 1000
    result = pa.concat_tables(list(engine.results()))
    assert result.column_names == ["key", "a", "A", "b"]
    assert result["key"].equals(result["a"])
    assert sorted(result["A"].to_pylist()) == list(range(1000))
    assert result["b"].type == pa.large_string()
