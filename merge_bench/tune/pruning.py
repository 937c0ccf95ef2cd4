"""Which values of a space make sense here: what this machine, this UCX and this run have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from merge_bench.config.names import PREFIX
from merge_bench.config.options import BY_VARIABLE
from merge_bench.tune.space import Setting, Space, Value, allows


@dataclass(frozen=True)
class Situation:
    """What is known before anything is launched.

    `conditions`: those of `space.CONDITIONS` that hold; `known`: the variables that the installed UCX has, None where
    it could not be asked; `baseline`: the variables of the baseline's config; `options`: values of the
    baseline's options by variable (``MERGE_BENCH_…``); `fixed`: variables of options given on the command line.
    """

    conditions: frozenset[str]
    ucx: str | None
    known: frozenset[str] | None
    baseline: Mapping[str, str]
    options: Mapping[str, object]
    fixed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Pruned:
    """A value that is left out, and why."""

    value: Value
    reason: str


def prune(space: Space, now: Situation) -> tuple[tuple[Value, ...], tuple[Pruned, ...]]:
    """The values that can be tried, and those that cannot, in the order of the space."""
    kept, left = [], []
    for setting in space.settings:
        for value in setting.values:
            reason = _reason(setting, value, now)
            if reason is None:
                kept.append(value)
            else:
                left.append(Pruned(value, reason))
    return tuple(kept), tuple(left)


def _reason(setting: Setting, value: Value, now: Situation) -> str | None:
    missing = [condition for condition in setting.requires if condition not in now.conditions]
    if missing:
        return f"needs {', '.join(missing)}, which is not so here"
    if setting.releases and (now.ucx is None or not allows(setting.releases, now.ucx)):
        return f"needs UCX {', '.join(setting.releases)}, and this is {now.ucx or 'unknown'}"
    for name, _ in value.variables:
        if name in now.fixed:
            return f"the command line fixes --{BY_VARIABLE[name].name}"
        if name.startswith("UCX_") and now.known is not None and name not in now.known:
            return f"UCX {now.ucx} has no {name} here"
    if all(_has(name, text, now) for name, text in value.variables):
        return "the baseline has it already"
    return None


def _has(name: str, text: str, now: Situation) -> bool:
    if name.startswith(PREFIX):
        return name in now.options and BY_VARIABLE[name].parse(text) == now.options[name]
    return now.baseline.get(name) == text
