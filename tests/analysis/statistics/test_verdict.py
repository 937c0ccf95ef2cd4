"""Verdicts, Holm's steps and the noise floor."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.analysis.statistics import EffectEstimate, paired_effect, unpaired_effect
from merge_bench.analysis.statistics.verdict import (
    InconclusiveReason,
    Verdict,
    holm_adjusted_p_values,
    holm_significance_levels,
    judge_effects,
    noise_floor,
)

P_VALUES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12)
EFFECTS = st.lists(
    st.lists(st.integers(-120, 120), min_size=1, max_size=12).map(lambda ints: paired_effect([i / 1000 for i in ints])),
    min_size=1,
    max_size=5,
)
THRESHOLDS = st.sampled_from([0.0, 0.01, 0.02, 0.05])
NEAR = (-0.004, -0.003, -0.002, -0.001, 0.0, 0.001, 0.002, 0.003, 0.004)


def around(ratio: float, scale: float = 1.0) -> EffectEstimate:
    """Nine blocks close to `ratio`."""
    return paired_effect([math.log(ratio) + scale * noise for noise in NEAR])


def one(effect: EffectEstimate, threshold: float = 0.02) -> Verdict:
    return judge_effects([effect], threshold=threshold)[0].verdict


@pytest.mark.parametrize(
    ("ratio", "scale", "verdict"),
    [
        (1.05, 1, Verdict.FASTER),
        (1 / 1.05, 1, Verdict.SLOWER),
        (1.0, 1, Verdict.EQUIVALENT),
        (1.01, 1, Verdict.EQUIVALENT),  # surely better, and by too little to matter
        (1.019, 1, Verdict.INCONCLUSIVE),  # better, by less or more than the threshold
        (1.05, 40, Verdict.INCONCLUSIVE),  # far too noisy
        (1.0, 40, Verdict.INCONCLUSIVE),
    ],
)
def test_what_the_interval_says(ratio: float, scale: float, verdict: Verdict) -> None:
    found = judge_effects([around(ratio, scale)], threshold=0.02)[0]
    assert found.verdict is verdict
    assert found.reason is (InconclusiveReason.WIDE if verdict is Verdict.INCONCLUSIVE else None)
    assert found.interval == around(ratio, scale).interval(0.05)


@pytest.mark.parametrize("ratio", [1.0, 1.5, 0.5])
@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_few_launches_are_underpowered_and_never_no_difference(ratio: float, blocks: int) -> None:
    found = judge_effects([paired_effect([math.log(ratio)] * blocks)], threshold=0.02)[0]
    assert (found.verdict, found.reason, found.interval) == (
        Verdict.INCONCLUSIVE,
        InconclusiveReason.UNDERPOWERED,
        None,
    )
    assert found.more_launches is not None
    assert found.more_launches >= 6 - blocks


@given(EFFECTS, THRESHOLDS)
def test_a_verdict_is_what_its_interval_shows_and_what_holm_finds(effects: list[EffectEstimate], t: float) -> None:
    for effect, found in zip(effects, judge_effects(effects, threshold=t), strict=True):
        limit, ratio = math.log1p(t), effect.estimate
        if abs(ratio) < limit:
            assert found.verdict not in (Verdict.FASTER, Verdict.SLOWER)
            assert found.alpha == 0.05 / len(effects)
        elif found.verdict is not Verdict.EQUIVALENT:
            assert (found.verdict in (Verdict.FASTER, Verdict.SLOWER)) == (found.p_holm <= 0.05 * (1 + 1e-12))
        if found.interval is None:
            assert found.reason is InconclusiveReason.UNDERPOWERED
            continue
        low, high = found.interval
        inside = -limit <= low and high <= limit
        assert (found.verdict is Verdict.EQUIVALENT) == inside
        assert (found.verdict is Verdict.FASTER) == (not inside and low > 0 and ratio >= limit)
        assert (found.verdict is Verdict.SLOWER) == (not inside and high < 0 and ratio <= -limit)
        assert (
            (found.more_launches is None or found.more_launches >= 1) if found.reason else found.more_launches is None
        )


@given(EFFECTS, THRESHOLDS)
def test_slower_is_faster_with_the_places_changed(effects: list[EffectEstimate], t: float) -> None:
    mirror = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
    found = judge_effects(effects, threshold=t)
    changed = judge_effects([paired_effect([-x for x in effect.points]) for effect in effects], threshold=t)
    assert [each.verdict for each in changed] == [mirror.get(each.verdict, each.verdict) for each in found]


def test_holm_on_a_worked_example() -> None:
    # Ascending: 0.01 · 4, 0.02 · 3, 0.03 · 2 → not below the one before, 0.20 · 1.
    assert holm_adjusted_p_values([0.03, 0.01, 0.20, 0.02]) == pytest.approx((0.06, 0.04, 0.20, 0.06))
    # 0.01 ≤ 0.05 ÷ 4; 0.02 > 0.05 ÷ 3, where it stops.
    assert holm_significance_levels([0.03, 0.01, 0.20, 0.02]) == pytest.approx((0.05 / 3, 0.05 / 4, 0.05 / 3, 0.05 / 3))
    # Equal ones take the first step of theirs together.
    assert holm_significance_levels([0.01, 0.02, 0.01, 0.02]) == pytest.approx((0.05 / 4, 0.05 / 2, 0.05 / 4, 0.05 / 2))
    assert holm_adjusted_p_values([0.01], family_size=5) == pytest.approx((0.05,))
    assert holm_adjusted_p_values([]) == holm_significance_levels([]) == judge_effects([], threshold=0.02) == ()


@given(P_VALUES)
def test_adjusted_p_and_levels_reject_the_same(p_values: list[float]) -> None:
    rejected = [p <= level for p, level in zip(p_values, holm_significance_levels(p_values), strict=True)]
    for p, adjusted, out in zip(p_values, holm_adjusted_p_values(p_values), rejected, strict=True):
        if abs(adjusted - 0.05) > 1e-9:
            assert (adjusted <= 0.05) == out
        assert p <= adjusted <= min(1.0, len(p_values) * p + 1e-12)


def test_a_family_has_room_for_its_comparisons() -> None:
    with pytest.raises(ValueError, match="a family of 1 has no 2 comparisons"):
        holm_adjusted_p_values([0.1, 0.2], family_size=1)


def test_more_candidates_need_stronger_evidence() -> None:
    six = paired_effect([0.05, 0.06, 0.07, 0.05, 0.06, 0.08])
    assert one(six) is Verdict.FASTER
    found = judge_effects([six, six], threshold=0.02)
    assert {each.reason for each in found} == {InconclusiveReason.UNDERPOWERED}
    assert [each.more_launches for each in found] == [2, 2]  # 2 ÷ 2⁷ ≤ 0.05 ÷ 2, and one for good measure


def test_a_planned_comparison_without_numbers_counts() -> None:
    six = paired_effect([0.05, 0.06, 0.07, 0.05, 0.06, 0.08])
    assert judge_effects([six], threshold=0.02, family_size=2)[0].verdict is Verdict.INCONCLUSIVE


def test_the_noise_floor_is_the_threshold_at_which_the_same_is_equivalent() -> None:
    apart = unpaired_effect([0.0, 0.01, 0.02, 0.015], [0.012, 0.018, 0.002, 0.0])
    for effect in (around(1.004), around(0.99, 3.0), apart):
        floor = noise_floor(effect)
        assert one(effect, floor * (1 + 1e-9)) is Verdict.EQUIVALENT
        assert one(effect, floor * (1 - 1e-6)) is not Verdict.EQUIVALENT


def test_the_noise_floor_of_few_launches_is_the_largest_difference_seen() -> None:
    assert noise_floor(paired_effect([0.01, -0.03, 0.02])) == pytest.approx(math.expm1(0.03))


def with_floor(effect: EffectEstimate, floor: float | None) -> tuple[Verdict, InconclusiveReason | None, int | None]:
    found = judge_effects([effect], threshold=0.02, noise_floors=[floor])[0]
    return found.verdict, found.reason, found.more_launches


@pytest.mark.parametrize("floor", [None, 0.0, 0.01, 0.03])
def test_a_noise_floor_below_the_difference_changes_nothing(floor: float | None) -> None:
    assert with_floor(around(1.05), floor) == (Verdict.FASTER, None, None)
    assert with_floor(around(1.0), floor) == (Verdict.EQUIVALENT, None, None)


@pytest.mark.parametrize("ratio", [1.05, 1 / 1.05])
def test_a_difference_within_the_noise_is_none_and_no_equivalence(ratio: float) -> None:
    # The floor of 8 % is to come down to 5 %: 9 · (ln 1.08 ÷ ln 1.05)² = 22.4 launches.
    assert with_floor(around(ratio), 0.08) == (Verdict.INCONCLUSIVE, InconclusiveReason.NOISE, 23 - 9)
    assert with_floor(around(ratio), 5.0) == (Verdict.INCONCLUSIVE, InconclusiveReason.NOISE, None)


def test_noise_makes_nothing_equivalent() -> None:
    assert with_floor(around(1.0, 10), 0.5)[:2] == (Verdict.INCONCLUSIVE, InconclusiveReason.WIDE)
