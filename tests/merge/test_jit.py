"""Compiled loops where numba has no folder for its cache, as in a container whose user owns nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba as nb
import pytest

from merge_bench.merge.jit import compile_inline, compile_loop


@pytest.mark.parametrize("decorate", [compile_loop, compile_inline])
def test_loops_compile_without_a_folder_for_the_cache(decorate: Callable[[Any], Any]) -> None:
    made: dict[str, Any] = {}
    exec("def twice(number): return 2 * number", made)  # of no file, so numba finds no folder for it
    with pytest.raises(RuntimeError, match="cannot cache"):
        nb.njit(cache=True)(made["twice"])
    assert decorate(made["twice"])(21) == 42
