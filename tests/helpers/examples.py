"""How many random examples a property is tried with."""

from __future__ import annotations

import hypothesis

HUNDRED = 100
"""What `max_examples` is; with `--soak` ten times as many, with `--fast` a quarter (tests/conftest.py)."""


def examples(count: int) -> hypothesis.settings:
    """Settings for `count` examples, for ten times as many with `--soak`, and for a quarter with `--fast`."""
    return hypothesis.settings(max_examples=max(1, count * hypothesis.settings().max_examples // HUNDRED))
