"""SciPy, which takes most of a second to load, only where a test compares with it."""

from __future__ import annotations

from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def stats() -> ModuleType:
    """`scipy.stats`."""
    from scipy import stats

    return stats
