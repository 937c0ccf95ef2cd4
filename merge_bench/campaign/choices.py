"""The options of `run` whose values are the files of a folder: which values those are, and what the help says of them.

`config` declares the options and cannot look into the rooms that hold those folders.
"""

from __future__ import annotations

import functools

from merge_bench.cluster import choose
from merge_bench.config.options import OPTIONS, Option
from merge_bench.merge import engines


@functools.cache
def options() -> tuple[Option, ...]:
    """Every option of `run`, complete."""
    return tuple(map(complete, OPTIONS))


def complete(option: Option) -> Option:
    """`option` with its values, where those are the files of a folder."""
    if option.key == "engine":
        return option.taking(engines.choices(), engines.help_text())
    if option.key == "launcher":
        return option.taking(choose.choices(), choose.help_text())
    return option
