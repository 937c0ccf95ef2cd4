"""Ways to search a space, one file each: the files of this folder are the values of ``--strategy``.

To add one: a file that declares a `bench.Strategy` as ``STRATEGY`` and imports what it works with inside functions, a
test, and a line in docs/tune.md.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from merge_bench.tune.bench import Strategy


@functools.cache
def strategies() -> Mapping[str, Strategy]:
    """Every strategy by its name, in the order in which they are shown; the first is the default."""
    modules = (importlib.import_module(f"{__name__}.{each.name}") for each in pkgutil.iter_modules(__path__))
    found: list[Strategy] = [module.STRATEGY for module in modules]
    return {each.name: each for each in sorted(found, key=lambda each: (each.place, each.name))}
