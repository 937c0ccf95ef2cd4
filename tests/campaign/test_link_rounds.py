"""How often the link measurement is repeated."""

from __future__ import annotations

import pytest

from merge_bench.campaign.measure_launch import link_rounds_to_measure


@pytest.mark.parametrize(
    ("least", "seconds", "rounds"),
    [
        (5, 1.0, 5),
        (5, 0.02, 5),
        (5, 0.01, 10),
        (5, 0.001, 50),  # no more, whatever they take
        (100, 0.001, 100),
        (1, 1.0, 1),
        (5, 0.0, 5),  # nobody has anything to send, as where no row has a match and a filter drops them all
    ],
)
def test_short_rounds_are_repeated(least: int, seconds: float, rounds: int) -> None:
    assert link_rounds_to_measure(least, seconds) == rounds
