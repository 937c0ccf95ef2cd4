"""Ranks that hold the others up, on numbers that can be checked by hand."""

from __future__ import annotations

from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.analysis import diagnostics
from merge_bench.analysis.diagnostics import WorkerPhaseSeconds


def test_overloaded_ranks_are_named_with_their_factor() -> None:
    # Means of the others: (100 + 100 + 160 + 100) k / 4 = 115 k for rank 2; (100 + 100 + 400 + 100) k / 4 for rank 3.
    found = diagnostics.find_overloads({0: 100_000, 1: 100_000, 2: 400_000, 3: 160_000, 4: 100_000}, {})
    assert [(o.rank, o.what, o.rows) for o in found] == [(2, "received", 400_000)]
    assert found[0].factor == pytest.approx(400 / 115)


def test_a_rank_is_named_by_what_it_has_most_too_much_of() -> None:
    found = diagnostics.find_overloads({0: 100_000, 1: 120_000}, {0: 20_000, 1: 30_000})
    assert [(o.rank, o.what, o.factor) for o in found] == [(1, "result", 1.5)]


def test_a_twentieth_more_is_no_overload_and_a_little_above_it_is() -> None:
    assert diagnostics.find_overloads({0: 100_000, 1: 100_000, 2: 105_000}, {}) == ()
    assert [o.rank for o in diagnostics.find_overloads({0: 100_000, 1: 100_000, 2: 106_000}, {})] == [2]


def test_chance_is_no_overload() -> None:
    # 20 % more, but √100 = 10 rows are what an even hash scatters by: two of them are nothing.
    assert diagnostics.find_overloads({0: 100, 1: 120}, {}) == ()


@pytest.mark.parametrize("rows", [{}, {0: 100}, {0: 0, 1: 0, 2: 0}])
def test_no_overload_without_a_load_to_compare_with(rows: dict[int, float]) -> None:
    assert diagnostics.find_overloads(rows, rows) == ()


EVEN = WorkerPhaseSeconds(partition=1.0, exchange=1.0, join=1.0)


def test_even_workers_have_no_straggler() -> None:
    assert diagnostics.find_straggler(dict.fromkeys(range(4), EVEN)) is None
    assert diagnostics.find_straggler({0: EVEN}) is None
    assert diagnostics.find_straggler({}) is None


def test_a_slow_join_is_found() -> None:
    found = diagnostics.find_straggler({0: EVEN, 1: EVEN, 2: WorkerPhaseSeconds(1.0, 1.0, 2.5)})
    assert found is not None
    assert (found.rank, found.phase, found.seconds, found.others, found.slowdown_factor) == (2, "join", 2.5, 1.0, 2.5)


def test_who_waits_is_not_the_straggler() -> None:
    """Rank 0 partitions for 2 s instead of 1 s; rank 1 waits that second in its exchange."""
    found = diagnostics.find_straggler({0: WorkerPhaseSeconds(2.0, 1.0, 1.0), 1: WorkerPhaseSeconds(1.0, 2.0, 1.0)})
    assert found is not None
    assert (found.rank, found.phase) == (0, "partition")


def test_a_slow_network_port_is_found() -> None:
    found = diagnostics.find_straggler({0: EVEN, 1: WorkerPhaseSeconds(1.0, 2.0, 1.0), 2: EVEN})
    assert found is not None
    assert (found.rank, found.phase, found.slowdown_factor) == (1, "exchange", 2.0)


@given(st.dictionaries(st.integers(0, 99), st.integers(0, 50).map(float), min_size=2, max_size=30))
def test_the_others_are_all_but_one(values: dict[int, float]) -> None:
    expected = {rank: median([v for other, v in values.items() if other != rank]) for rank in values}
    assert diagnostics.medians_of_other_ranks(values) == expected


def test_overlap_counts_once() -> None:
    """Rank 1 spends longer in its exchange, but beside its partition: it is done when the others are."""
    hidden = WorkerPhaseSeconds(partition=1.0, exchange=1.8, join=1.0, overlap=0.8)
    assert diagnostics.find_straggler({0: EVEN, 1: hidden, 2: EVEN}) is None


def test_a_join_beside_the_exchange_counts_once() -> None:
    """Rank 1 exchanges until its end and joins meanwhile; the others do the same one after the other."""
    beside = WorkerPhaseSeconds(partition=1.0, exchange=1.15, join=1.0, join_overlap=0.15)
    assert diagnostics.find_straggler({0: EVEN, 1: beside, 2: EVEN}) is None


def test_a_little_slower_is_no_straggler() -> None:
    assert diagnostics.find_straggler({0: EVEN, 1: WorkerPhaseSeconds(1.0, 1.0, 1.19), 2: EVEN}) is None
    # Three times as long in the partition, which costs 2 % of a worker's 1.01 s only.
    quick = WorkerPhaseSeconds(0.01, 0.5, 0.5)
    assert diagnostics.find_straggler({0: quick, 1: WorkerPhaseSeconds(0.03, 0.5, 0.5), 2: quick}) is None


def test_a_slow_link_shows_in_pairs_only() -> None:
    rates = {(a, b): 5.0 if 2 in (a, b) else 100.0 for a in range(4) for b in range(4) if a != b}
    found = diagnostics.find_slow_link(rates, dict.fromkeys(range(4), "node0"))
    assert found == diagnostics.SlowLink(2, 5.0, 100.0)
    assert found.slowdown_factor == 20.0


def test_even_links_and_two_ranks_name_nobody() -> None:
    even = {(a, b): 100.0 + a for a in range(4) for b in range(4) if a != b}
    assert diagnostics.find_slow_link(even, {}) is None
    assert diagnostics.find_slow_link({(0, 1): 1.0, (1, 0): 100.0}, {}) is None
    assert diagnostics.find_slow_link({}, {}) is None


@pytest.mark.parametrize("hosts", ["aaab", "aaaabb", "aab"])
def test_a_rank_on_another_host_has_no_slow_link_because_the_network_is_slower_than_memory(hosts: str) -> None:
    where = dict(enumerate(hosts))
    pairs = [(a, b) for a in where for b in where if a != b]
    rates = {(a, b): 100.0 if where[a] == where[b] else 10.0 for a, b in pairs}
    assert diagnostics.find_slow_link(rates, where) is None


def test_a_slow_link_to_other_hosts_is_found_beside_fast_pairs_within_hosts() -> None:
    where = dict(enumerate("aabb"))
    pairs = [(a, b) for a in where for b in where if a != b]
    rates = {(a, b): 100.0 if where[a] == where[b] else 2.0 if 3 in (a, b) else 10.0 for a, b in pairs}
    assert diagnostics.find_slow_link(rates, where) == diagnostics.SlowLink(3, 2.0, 10.0)


def test_a_rank_holds_the_others_up_by_what_it_ends_later() -> None:
    """Rank 2 spends 75 ms in its exchange, 35 of them waiting: it began earlier, and ends 10 ms after the others."""
    late = WorkerPhaseSeconds(40, 30, 20)
    found = diagnostics.find_straggler({0: late, 1: late, 2: WorkerPhaseSeconds(5, 75, 20), 3: late})
    assert found is not None
    assert (found.rank, found.phase, found.seconds, found.cost) == (2, "exchange", 75, 10)


def test_a_rank_costs_what_it_takes_longer_than_the_slowest_of_the_others() -> None:
    """Ranks 2 and 3 are on a slow host: were one of them as fast as ranks 0 and 1, all would wait for the other."""
    slow = WorkerPhaseSeconds(partition=2.0, exchange=1.0, join=1.0)
    found = diagnostics.find_straggler({0: EVEN, 1: EVEN, 2: slow, 3: slow})
    assert found is not None
    assert (found.phase, found.seconds, found.others, found.cost) == ("partition", 2.0, 1.0, 0.0)
    slower = WorkerPhaseSeconds(partition=2.5, exchange=1.0, join=1.0)
    found = diagnostics.find_straggler({0: EVEN, 1: EVEN, 2: slow, 3: slower})
    assert found is not None
    assert (found.rank, found.cost) == (3, 0.5)
