"""How many random examples a property is tried with."""

from __future__ import annotations

import hypothesis

HUNDRED = 100
"""Of so many examples a usual run tries 50, one with `--fast` 25, and one with `--soak` 1,000 (tests/conftest.py)."""


def examples(count: int) -> hypothesis.settings:
    """Settings for half of `count` examples, for ten times as many with `--soak`, and for a quarter with `--fast`."""
    return hypothesis.settings(max_examples=max(1, count * hypothesis.settings().max_examples // HUNDRED))
