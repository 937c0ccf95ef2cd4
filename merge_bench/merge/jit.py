"""How loops are compiled: by numba, without the interpreter's lock, and cached beside their file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba as nb
from numba.extending import intrinsic

Loop = TypeVar("Loop", bound=Callable[..., Any])


def compiled(loop: Loop) -> Loop:
    """Compile a loop."""
    found: Loop = nb.njit(nogil=True, cache=True)(loop)
    return found


def inlined(expression: Loop) -> Loop:
    """Compile an expression into each loop that uses it."""
    found: Loop = nb.njit(nogil=True, cache=True, inline="always")(expression)
    return found


def emitted(function: Callable[..., Any]) -> Any:
    """Have `function` emit the machine code of a call."""
    return intrinsic(function)
