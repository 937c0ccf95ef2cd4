"""Checks that the workers have the settings of config and launcher, which are read back inside every worker.

The environment of the worker's process is compared as text. Settings of UCX's context are compared with those that the
context holds, because these take effect whatever the environment says. UCX writes values in its own form (``8192``
becomes ``8K``), so the same UCX is asked for the form of each requested value.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from merge_bench.config.ucx_info import Installed, effective

CODE = "environment-differs"
REMEDY = (
    "find what else sets this variable: an alias of the variable, a ucx.conf file, a login script or a launcher option"
)


@dataclass(frozen=True)
class Difference:
    """`name` was to be `asked`, and is `found` (None: not set) on these ranks, under the name `as_name`."""

    name: str
    asked: str
    found: str | None
    ranks: tuple[int, ...]
    as_name: str

    @property
    def message(self) -> str:
        """One sentence."""
        ranks = ", ".join(str(rank) for rank in self.ranks)
        who = f"rank {ranks} has" if len(self.ranks) == 1 else f"ranks {ranks} have"
        has = f"no {self.as_name}" if self.found is None else f"{self.as_name}={self.found}"
        return f"{self.name}={self.asked} was requested, but {who} {has}"


class Canonical:
    """How UCX writes settings; without an installed UCX to ask, only environments can be compared."""

    def __init__(self, installed: Installed | None) -> None:
        self._installed = installed
        self._effective = functools.cache(lambda asked: effective(installed, dict(asked)) if installed else {})

    @property
    def version(self) -> str | None:
        """Of the UCX that is asked: only a context of the same one can be compared."""
        return self._installed.version if self._installed else None

    def name(self, name: str) -> str:
        """The name under which UCX itself keeps a setting."""
        setting = self._installed.settings.get(name) if self._installed else None
        return (setting.alias_of if setting else None) or name

    def values(self, asked: Mapping[str, str]) -> dict[str, str]:
        """What UCX makes of `asked`, under its own names; {} where it cannot be asked."""
        return self._effective(frozenset(asked.items()))


def differences(
    asked: Iterable[Mapping[str, str]],
    environments: Iterable[Mapping[str, str]],
    contexts: Iterable[Mapping[str, str]],
    canonical: Canonical,
) -> list[Difference]:
    """What differs, in the order asked.

    Parameters
    ----------
    asked, environments, contexts
        Of each rank: what it was to have, the environment of its process (all of the asked names that are set in it),
        and the settings that its UCX context holds (empty if there is none).
    canonical
        How UCX writes settings.
    """
    found: dict[tuple[str, str, str | None, str], list[int]] = {}
    for rank, (wanted, environment, context) in enumerate(zip(asked, environments, contexts, strict=True)):
        own = {name: value for name, value in wanted.items() if canonical.name(name) in context}
        expected = canonical.values(own) if own else {}
        for name, value in wanted.items():
            has, as_name = environment.get(name), canonical.name(name)
            if name in own and as_name in expected and context[as_name] != expected[as_name]:
                has = context[as_name]
            elif has != value:
                as_name = name
            else:
                continue
            found.setdefault((name, value, has, as_name), []).append(rank)
    return [Difference(name, value, has, tuple(ranks), at) for (name, value, has, at), ranks in found.items()]
