"""The programs that measure libraries on a GPU, on fakes of these libraries: right figures, and wrong results found."""

from __future__ import annotations

import json
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.on_gpu import library
from benchmarks.on_gpu.programs import cudf_merge, libcudf_join, libcudf_partition, polars_join, profiled_merge, rows
from merge_bench.errors import WrongResult
from merge_bench.merge.engines import gpu_memory

ROWS = 1000
Lines = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def pool(rapids: None, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = types.ModuleType("cuda.bindings.runtime")
    calls = {name: lambda: (0,) for name in ("cudaDeviceSynchronize", "cudaProfilerStart", "cudaProfilerStop")}
    vars(runtime).update(calls)
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", runtime)
    gpu_memory.process_cuda_stream.cache_clear()
    gpu_memory.set_up_memory_pool(1 << 24)


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[[], Lines]:
    return lambda: library.json_lines(capsys.readouterr().out)


def test_joins_by_either_table_and_with_a_skew_are_verified(printed: Callable[[], Lines]) -> None:
    libcudf_join.measure(ROWS)
    *lines, absent = printed()
    assert len(lines) == 8
    assert {(line["built"], line["zipf"]) for line in lines} == {(b, z) for b in ("left", "right") for z in (0.0, 1.0)}
    assert all(line["verified"] and line["result_rows"] == 300 for line in lines)
    assert all(line["seconds"]["iterations"] == 10 and line["seconds"]["min"] > 0 for line in lines)
    assert absent == {"name": "distinct_hash_join", "absent": "the installed pylibcudf does not have it"}


def test_a_join_that_swaps_the_sides_of_its_maps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = libcudf_join.join
    monkeypatch.setattr(libcudf_join, "join", lambda left, other, *, swapped: right(left, other, swapped=swapped)[::-1])
    with pytest.raises(WrongResult, match="instead of"):
        libcudf_join.measure(ROWS)


def test_partitions_of_three_numbers_of_parts_are_verified(printed: Callable[[], Lines]) -> None:
    libcudf_partition.measure(20 * ROWS)
    lines = printed()
    assert [line["parts"] for line in lines] == [2, 32, 64]
    assert {line["bytes_read_and_written"] for line in lines} == {2 * 20 * ROWS * 16}


def test_a_partition_that_loses_a_row_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = rows.Problem.of(ROWS)
    table = libcudf_join.on_device(problem.left)
    found, offsets = libcudf_partition.split(table, 2)
    libcudf_partition.verify(problem, found, offsets, 2)
    with pytest.raises(WrongResult, match=r"gave one of 1,000 rows"):
        libcudf_partition.verify(problem, found, [0, 0], 2)
    half = sys.modules["pylibcudf"].copying.slice(found, [0, ROWS // 2], stream=gpu_memory.process_cuda_stream())[0]
    with pytest.raises(WrongResult, match="lost or repeated rows"):
        libcudf_partition.verify(problem, half, offsets, 2)


def test_the_profiled_iteration_is_verified(printed: Callable[[], Lines]) -> None:
    profiled_merge.measure(ROWS)
    assert printed() == [{"name": "profiled merge", "rows": ROWS, "result_rows": 300}]


class FakeFrame:
    """A frame of cuDF, as far as its merge goes."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    @classmethod
    def from_arrow(cls, table: pa.Table) -> FakeFrame:
        return cls(table)

    def merge(self, right: FakeFrame, *, on: str, how: str) -> FakeFrame:
        return FakeFrame(self.table.join(right.table, on, join_type=how))

    def to_arrow(self, preserve_index: bool | None = None) -> pa.Table:
        assert preserve_index is False
        return self.table


class LosingFrame(FakeFrame):
    """A frame of a cuDF that leaves out the first rows of the right side."""

    def merge(self, right: FakeFrame, *, on: str, how: str) -> FakeFrame:
        return super().merge(FakeFrame(right.table.slice(9)), on=on, how=how)


def test_cudfs_merge_is_verified(monkeypatch: pytest.MonkeyPatch, printed: Callable[[], Lines]) -> None:
    monkeypatch.setitem(sys.modules, "cudf", types.SimpleNamespace(DataFrame=FakeFrame))
    cudf_merge.measure(ROWS)
    (line,) = printed()
    assert (line["name"], line["result_rows"], line["verified"]) == ("cudf.DataFrame.merge", 300, True)

    monkeypatch.setitem(sys.modules, "cudf", types.SimpleNamespace(DataFrame=LosingFrame))
    with pytest.raises(WrongResult):
        cudf_merge.measure(ROWS)


class FakeEngine:
    """cudf-polars' engine, on Polars itself."""

    def __enter__(self) -> FakeEngine:
        if DefaultEngine.active:
            raise RuntimeError("Cannot construct SPMDEngine while the default GPU engine is active.")
        return self

    def __exit__(self, *_: object) -> None: ...

    def execute(self, query: Any) -> FakePersisted:
        return FakePersisted(query.collect())


class DefaultEngine:
    """What ``collect(engine="gpu")`` leaves behind in its process."""

    active = False

    @classmethod
    def take(cls, raise_on_fail: bool) -> str:
        cls.active = True
        return "in-memory"

    @classmethod
    def shutdown(cls) -> None:
        cls.active = False


class FakePersisted:
    def __init__(self, frame: Any) -> None:
        self.frame = frame

    def __enter__(self) -> FakePersisted:
        return self

    def __exit__(self, *_: object) -> None: ...

    def lazy(self) -> Any:
        return PolarsFrame(self.frame.lazy())


class PolarsFrame:
    def __init__(self, frame: Any) -> None:
        self.frame = frame

    def join(self, other: PolarsFrame, *, on: str, how: str) -> Any:
        return self.frame.join(other.frame, on=on, how=how)

    def collect(self, *, engine: Any) -> Any:
        assert isinstance(engine, FakeEngine)
        return self.frame.collect()


def test_both_joins_of_cudf_polars_are_verified(monkeypatch: pytest.MonkeyPatch, printed: Callable[[], Lines]) -> None:
    polars = pytest.importorskip("polars")
    monkeypatch.setitem(sys.modules, "cudf_polars", types.SimpleNamespace(__version__="26.10"))
    monkeypatch.setitem(sys.modules, "cudf_polars.engine", types.ModuleType("cudf_polars.engine"))
    monkeypatch.setitem(sys.modules, "cudf_polars.engine.spmd", types.SimpleNamespace(SPMDEngine=FakeEngine))
    default = types.SimpleNamespace(DefaultSingletonEngine=DefaultEngine)
    monkeypatch.setitem(sys.modules, "cudf_polars.engine.default_singleton_engine", default)
    monkeypatch.setattr(polars, "GPUEngine", DefaultEngine.take)
    polars_join.measure(ROWS)
    polars_join.measure(ROWS)
    lines = printed()
    assert [line["name"].rpartition(" ")[2] for line in lines] == ["GPU", "memory"] * 2
    assert all(line["verified"] and line["seconds"]["iterations"] == 5 for line in lines)


def test_lines_before_a_crash_are_kept_and_the_step_failed() -> None:
    line = json.dumps({"name": "inner_join", "rows": 25_000_000, "seconds": {"median": 0.0052}})
    found = library.judge(f'{line}\n{{"name": "cut o', -11, "status -11: Segmentation fault")
    assert found.status == 3
    assert found.sentence == "status -11: Segmentation fault; inner_join 5.20 ms at 25,000,000 rows"
    assert len(found.figures["lines"]) == 1
    assert library.judge(line, 4, "status 4: 3 rows").status == 4
    assert library.judge("", 0, None).status == 3


def test_a_program_that_hangs_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hanging.py").write_text("import time\ntime.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    ended = library.run_program("hanging", [], "hanging", tmp_path, 2)
    found = library.judge(ended.output.read_text(), ended.status, ended.failure)
    assert found.status == 3
    assert re.match(r"stopped after \d+ s because it had not finished", found.sentence)
