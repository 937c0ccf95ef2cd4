"""Which way of writing parcels is chosen: the fastest of each processor, measured once and then known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from merge_bench.campaign.measure_launch import cache_write_times, choose_parcel_writes, read_cached_write_times
from merge_bench.host.description import Hardware
from merge_bench.merge import worker
from merge_bench.merge.partition import CacheLineParcelWriter, PlainParcelWriter
from merge_bench.merge.plan import Plan
from merge_bench.merge.workload import SyntheticSpec
from merge_bench.records.schema import Stores, Worker
from tests.helpers.plans import plan_of_two

PLAN = replace(plan_of_two(), workers=3)
SLOW_LINES, FAST_LINES = {"plain": 3.0, "lines": 4.0}, {"plain": 9.0, "lines": 5.0}


class Workers:
    """Calls to workers, each of which measures what it is given."""

    def __init__(self, *measured: dict[str, float]) -> None:
        self.measured, self.asked, self.used, self.streams = measured, 0, list[str](), 0
        self.l2: int | None = None

    def run_on_all(self, step: Any) -> list[dict[str, float]]:
        assert step is worker.measure_partition_ns_per_row
        self.asked += 1
        return list(self.measured)

    def submit(self, step: Any, each: list[tuple[str, int, int | None]]) -> list[Any]:
        assert step is worker.use_parcel_writer
        self.used = [way for way, _, _ in each]
        ((self.streams, self.l2),) = {(streams, l2) for _, streams, l2 in each}
        return []

    def wait_for_results(self, submitted: list[Any]) -> list[Any]:
        return submitted


def choose(
    workers: Workers,
    *models: str,
    plan: Plan = PLAN,
    cpu_id: str | None = None,
    l2: Mapping[str, int] | None = None,
    code: str | None = None,
) -> list[Stores | None]:
    described = [
        Worker(
            rank=rank,
            host=model,
            pid=1,
            name="w",
            hardware=Hardware(
                cpu_model=model, cpu_id=cpu_id, cores=2, cache_bytes=1 << 20, l2_bytes=(l2 or {}).get(model)
            ),
        )
        for rank, model in enumerate(models)
    ]
    session: Any = SimpleNamespace(plan=plan, workers=workers, descriptions=described)
    choose_parcel_writes(session, code)
    chosen = [each.stores for each in session.descriptions]
    assert workers.used == [each.way if each else "plain" for each in chosen]
    return chosen


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "merge_bench" / "stores.json"


def ways(chosen: list[Stores | None]) -> list[tuple[str, str] | None]:
    return [each and (each.way, each.because) for each in chosen]


def test_two_processors_of_one_name_are_told_apart() -> None:
    """A virtual machine's processor is often called `Intel(R) Xeon(R) Processor` and no more."""
    fast, slow = Workers(FAST_LINES), Workers(SLOW_LINES)
    assert ways(choose(fast, "Xeon", cpu_id="GenuineIntel-6-207-2")) == [("lines", "measured")]
    assert ways(choose(slow, "Xeon", cpu_id="GenuineIntel-6-85-7")) == [("plain", "measured")]
    assert ways(choose(Workers(), "Xeon", cpu_id="GenuineIntel-6-207-2")) == [("lines", "known")]


def test_each_processor_has_its_own_and_a_second_launch_measures_nothing() -> None:
    workers = Workers(SLOW_LINES, FAST_LINES, SLOW_LINES)
    first = choose(workers, "amd", "intel", "amd")
    assert ways(first) == [("plain", "measured"), ("lines", "measured"), ("plain", "measured")]
    assert first[1] is not None
    assert first[1].nanoseconds == FAST_LINES
    again = choose(workers, "amd", "intel", "amd")
    assert ways(again) == [("plain", "known"), ("lines", "known"), ("plain", "known")]
    assert workers.asked == 1


def test_workers_of_one_host_use_one_way() -> None:
    """The median over them decides: one that was disturbed does not."""
    chosen = choose(Workers(FAST_LINES, {"plain": 5.0, "lines": 50.0}, FAST_LINES), "intel", "intel", "intel")
    assert ways(chosen) == [("lines", "measured")] * 3


def test_all_workers_split_by_the_same_buckets_more_of_them_where_all_write_lines() -> None:
    """A worker without left rows chooses nothing, writes plainly, and may have right rows."""
    lines, mixed, without_rows = Workers(*[FAST_LINES] * 3), Workers(SLOW_LINES, *[FAST_LINES] * 2), Workers({}, {}, {})
    one_without = Workers(FAST_LINES, FAST_LINES, {})
    choose(lines, "a", "a", "a")
    choose(mixed, "b", "c", "c")
    choose(without_rows, "d", "d", "d")
    choose(one_without, "e", "e", "f")
    assert lines.streams == CacheLineParcelWriter.most_total_buckets > PlainParcelWriter.most_total_buckets
    assert {each.streams for each in (mixed, without_rows, one_without)} == {PlainParcelWriter.most_total_buckets}


def test_all_workers_split_as_suits_the_smallest_l2_cache_if_all_are_known() -> None:
    for caches, expected in (({"a": 1 << 20, "b": 2 << 20}, 1 << 20), ({"a": 1 << 20}, None), ({}, None)):
        workers = Workers(FAST_LINES, FAST_LINES)
        choose(workers, "a", "b", l2=caches)
        assert workers.l2 == expected


def test_a_small_difference_is_measured_again() -> None:
    workers = Workers(*[{"plain": 5.0, "lines": 4.9}] * 3)
    for _ in range(2):
        assert ways(choose(workers, "a", "a", "a")) == [("lines", "measured")] * 3
    assert workers.asked == 2


@pytest.mark.parametrize("changed", [{"rows": 200_000}, {"payload_columns": 9}])
def test_another_problem_is_measured_anew(changed: dict[str, int]) -> None:
    workers = Workers(FAST_LINES, FAST_LINES, FAST_LINES)
    choose(workers, "a", "a", "a")
    other = Plan(**{**vars(PLAN), "workload": SyntheticSpec(**{**vars(PLAN.workload), **changed})})
    assert ways(choose(workers, "a", "a", "a", plan=other)) == [("lines", "measured")] * 3
    assert workers.asked == 2


def test_other_code_is_measured_anew() -> None:
    workers = Workers(FAST_LINES, FAST_LINES, FAST_LINES)
    for code, asked in ((None, 1), ("newer", 2), ("newer", 2)):
        choose(workers, "a", "a", "a", code=code)
        assert workers.asked == asked


@pytest.mark.parametrize("way", ["plain", "lines"])
def test_what_is_asked_for_is_used_and_not_measured(way: str, cache: Path) -> None:
    workers = Workers()
    chosen = choose(workers, "a", "a", "a", plan=Plan(**{**vars(PLAN), "stores": way}))
    assert ways(chosen) == [(way, "asked for")] * 3
    assert workers.asked == 0
    assert not cache.exists()


def test_an_engine_without_a_choice_gets_none() -> None:
    assert choose(Workers({}, {}, {}), "a", "a", "a") == [None] * 3


def test_a_worker_without_rows_takes_the_way_of_the_others() -> None:
    assert ways(choose(Workers(FAST_LINES, {}, FAST_LINES), "a", "a", "a")) == [("lines", "measured")] * 3


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"a": 1}', '{"a": {"plain": 1.0}}', '{"a": {"plain": "x"}}'])
def test_a_damaged_cache_is_measured_anew(damage: str, cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_text(damage)
    assert read_cached_write_times(cache) == {}
    workers = Workers(FAST_LINES, FAST_LINES, FAST_LINES)
    assert ways(choose(workers, "a", "a", "a")) == [("lines", "measured")] * 3
    assert len(read_cached_write_times(cache)) == 1


def test_a_user_without_a_home_measures_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "~")  # `Path.home` then finds none
    workers = Workers(FAST_LINES, FAST_LINES, FAST_LINES)
    for _ in range(2):
        assert ways(choose(workers, "a", "a", "a")) == [("lines", "measured")] * 3
    assert workers.asked == 2


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache_write_times(tmp_path / "file" / "stores.json", {"a": FAST_LINES})


def test_the_oldest_go_when_the_cache_is_full(cache: Path) -> None:
    for key in "abc":
        cache_write_times(cache, {key: FAST_LINES}, most_kept=2)
    assert list(read_cached_write_times(cache)) == ["b", "c"]
    assert [file.name for file in cache.parent.iterdir()] == [cache.name]
