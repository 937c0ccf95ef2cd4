"""Completes the options of `run` that depend on the members of a registry, with their values and their help.

`config` declares these options, but must not import the packages that hold the registries.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from merge_bench.cluster import launchers
from merge_bench.config.option import Option
from merge_bench.config.options import OPTIONS
from merge_bench.merge import engines, exchange, workload


@functools.cache
def options() -> tuple[Option, ...]:
    """Every option of `run`, with the values and help of its registry."""
    return tuple(map(complete, OPTIONS))


def complete(option: Option) -> Option:
    """`option` with allowed values and help, if members of a registry decide them; else unchanged."""
    if option.key == "engine":
        return option.with_values(engines.choices(), engines.help_text())
    if option.key == "exchange":
        return option.with_values([plane.name for plane in exchange.data_planes()], exchange.help_text())
    if option.key == "launcher":
        return option.with_values(launchers.choices(), launchers.help_text())
    if option.key == "workload":
        return option.with_values(workload.choices(), workload.help_text())
    if option.key == "question":
        return replace(option, help=workload.questions_help())
    if option.key == "rows":
        return replace(option, help=workload.rows_help())
    return option
