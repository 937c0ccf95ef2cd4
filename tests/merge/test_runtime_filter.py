"""The runtime filter: what it leaves out has no match, and what has one stays."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.errors import UsageError
from merge_bench.merge import runtime_filter
from merge_bench.merge.engines import engine_descriptions
from merge_bench.merge.engines.base import AllGather, Engine, FilteringEngine, JoinKind, JoinShape, Side
from merge_bench.merge.engines.cpu_base import HostEngine
from merge_bench.merge.frame import BLOCK, Bytes, Frame
from merge_bench.merge.memory import BufferPool
from merge_bench.merge.runtime_filter import RuntimeFilter
from tests.helpers.examples import examples
from tests.helpers.frames import KINDS, multiset, random_table, seeds
from tests.helpers.merge_cases import chunks
from tests.helpers.plans import plan_of
from tests.merge.in_process import engines_of, result, run_once, simulate

ENGINES = [engine.name for engine in engine_descriptions() if not engine.device_memory]


class Ranks:
    """Shares bytes between threads, of which each stands for a rank."""

    def __init__(self, workers: int) -> None:
        self._given: list[Bytes] = [np.empty(0, np.uint8)] * workers
        self._met = threading.Barrier(workers, timeout=60)
        self.shared: list[int] = []

    def share_of(self, rank: int) -> AllGather:
        def share(own: Bytes) -> list[Bytes]:
            self._given[rank] = own.copy()
            self._met.wait()
            everyones = list(self._given)
            if rank == 0:
                self.shared.append(own.nbytes)
            assert {each.nbytes for each in everyones} == {own.nbytes}
            self._met.wait()
            return everyones

        return share


def filter_all(engines: Sequence[Engine]) -> None:
    ranks = Ranks(len(engines))
    with ThreadPoolExecutor(len(engines)) as pool:
        for each in [pool.submit(filter_one, one, ranks.share_of(rank)) for rank, one in enumerate(engines)]:
            each.result()


def filter_one(engine: Engine, share: AllGather) -> None:
    assert isinstance(engine, FilteringEngine)
    engine.filter_rows(share)


def kept(
    lefts: Sequence[pa.Table],
    rights: Sequence[pa.Table],
    keys: tuple[str, ...] = ("key",),
    threads: int = 1,
    kind: type[RuntimeFilter] = RuntimeFilter,
) -> tuple[list[dict[Side, Frame]], list[int]]:
    """What each rank keeps of its chunks, and the bytes of each message that rank 0 shared."""
    frames = [
        {Side.LEFT: Frame.from_arrow(a), Side.RIGHT: Frame.from_arrow(b)} for a, b in zip(lefts, rights, strict=True)
    ]
    ranks, fields = Ranks(len(frames)), {side: frames[0][side].fields for side in Side}
    rows = sum(each.rows for frame in frames for each in frame.values())

    def one(rank: int) -> dict[Side, Frame]:
        shape = JoinShape(fields[Side.LEFT], fields[Side.RIGHT], keys, len(frames), rank, rows, threads)
        with ThreadPoolExecutor(threads) as inner:
            return kind(shape, BufferPool()).filter_chunks(
                frames[rank], ranks.share_of(rank), inner if threads > 1 else None
            )

    with ThreadPoolExecutor(len(frames)) as pool:
        return list(pool.map(one, range(len(frames)))), ranks.shared


def table(keys: Any, payload: str = "a") -> pa.Table:
    return pa.table({"key": keys, payload: np.arange(len(keys))})


@pytest.mark.slow
@given(
    kind=st.sampled_from(sorted(KINDS)),
    more=st.sampled_from([None, "int64", "uint8"]),
    seed=seeds,
    left_rows=st.integers(0, 60),
    right_rows=st.integers(0, 900),
    workers=st.integers(1, 4),
    nulls=st.booleans(),
    distinct=st.integers(1, 400),
    engine=st.sampled_from(["native", "polars"]),
    how=st.sampled_from([how for how in JoinKind if how is not JoinKind.OUTER]),
    swapped=st.booleans(),
)
@examples(60)
def test_the_result_is_that_of_all_rows(
    kind: str,
    more: str | None,
    seed: int,
    left_rows: int,
    right_rows: int,
    workers: int,
    nulls: bool,
    distinct: int,
    engine: str,
    how: JoinKind,
    swapped: bool,
) -> None:
    """Keys of every type, in one or two columns, with nulls: few rows on one side, so that both steps are taken."""
    kinds = [kind] if more is None else [kind, more]
    keys = tuple(f"c{number}" for number in range(len(kinds)))
    some = random_table(left_rows + right_rows, kinds, seed, nulls=nulls, distinct=distinct)
    left = some.slice(0, left_rows).append_column("a", pa.array(np.arange(left_rows)))
    right = some.slice(left_rows).append_column("b", pa.array(np.arange(right_rows)))
    left, right = (right, left) if swapped else (left, right)
    sides = chunks(left, workers), chunks(right, workers)
    engines = engines_of(engine, *sides, keys, how=how)
    run_once(engines, filter_all)
    whole = engines_of(engine, *sides, keys, how=how)
    run_once(whole)
    assert rows_in(engines) == rows_in(whole)


def rows_in(engines: Sequence[Engine]) -> Counter[tuple[Any, ...]]:
    """Rows of the result, whose pieces may differ in the order of columns and in the unit of times (Polars has one)."""
    found = Counter[tuple[Any, ...]]()
    for piece in itertools.chain.from_iterable(each.result_tables() for each in engines):
        found.update(multiset(piece.select(sorted(piece.column_names))))
    return found


@pytest.mark.parametrize("how", [JoinKind.LEFT, JoinKind.RIGHT, JoinKind.ANTI, JoinKind.SEMI])
def test_rows_without_a_match_stay_on_the_side_that_keeps_them(how: JoinKind) -> None:
    rng = np.random.default_rng(4)
    few, many = table(np.arange(500)), table(rng.integers(-200_000, 200_000, 30_000), "b")
    left, right = (many, few) if how is JoinKind.RIGHT else (few, many)
    engines = engines_of("native", chunks(left, 3), chunks(right, 3), ("key",), how=how)
    run_once(engines, filter_all)
    received = [each.received_row_counts() for each in engines]
    dropped, other = ("left", "right") if how is JoinKind.RIGHT else ("right", "left")
    assert sum(each[dropped] for each in received) < 300
    assert sum(each[other] for each in received) == 500 or how is JoinKind.SEMI
    kept_many = engines_of("native", chunks(right, 3), chunks(left, 3), ("key",), how=how)
    run_once(kept_many, filter_all)
    rows = sum(each.received_row_counts()[other] for each in kept_many)
    assert rows < 300 if how is JoinKind.SEMI else rows == 30_000


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_on_cpus(engine: str) -> None:
    """Three iterations, because the chunks that were loaded have to be filtered anew in each."""
    rng = np.random.default_rng(3)
    left, right = table(rng.integers(0, 500, 4000)), table(rng.integers(-200_000, 200_000, 30_000), "b")
    answer = multiset(simulate(engine, chunks(left, 3), chunks(right, 3), ("key",)))
    engines = engines_of(engine, chunks(left, 3), chunks(right, 3), ("key",))
    for _ in range(3):
        run_once(engines, filter_all)
        assert multiset(result(engines)) == answer
        received = [each.received_row_counts() for each in engines]
        assert sum(each["right"] for each in received) < 300
        assert sum(each["left"] for each in received) < 1000


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", ["int8", "uint16", "int32", "uint32", "int64", "timestamp[us]", "duration[ms]"])
def test_the_ends_stay_and_what_lies_beyond_goes(kind: str, threads: int) -> None:
    """Only the step of the least and greatest key: as many keys on both sides, so that there is no Bloom filter."""
    rows, bits = 3 * BLOCK + 5, KINDS[kind].bit_width
    signed = not kind.startswith("u")
    least, greatest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    low, high = (-30, 30) if signed else (100, 120)
    storage = np.dtype(f"{'i' if signed else 'u'}{bits // 8}")
    lefts, rights = np.full(rows, least, storage), np.full(rows, greatest, storage)
    lefts[::3], rights[::3] = low + 1, high - 1  # two thirds of each side lie beyond the other side's
    lefts[0], rights[0] = high, low
    (one,), shared = kept(
        [table(pa.array(lefts).view(KINDS[kind]))], [table(pa.array(rights).view(KINDS[kind]), "b")], threads=threads
    )
    assert one[Side.LEFT].columns[0].values.view(storage).tolist() == lefts[::3].tolist()
    assert one[Side.LEFT].columns[1].values.tolist() == list(range(0, rows, 3))
    assert one[Side.RIGHT].columns[0].values.view(storage).tolist() == rights[::3].tolist()
    assert len(shared) == 2  # the ends, and the numbers of rows


@pytest.mark.parametrize("threads", [1, 3])
def test_keys_that_are_known_stay_and_others_go(threads: int) -> None:
    """Two ranks: what one of them knows lets rows of the other stay."""
    few = [table(np.arange(0, 1 << 20, 1 << 12)), table(np.arange(5, 1 << 20, 1 << 12))]
    many = [table(np.arange(1 << 20), "b"), table(np.arange(1 << 20)[::-1].copy(), "b")]
    (first, second), shared = kept(few, many, threads=threads)
    wanted = {*few[0]["key"].to_pylist(), *few[1]["key"].to_pylist()}
    for rank in (first, second):
        found = rank[Side.RIGHT].columns[0].values.tolist()
        assert wanted <= set(found)
        assert len(found) < 0.03 * (1 << 20)
        assert rank[Side.LEFT].rows == 256
    assert shared == [32, 16, 1024]  # 512 keys of 16 bits


def test_a_frame_of_which_more_than_half_stays_is_not_copied() -> None:
    ((only,), _) = kept([table(np.arange(1000))], [table(np.arange(400, 1400), "b")])
    assert [only[side].rows for side in Side] == [1000, 1000]
    ((only,), _) = kept([table(np.arange(1000))], [table(np.arange(501, 1501), "b")])
    assert [only[side].rows for side in Side] == [499, 499]
    # Most keys are within the limits, but those beyond are far away: with keys spread evenly, hardly any would remain.
    far = np.where(np.arange(1000) < 600, np.arange(1000), 1 << 40)
    ((only,), _) = kept([table(far)], [table(np.arange(1000), "b")])
    assert [only[side].rows for side in Side] == [1000, 1000]


@pytest.mark.parametrize("rows", [0, 1])
def test_ranks_without_rows(rows: int) -> None:
    """The least of nothing is no limit for the others."""
    (first, second), _ = kept([table(np.arange(0)), table(np.arange(rows))], [table(np.arange(9), "b")] * 2)
    assert [each[Side.RIGHT].rows for each in (first, second)] == [rows, rows]


def test_too_many_keys_for_the_cache() -> None:
    class SmallCache(RuntimeFilter):
        most_bytes = 1024

    few, many = np.arange(0, 64 * 513, 64), np.arange(64 * 513)
    for rows, messages in ((512, 3), (513, 2)):
        _, shared = kept([table(few[:rows])], [table(many[: 64 * rows], "b")], kind=SmallCache)
        assert len(shared) == messages


def test_a_filter_that_is_larger_than_what_it_saves_is_not_sent() -> None:
    """36 keys, a filter of 128 bytes that each of 9 ranks sends to 8 others: as much as 64 rows of 16 bytes."""
    few = [table(np.arange(4) * 9 + rank) for rank in range(9)]
    for rows, messages in ((63, 2), (64, 3)):
        _, shared = kept(few, [table(np.arange(rows), "b")] * 9)
        assert len(shared) == messages


def test_more_rows_than_their_numbers_reach_stay() -> None:
    class ShortNumbers(RuntimeFilter):
        most_rows = 999

    for rows, left in ((999, 9), (1000, 1000)):
        ((only,), _) = kept([table(np.arange(rows))], [table(np.arange(9), "b")], kind=ShortNumbers)
        assert only[Side.LEFT].rows == left


def lefts_of(engine: Engine) -> Frame:
    """The left rows that the engine would partition now."""
    assert isinstance(engine, HostEngine)
    return engine._chunks[Side.LEFT]


def test_memory_is_made_before_the_iteration_and_used_again() -> None:
    """In the second iteration and after, what remains lies where it lay in the iteration before."""
    left, right = table(np.arange(50_000)), table(np.arange(49_000, 900_000, 17), "b")
    engines = engines_of("native", chunks(left, 2), chunks(right, 2), ("key",))
    places = []
    for _ in range(4):
        for each in engines:
            each.begin_iteration()
        frames = [lefts_of(each) for each in engines]
        assert all(frame.rows == 25_000 for frame in frames)
        filter_all(engines)
        frames = [lefts_of(each) for each in engines]
        places.append([column.values.ctypes.data for frame in frames for column in frame.columns])
        assert all(frame.rows < 1000 for frame in frames)
    assert places[1] == places[2] == places[3]


def test_few_other_keys_pass_the_bloom_filter() -> None:
    """At its fullest: a key of 16 bits."""
    rng = np.random.default_rng(7)
    hashes = rng.integers(0, 2**64, 1 << 17, np.uint64)
    words = np.zeros((1 << 17) * runtime_filter.KEY_BITS // 64, np.uint64)
    runtime_filter.insert_into_bloom_filter(hashes, words)
    marks = np.empty(1 << 17, np.uint8)
    runtime_filter.mark_bloom_filter_members(hashes, words, marks)
    assert marks.all()
    runtime_filter.mark_bloom_filter_members(rng.integers(0, 2**64, 1 << 17, np.uint64), words, marks)
    assert 0 < marks.mean() < 0.025


def test_the_option() -> None:
    def filters(**options: Any) -> bool:
        return plan_of(chunk=1000, workers=2, **options).runtime_filter

    assert not filters()
    assert filters(runtime_filter="on")
    with pytest.raises(UsageError, match="--exchange dask has no runtime filter"):
        filters(runtime_filter="on", exchange="dask")
    with pytest.raises(UsageError, match="--engine cudf has no runtime filter"):
        filters(runtime_filter="on", engine="cudf")
