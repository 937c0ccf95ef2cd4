"""Ways to search a space, one file each: the files of this folder are the values of ``--strategy``.

To add one: a file that declares a `SearchStrategy` as ``STRATEGY`` and imports what it works with inside functions, a
test, and a line in docs/tune.md.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from merge_bench.tune.evaluator import Candidate, Evaluator, SearchOptions
    from merge_bench.tune.space import SettingValue, TuningSpace


@dataclass(frozen=True)
class SearchStrategy:
    """The declaration of a way to search a tuning space for the best candidate.

    `name`: as ``--strategy`` takes it. `help`: one line of what it does. `place`: its position in lists. `tune`:
    searches; returns the candidate to confirm, the empty one if nothing is better than the baseline. `first_block`: how
    many launches the first block takes, which is the largest; by default each value runs alone, beside the baseline and
    its twin. Raises UsageError if the space is too large.
    """

    name: str
    help: str
    place: int
    tune: Callable[[TuningSpace, Sequence[SettingValue], Evaluator, SearchOptions], Candidate]
    first_block: Callable[[TuningSpace, Sequence[SettingValue]], int] = lambda space, values: len(values) + 2


@functools.cache
def strategies() -> Mapping[str, SearchStrategy]:
    """Return every search strategy by its name, in the order in which they are shown; the first is the default."""
    modules = (importlib.import_module(f"{__name__}.{each.name}") for each in pkgutil.iter_modules(__path__))
    kinds: list[SearchStrategy] = [module.STRATEGY for module in modules]
    return {each.name: each for each in sorted(kinds, key=lambda each: (each.place, each.name))}
