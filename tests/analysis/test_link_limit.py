"""When a measured link limit counts: properties of `exchange_to_limit_ratio`, on rates made up by hypothesis."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.analysis.aggregate import (
    EXCEEDED,
    FASTEST,
    exchange_to_limit_ratio,
    link_limit_of_rounds,
)
from merge_bench.analysis.diagnostics import launches_with_undisturbed_limit
from merge_bench.analysis.statistics import median
from merge_bench.records import schema as s
from merge_bench.records.campaign import Launch

SENT = [1000, 3000]
"""Bytes that each of two workers sends in a round and in an iteration."""
SECONDS = st.floats(1e-4, 10.0)
ROUNDS = st.lists(SECONDS, min_size=1, max_size=60)
FACTOR = st.floats(1.01, 50.0)


def rounds(seconds: list[float]) -> list[list[float]]:
    """Rounds in which each of two workers is in flight for these seconds."""
    return [[each, each] for each in seconds]


def rates(seconds: list[float]) -> list[float]:
    """The rates of exchanges that take these seconds on each worker."""
    return [sum(SENT) / (2 * each) for each in seconds]


def ratio(exchanges: list[float], measured: list[float]) -> float:
    found = exchange_to_limit_ratio(rates(exchanges), SENT, rounds(measured))
    assert found is not None
    return found


@given(st.lists(SECONDS, min_size=FASTEST, max_size=60))
def test_exchanges_like_the_rounds_reach_the_limit_and_do_not_exceed_it(seconds: list[float]) -> None:
    assert ratio(seconds, seconds) == pytest.approx(1.0)
    assert ratio(seconds * 7, seconds) <= 1.0 + 1e-9  # more iterations than rounds exceed nothing by their number


@given(ROUNDS, ROUNDS, FACTOR)
def test_slower_exchanges_never_exceed_more_and_slower_rounds_never_less(
    exchanges: list[float], measured: list[float], factor: float
) -> None:
    slower = [factor * each for each in exchanges]
    assert ratio(slower, measured) == pytest.approx(ratio(exchanges, measured) / factor)
    assert ratio(exchanges, [factor * each for each in measured]) == pytest.approx(factor * ratio(exchanges, measured))
    one_slower = [factor * measured[0], *measured[1:]]
    assert ratio(exchanges, one_slower) >= ratio(exchanges, measured) * (1 - 1e-9)


@given(ROUNDS, ROUNDS)
def test_the_order_does_not_matter(exchanges: list[float], measured: list[float]) -> None:
    first = ratio(exchanges, measured)
    assert ratio(sorted(exchanges), sorted(measured, reverse=True)) == pytest.approx(first)


@given(st.lists(SECONDS, min_size=FASTEST, max_size=60), st.lists(SECONDS, min_size=1, max_size=60))
def test_measuring_again_never_lowers_a_limit(measured: list[float], again: list[float]) -> None:
    before, after = (link_limit_of_rounds(SENT, rounds(each)) for each in (measured, measured + again))
    assert before is not None
    assert after is not None
    assert after >= before


def launch(exchanges: list[float], measured: list[float]) -> Launch:
    """A launch with these exchanges, and the rounds of its measurement of the limit."""
    iterations = tuple(
        s.IterationLine(
            launch=0,
            index=index,
            wall_seconds=1.0,
            workers=[
                s.WorkerIteration(
                    rank=rank,
                    seconds=1.0,
                    sent_bytes=s.FrameCounts(left=size, right=0),
                    flight_seconds=s.TransferSeconds(left=seconds, right=0.0, union=seconds),
                )
                for rank, size in enumerate(SENT)
            ],
        )
        for index, seconds in enumerate(exchanges)
    )
    limit = link_limit_of_rounds(SENT, rounds(measured))
    line = s.LinkLimitLine(launch=0, bytes=SENT, rounds=rounds(measured), limit_bytes_per_second=limit)
    return Launch(0, iterations=iterations, link=line)


@given(ROUNDS, ROUNDS)
def test_no_share_of_a_limit_that_counts_is_more_than_105_percent(
    exchanges: list[float], measured: list[float]
) -> None:
    limit = link_limit_of_rounds(SENT, rounds(measured))
    assert limit is not None
    if launches_with_undisturbed_limit([launch(exchanges, measured)]):
        assert median(rates(exchanges)) <= EXCEEDED * limit * (1 + 1e-9)
        over = sum(rate > EXCEEDED * limit * (1 + 1e-9) for rate in rates(exchanges))
        assert over <= 3 * len(exchanges) / len(measured) + 1
    else:
        assert max(rates(exchanges)) > EXCEEDED * limit * (1 - 1e-9)


@given(st.lists(st.floats(0.9, 1.0), min_size=FASTEST, max_size=40), st.floats(1.2, 20.0))
def test_a_limit_of_rounds_that_were_all_disturbed_does_not_count(usual: list[float], factor: float) -> None:
    """Exchanges like the rounds count; if every round took 1.2 times as long or longer, the limit does not."""
    assert launches_with_undisturbed_limit([launch(usual, usual)])
    assert not launches_with_undisturbed_limit([launch(usual, [factor * each for each in usual])])


@given(
    st.lists(st.floats(0.9, 1.0), min_size=FASTEST, max_size=40), st.lists(st.floats(1.0, 20.0), min_size=1, max_size=9)
)
def test_a_limit_counts_if_enough_rounds_were_not_disturbed(usual: list[float], disturbed: list[float]) -> None:
    assert launches_with_undisturbed_limit([launch(usual[:FASTEST], usual[:FASTEST] + disturbed)]) or (
        max(rates(usual[:FASTEST])) > EXCEEDED * median(rates(usual[:FASTEST]))
    )
