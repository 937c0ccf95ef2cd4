"""How many launches, and when to stop."""

from __future__ import annotations

import math

import pytest

from merge_bench.analysis.statistics import paired_effect, unpaired_effect
from merge_bench.analysis.statistics.verdict import (
    MOST,
    InconclusiveReason,
    Verdict,
    judge_effects,
    launches_needed,
    least_launches_for_significance,
)


@pytest.mark.parametrize(("comparisons", "pairs", "apart"), [(1, 6, 4), (2, 7, 5), (3, 7, 5), (10, 9, 6)])
def test_the_fewest_launches_for_a_significant_outcome(comparisons: int, pairs: int, apart: int) -> None:
    assert least_launches_for_significance(alpha=0.05 / comparisons) == pairs
    assert least_launches_for_significance(alpha=0.05 / comparisons, paired=False) == apart


@pytest.mark.parametrize("comparisons", [1, 2, 5, 10])
def test_with_the_fewest_launches_a_clear_difference_is_found_and_with_one_less_it_is_not(comparisons: int) -> None:
    n, m = (least_launches_for_significance(alpha=0.05 / comparisons, paired=paired) for paired in (True, False))
    for count, apart, clear in ((n, m, Verdict.FASTER), (n - 1, m - 1, Verdict.INCONCLUSIVE)):
        clearly = [0.2 + 0.001 * i for i in range(count)]
        effects = (paired_effect(clearly), unpaired_effect([0.001 * i for i in range(apart)], clearly[:apart]))
        for effect in effects:
            found = judge_effects([effect], threshold=0.02, family_size=comparisons)[0]
            assert found.verdict is clear
            assert found.reason is (None if clear is Verdict.FASTER else InconclusiveReason.UNDERPOWERED)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_test_has_a_level(alpha: float) -> None:
    with pytest.raises(ValueError, match="no test at"):
        least_launches_for_significance(alpha=alpha)


def needed(effect: float, spread: float, *, comparisons: int = 1) -> int | None:
    return launches_needed(
        effect=math.log1p(effect), spread=spread, threshold=math.log1p(0.02), alpha=0.05 / comparisons
    )


def test_what_is_harder_to_see_needs_more_launches() -> None:
    sizes = [needed(effect, 0.05) for effect in (0.30, 0.07, 0.05, 0.03)]
    assert sizes == sorted(sizes, key=lambda n: n or MOST)
    assert len(set(sizes)) == 4
    spreads = [needed(0.05, spread) for spread in (0.03, 0.05, 0.1)]
    assert spreads == sorted(spreads, key=lambda n: n or MOST)
    families = [needed(0.05, 0.05, comparisons=k) or MOST for k in (1, 3, 10)]
    assert families == sorted(families)
    assert families[0] < families[2] < 2 * families[0]


def test_no_number_of_launches_tells_what_lies_at_the_threshold() -> None:
    assert needed(0.02, 0.03) is None
    assert needed(0.0, 0.0) == 7  # all alike: the first number with an interval, and one for the steps of the test
    assert needed(1 / 1.05 - 1, 0.05) == needed(0.05, 0.05)


def test_a_spread_is_not_negative() -> None:
    with pytest.raises(ValueError, match="not negative"):
        launches_needed(effect=0.0, spread=-1.0, threshold=0.02)


def test_an_inconclusive_verdict_says_how_many_more() -> None:
    points = [0.05 + 0.05 * (-1) ** i * (1 + i / 10) for i in range(8)]
    found = judge_effects([paired_effect(points)], threshold=0.02)[0]
    assert found.verdict is Verdict.INCONCLUSIVE
    whole = launches_needed(
        effect=paired_effect(points).estimate, spread=paired_effect(points).spread or 0.0, threshold=math.log1p(0.02)
    )
    assert whole is not None
    assert found.more_launches == whole - 8
