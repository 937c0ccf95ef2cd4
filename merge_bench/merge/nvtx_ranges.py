"""NVTX ranges of the phases of a merge on a GPU, which NVIDIA's profilers show: partition, exchange, join."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

from merge_bench.merge.engines import describe

DOMAIN = "merge_bench"
_NO_RANGE: AbstractContextManager[Any] = nullcontext()

Ranges: TypeAlias = Callable[[str], AbstractContextManager[Any]]


def ranges_of(engine: str) -> Ranges:
    """What makes the range of a phase: nothing without a GPU or without the package nvtx, which cuDF brings."""
    if not describe(engine).device_memory or importlib.util.find_spec("nvtx") is None:
        return lambda phase: _NO_RANGE
    import nvtx

    return lambda phase: nvtx.annotate(phase, domain=DOMAIN)
