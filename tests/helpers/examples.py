"""How many random examples a property is tried with."""

from __future__ import annotations

import hypothesis

HUNDRED = 100
"""What `max_examples` is without `--soak`; with it ten times as many (tests/conftest.py)."""


def examples(count: int) -> hypothesis.settings:
    """Settings for `count` examples, and for ten times as many with `--soak`."""
    return hypothesis.settings(max_examples=count * hypothesis.settings().max_examples // HUNDRED)
