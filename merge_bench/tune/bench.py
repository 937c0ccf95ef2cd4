"""What a strategy works with: candidates, launches of them block by block, and a place to say what was decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from merge_bench.errors import MergeBenchError
from merge_bench.records.schema import TuneLine
from merge_bench.tune.space import Space, Value

AGAIN = " again"
"""What the name of the baseline's twin ends with: the same config, for the noise floor."""


@dataclass(frozen=True)
class Candidate:
    """The baseline with some values of the space, in the order of their ids; `twin`: the baseline a second time."""

    values: tuple[Value, ...] = ()
    twin: bool = False

    @classmethod
    def of(cls, *values: Value) -> Candidate:
        """The candidate with these values."""
        return cls(tuple(sorted(values, key=lambda value: value.id)))

    def name(self, baseline: str) -> str:
        """``mutex=y+transports=sysv``; the baseline's own name where nothing is set."""
        if self.twin:
            return baseline + AGAIN
        return "+".join(value.id for value in self.values) or baseline

    def with_value(self, value: Value) -> Candidate:
        """This one with `value` too."""
        return Candidate.of(*self.values, value)

    def without(self, value: Value) -> Candidate:
        """This one without `value`."""
        return Candidate.of(*(each for each in self.values if each != value))


@dataclass(frozen=True)
class Sample:
    """What one launch gave: the metric, larger is better; None where it failed, for `reason`.

    `wrong`: it failed because the merge's result was wrong.
    """

    value: float | None
    reason: str = ""
    wrong: bool = False


class BudgetSpent(MergeBenchError):
    """No further launch may be made for searching."""

    exit_status = 0
    code = "budget-spent"


class Bench(Protocol):
    """Makes launches, or gives those that were recorded."""

    baseline: str

    @property
    def plans(self) -> int:
        """How many sizes of the problem there are."""

    def block(self, candidates: Sequence[Candidate], *, plan: int = 0, search: bool = True) -> list[Sample]:
        """One launch of each candidate, one after the other in random order; samples in the order of `candidates`.

        Raises
        ------
        BudgetSpent
            If `search` and the budget is spent; nothing was launched.
        """

    def note(self, line: TuneLine) -> None:
        """Write down what was decided."""


@dataclass(frozen=True)
class Options:
    """How a strategy decides.

    `threshold`: a gain below it is none (0.02 for 2 %). `least`, `most`: blocks before a candidate is judged, and after
    which it is judged whatever is known. `confirm`: blocks of the confirmation. `alpha`: of the verdicts there.
    """

    threshold: float = 0.02
    least: int = 3
    most: int = 8
    confirm: int = 8
    alpha: float = 0.05


class Strategy(Protocol):
    """Searches a space for the best candidate."""

    @property
    def name(self) -> str:
        """As ``--strategy`` takes it."""

    @property
    def help(self) -> str:
        """One line of what it does."""

    @property
    def place(self) -> int:
        """In lists, among the others."""

    def first_block(self, space: Space, values: Sequence[Value]) -> int:
        """How many launches the first block takes, which is the largest.

        Raises
        ------
        UsageError
            If the space is too large for this strategy.
        """

    def tune(self, space: Space, values: Sequence[Value], bench: Bench, options: Options) -> Candidate:
        """The candidate to confirm; the empty one where nothing is better than the baseline."""
