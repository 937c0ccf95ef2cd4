"""The engine cuda: its kernels compiled for the host (`fake_kernels`), and when it steps back to libcudf's join."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from merge_bench.errors import RunFailed, UsageError
from merge_bench.merge.engines import cuda as engine_module
from merge_bench.merge.engines import cuda_join, cuda_kernels
from merge_bench.merge.engines.base import How, Side
from merge_bench.merge.engines.cuda import CudaEngine, supports
from merge_bench.merge.engines.cuda_join import EMPTY, Widths, write_source
from merge_bench.merge.engines.cuda_kernels import compile_source
from merge_bench.merge.frame import Frame
from tests.helpers import fake_device, fake_rapids, joins, merge_cases
from tests.helpers.fake_cuda import CUresult
from tests.helpers.fake_device import room_for
from tests.helpers.fake_kernels import needs_compiler

BY_KERNELS = {"integers", "duplicates", "only keys"}
MARK = np.uint64(EMPTY).view(np.int64)


@pytest.fixture(autouse=True)
def rapids(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, module in fake_rapids.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(fake_rapids.Device, "resource", fake_rapids.CudaMemoryResource())
    fake_device.forget()
    forget_kernels()
    yield
    forget_kernels()


def forget_kernels() -> None:
    cuda_kernels.load_kernels.cache_clear()
    cuda_kernels.processors.cache_clear()


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each join that the kernels tried, whether they did it."""
    found: list[bool] = []
    original = CudaEngine._join_by_kernels

    def join(engine: CudaEngine, tables: dict[Side, Any]) -> list[Any] | None:
        columns = original(engine, tables)
        found.append(columns is not None)
        return columns

    monkeypatch.setattr(CudaEngine, "_join_by_kernels", join)
    return found


def merged(left: pa.Table, right: pa.Table, workers: int = 1, iterations: int = 1, engine: str = "cuda") -> pa.Table:
    tables = (merge_cases.canonical(left), merge_cases.canonical(right))
    return pa.concat_tables(
        merge_cases.merge_tables(engine, tables, ("key",), workers, fake_rapids.copy, iterations)
    )  # fmt: skip


def check(left: pa.Table, right: pa.Table, workers: int = 1) -> pa.Table:
    ours, theirs = merged(left, right, workers, 2), merged(left, right, workers, engine="cudf")
    assert ours.schema == theirs.schema
    assert merge_cases.rows_of(ours) == merge_cases.rows_of(theirs)
    return ours


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("case", merge_cases.CASES)
def test_same_rows_as_polars(case: str, workers: int, tried: list[bool]) -> None:
    ours = merge_cases.merge("cuda", case, workers, fake_rapids.copy, iterations=2)
    theirs = merge_cases.merge("polars", case, workers, merge_cases.copy_host)
    assert ours.schema.names == theirs.schema.names
    assert merge_cases.rows_of(ours) == merge_cases.rows_of(theirs.cast(ours.schema))
    assert any(tried) == (case in BY_KERNELS)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("how", [how for how in How if how is not How.INNER])
def test_other_joins_are_those_of_libcudf(how: How, tried: list[bool]) -> None:
    make, keys = merge_cases.CASES["duplicates"]
    left, right = (merge_cases.canonical(table) for table in make())
    pieces = merge_cases.merge_tables("cuda", (left, right), keys, 2, fake_rapids.copy, 2, how)
    found = pa.concat_tables(joins.tidy(piece, left, right, keys, how) for piece in pieces)
    assert merge_cases.rows_of(found) == joins.of_case("duplicates", how)
    assert not tried


KINDS = [
    (pa.int64(), [pa.int64()], [pa.int64()]),
    (pa.uint64(), [], [pa.float64(), pa.int8()]),  # row numbers in the slots
    (pa.int32(), [pa.int16(), pa.float64(), pa.bool_()], [pa.float32(), pa.int16(), pa.bool_(), pa.int8()]),
    (pa.int8(), [pa.uint32()], []),
    (pa.timestamp("ns", "UTC"), [pa.date32(), pa.duration("us")], [pa.uint16()]),
]


def random_table(
    rng: np.random.Generator, rows: int, key: pa.DataType, kinds: list[pa.DataType], name: str
) -> pa.Table:
    """Keys of which some occur several times, with the extremes of their type; a payload that uses all bits."""
    width = key.bit_width // 8
    some = rng.integers(-128, 128, max(rows // int(rng.integers(1, 5)), 1)) * int(
        rng.choice([1, 1 if width == 1 else 7])
    )
    keys = rng.choice(some, rows).astype(f"i{width}")
    if rows > 2:
        keys[:2] = np.iinfo(f"i{width}").min, -1
    columns = {"key": pa.Array.from_buffers(key, rows, [None, pa.py_buffer(keys.tobytes())])}
    for at, kind in enumerate(kinds):
        if pa.types.is_boolean(kind):
            columns[f"{name}{at}"] = pa.array(rng.integers(0, 2, rows).astype(bool))
            continue
        values = rng.integers(0, 256, rows * kind.bit_width // 8).astype(np.uint8)
        columns[f"{name}{at}"] = pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(values.tobytes())])
    order = rng.permutation(len(columns))
    return pa.table(columns).select([list(columns)[at] for at in order])


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_random_tables(kind: int, workers: int) -> None:
    key, left_kinds, right_kinds = KINDS[kind]
    for seed in range(6):
        rng = np.random.default_rng([kind, workers, seed])
        sizes = [(1, 1), (0, 5), (64, 63), (1001, 300), (257, 2049), (5, 700)][seed]
        left, right = (
            random_table(rng, rows, key, kinds, name)
            for rows, kinds, name in zip(sizes, (left_kinds, right_kinds), "lr", strict=True)
        )
        check(left, right, workers)


@needs_compiler
@pytest.mark.parametrize("swap", [False, True])
def test_more_rows_than_the_larger_side_has_are_found_in_a_second_try(swap: bool, tried: list[bool]) -> None:
    one = pa.table({"key": np.arange(300) % 20, "a": np.arange(300)})
    other = pa.table({"key": np.arange(200) % 25, "b": np.arange(200)})
    found = check(other, one) if swap else check(one, other)
    assert found.num_rows == 300 * 8
    assert all(tried)


@needs_compiler
def test_a_key_that_marks_free_slots(tried: list[bool]) -> None:
    few, many = np.array([MARK, 1, 2]), np.array([MARK, 2, 2, 3, MARK])
    found = check(pa.table({"key": few, "a": few}), pa.table({"key": many, "b": many}))
    assert found.num_rows == 4
    assert tried == [False]  # by libcudf, and the second time without asking
    found = check(pa.table({"key": few[1:], "a": few[1:]}), pa.table({"key": many, "b": many}))
    assert found.num_rows == 2
    assert tried == [False, True, True]


@needs_compiler
@pytest.mark.parametrize(("times", "done"), [(cuda_join.MOST_EQUAL + 1, True), (cuda_join.MOST_EQUAL + 2, False)])
def test_a_key_that_occurs_too_often_in_the_table(times: int, done: bool, tried: list[bool]) -> None:
    left = pa.table({"key": np.arange(1000), "a": np.arange(1000)})
    right = pa.table({"key": [*range(100), *[7] * (times - 1)], "b": np.arange(99 + times)})
    assert check(left, right).num_rows == 99 + times
    assert set(tried) == {done}


@needs_compiler
def test_a_key_that_occurs_often_on_the_other_side(tried: list[bool]) -> None:
    left = pa.table({"key": [5] * 3000 + [6], "a": np.arange(3001)})
    assert check(left, pa.table({"key": np.arange(100), "b": np.arange(100)})).num_rows == 3001
    assert all(tried)


@needs_compiler
def test_keys_that_collide_are_left_to_libcudf(monkeypatch: pytest.MonkeyPatch, tried: list[bool]) -> None:
    monkeypatch.setattr(cuda_join, "_SOURCE", cuda_join._SOURCE.replace("* PAIR;\n}", "* 0;\n}"))
    for rows, done in ((cuda_join.MOST_STEPS, True), (cuda_join.MOST_STEPS + 1, False)):
        tried.clear()
        table = pa.table({"key": np.arange(rows)})
        assert check(table, table).num_rows == rows
        assert set(tried) == {done}


@needs_compiler
def test_too_little_memory_for_a_table_is_enough_for_libcudf(tried: list[bool]) -> None:
    keys = np.arange(20_000)
    frame = Frame.from_arrow(pa.table({"key": keys, "a": keys}))
    other = Frame.from_arrow(pa.table({"key": keys, "b": keys}))
    engine = CudaEngine(merge_cases.shapes(frame, other, ("key",), 1)[0])
    engine.load(frame, other)
    for room, done in ((1_400_000, True), (700_000, False)):
        engine.begin()
        engine.partition()
        with room_for(room):
            assert engine.join() == 20_000
        assert tried.pop() == done
    engine.begin()
    engine.partition()
    assert engine.join() == 20_000
    assert not tried


@needs_compiler
def test_the_result_takes_the_room_of_the_larger_side_and_the_table_is_given_back() -> None:
    keys = np.arange(20_000)
    frame, other = (Frame.from_arrow(pa.table({"key": keys * step, name: keys})) for step, name in ((1, "a"), (4, "b")))
    engine = CudaEngine(merge_cases.shapes(frame, other, ("key",), 1)[0])
    engine.load(frame, other)
    before = fake_device.Memory.used
    for _ in range(2):
        engine.begin()
        assert fake_device.Memory.used == before
        engine.partition()
        assert engine.join() == 5000
        assert fake_device.Memory.used - before == 20_000 * 24


@needs_compiler
def test_an_iteration_waits_once_more_and_never_uses_the_default_stream() -> None:
    found = []
    for engine in ("cudf", "cuda"):
        fake_device.forget()
        merge_cases.merge(engine, "integers", 1, fake_rapids.copy)
        found.append(fake_device.counts[fake_device.WAIT])
        assert fake_device.counts[fake_device.ON_DEFAULT] == fake_device.counts[fake_device.RELEASE] == 0
    assert found[1] == found[0] + 1


def shape_of(left: pa.Table, right: pa.Table, keys: tuple[str, ...] = ("key",), how: How = How.INNER) -> Any:
    frames = (Frame.from_arrow(merge_cases.canonical(table)) for table in (left, right))
    return merge_cases.shapes(*frames, keys, 1, how)[0]


def test_what_the_kernels_can_join() -> None:
    left, right = pa.table({"key": [1, 2], "a": [1.0, 2.0]}), pa.table({"key": [2, 3], "b": [True, False]})
    assert supports(shape_of(left, right))
    assert not any(supports(shape_of(left, right, how=how)) for how in How if how is not How.INNER)
    for table in (
        pa.table({"key": [1.0, 2.0]}), pa.table({"key": ["x", "y"]}), pa.table({"key": [1, None]}),
        pa.table({"key": [1, 2], "a": ["x", "y"]}), pa.table({"key": [1, 2], "a": [None, 2]}),
        pa.table({"key": [1, 2], "a": pa.array([1, 2], pa.decimal128(20, 2))}),
        pa.table({"key": pa.array([1, 2], pa.decimal128(20, 2))}),
        pa.table({"key": [1, 2], **{f"a{n}": [1, 2] for n in range(engine_module.MOST_COLUMNS)}}),
    ):  # fmt: skip
        assert not supports(shape_of(table, table.select(["key"]))), table.schema
    assert not supports(shape_of(left.append_column("other", [[1, 2]]), right.append_column("other", [[1, 2]]),
                                 ("key", "other")))  # fmt: skip
    assert not supports(shape_of(left, right.set_column(0, "key", pa.array([2, 3], pa.uint64()))))


def load_one() -> None:
    frame = Frame.from_arrow(pa.table({"key": [1, 2, 3]}))
    engine = CudaEngine(replace(merge_cases.shapes(frame, frame, ("key",), 1)[0]))
    engine.load(frame, frame)
    engine.begin()
    engine.partition()
    engine.join()


@needs_compiler
def test_a_source_that_is_not_compiled_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_join, "_SOURCE", "nonsense;")
    with pytest.raises(RunFailed, match=r"^NVRTC cannot compile the kernels of engine cuda for sm_90: [^\n]+$"):
        load_one()


@needs_compiler
def test_a_launch_that_cuda_refuses_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = sys.modules["cuda.bindings.driver"]
    monkeypatch.setattr(driver, "cuLaunchKernel", lambda *_: (CUresult.CUDA_ERROR_INVALID_VALUE,))
    with pytest.raises(RunFailed) as caught:
        load_one()
    assert str(caught.value) == (
        "engine cuda cannot run its kernels: cuLaunchKernel of clear returned CUDA_ERROR_INVALID_VALUE (1)"
    )


def test_real_nvrtc_compiles_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "cuda" or name.startswith("cuda.")]:
        monkeypatch.delitem(sys.modules, name)
    pytest.importorskip("cuda.bindings.nvrtc", reason="the stack in this environment has no NVRTC: set up cu12 or cu13")
    for widths in (Widths(8, (8,), (8,)), Widths(1, (8, 1, 2, 4), (8, 8, 1)), Widths(4, (), ())):
        for arch in ("sm_75", "sm_90"):
            try:
                binary = compile_source(write_source(widths), arch)
            except UsageError as error:
                pytest.skip(str(error))
            assert binary[:4] == b"\x7fELF"
            assert all(name.encode() in binary for name in engine_module.NAMES)
