"""Answers that never fail: records are others' data, and whatever is wrong with them, the view goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from merge_bench.errors import MergeBenchError

_LOG = logging.getLogger(__name__)
Answer = TypeVar("Answer")


def answered(make: Callable[[], Answer], failed: Callable[[str], Answer]) -> Answer:
    """What `make` gives; if it raises, what `failed` makes of the reason, a sentence."""
    try:
        return make()
    except MergeBenchError as reason:
        return failed(str(reason))
    except Exception as error:
        _LOG.warning("a result cannot be shown", exc_info=True)
        return failed(f"This cannot be shown: {type(error).__name__}: {error}")
