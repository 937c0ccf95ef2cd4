"""The two distributions, against SciPy and against counting every outcome."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import ModuleType

import pytest

from merge_bench.analysis.statistics import critical_rank, rank_sum_distribution, signed_rank_distribution


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_signed_ranks_are_as_every_sign_pattern_counts_them(n: int) -> None:
    totals = [
        sum(rank for rank, up in enumerate(signs, 1) if up) for signs in itertools.product((False, True), repeat=n)
    ]
    most = n * (n + 1) // 2
    assert signed_rank_distribution(n) == tuple(sum(total <= t for total in totals) / 2**n for t in range(most + 1))


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 4), (3, 5), (5, 3), (4, 4)])
def test_rank_sums_are_as_every_arrangement_counts_them(m: int, n: int) -> None:
    counts = []
    for second in itertools.combinations(range(m + n), n):
        first = [place for place in range(m + n) if place not in second]
        counts.append(sum(b > a for a in first for b in second))
    assert rank_sum_distribution(m, n) == tuple(sum(c <= u for c in counts) / len(counts) for u in range(m * n + 1))


@pytest.mark.parametrize("n", [10, 30, 60])
def test_p_values_are_those_of_scipy(stats: ModuleType, n: int) -> None:
    differences = [(-1) ** (i % 3 == 0) * (i + 1.0) for i in range(n)]
    found = stats.wilcoxon(differences, mode="exact")
    assert 2 * signed_rank_distribution(n)[int(found.statistic)] == pytest.approx(found.pvalue, rel=1e-9)
    one, two = [3.0 * i + 0.5 for i in range(n)], [2.0 * i for i in range(n + 3)]
    test = stats.mannwhitneyu(two, one, method="exact")
    larger = min(test.statistic, n * (n + 3) - test.statistic)
    assert 2 * rank_sum_distribution(n, n + 3)[int(larger)] == pytest.approx(test.pvalue, rel=1e-9)


@pytest.mark.parametrize(("n", "k"), [(5, 0), (6, 1), (7, 3), (8, 4), (9, 6), (10, 9), (15, 26), (20, 53)])
def test_critical_values_are_those_of_the_tables(n: int, k: int) -> None:
    """Wilcoxon's table for a two-sided 5 % gives the largest T that is significant: 0, 2, 3, 5, 8, …, 25, 52."""
    assert critical_rank(signed_rank_distribution(n), 0.05) == k


@pytest.mark.parametrize(("m", "n", "k"), [(3, 3, 0), (4, 4, 1), (5, 5, 3), (6, 6, 6), (8, 10, 18), (10, 10, 24)])
def test_critical_values_of_two_samples_are_those_of_the_tables(m: int, n: int, k: int) -> None:
    assert critical_rank(rank_sum_distribution(m, n), 0.05) == k


@pytest.mark.parametrize(
    "tail", [lambda n, exact: signed_rank_distribution(n, exact), lambda n, exact: rank_sum_distribution(n, n, exact)]
)
def test_many_values_use_a_normal_approximation_that_joins_on(tail: Callable[[int, int], tuple[float, ...]]) -> None:
    exact, near = tail(60, 60), tail(60, 59)
    assert near != exact
    assert near == pytest.approx(exact, abs=2e-3)
    assert critical_rank(near, 0.05) == pytest.approx(critical_rank(exact, 0.05), rel=0.005)
