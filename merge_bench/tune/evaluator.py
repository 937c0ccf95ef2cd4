"""What a strategy works with: candidates, their launches block by block, and a record of each decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from merge_bench.analysis.compare.document import METRICS
from merge_bench.errors import MergeBenchError, WrongResult
from merge_bench.records.campaign import Launch
from merge_bench.records.schema import TuneLine
from merge_bench.tune.space import Value

SCREEN, COMBINE, ABLATE, CONFIRM = "screen", "combine", "ablate", "confirm"
"""The phases of a tuning, as the records name them."""
AGAIN = " again"
"""The end of the name of the baseline's twin: the same config a second time, which shows the noise."""
NO_GAIN = "no gain of at least "
"""What the reason begins with, before the threshold, if even the upper end of the interval is below it."""
NO_GAIN_SEEN = "no gain seen"
"""The decision about a candidate whose estimate is not above 1, but whose interval does not rule out a gain."""
NOISE = "noise"
"""The decision of the step of the twin, which decides nothing."""
UNDECIDED = "undecided"
"""The decision of a candidate that too few blocks were made of, and what the reason of every such step begins with."""


@dataclass(frozen=True)
class Candidate:
    """The baseline with some values of the space, in the order of their ids; `twin`: the baseline a second time."""

    values: tuple[Value, ...] = ()
    twin: bool = False

    @classmethod
    def of(cls, *values: Value) -> Candidate:
        return cls(tuple(sorted(values, key=lambda value: value.id)))

    def name(self, baseline: str) -> str:
        """``mutex=y+transports=sysv``; the baseline's own name if there are no values."""
        if self.twin:
            return baseline + AGAIN
        return "+".join(value.id for value in self.values) or baseline

    def with_value(self, value: Value) -> Candidate:
        return Candidate.of(*self.values, value)

    def without(self, value: Value) -> Candidate:
        return Candidate.of(*(each for each in self.values if each != value))


@dataclass(frozen=True)
class Sample:
    """The result of one launch: the metric, larger is better; None if the launch failed, with the `reason`.

    `wrong`: it failed because the result of the merge was wrong.
    """

    value: float | None
    reason: str = ""
    wrong: bool = False


def sample_of(launch: Launch, metric: str) -> Sample:
    """The result of `launch` in `metric`, which is one of the metrics of `compare`."""
    wrong = any(not check.ok for check in launch.verifications)
    if wrong or any(failure.code == WrongResult.code for failure in launch.failures):
        return Sample(None, "the merge result was wrong", wrong=True)
    if not launch.complete:
        return Sample(None, launch.failures[0].message if launch.failures else "the launch did not finish")
    value = next(each.of_launch for each in METRICS if each.name == metric)(launch)
    return Sample(value or None, "" if value else f"{metric} was not measured")


class BudgetSpent(MergeBenchError):
    """The budget allows no further launch."""

    exit_status = 0
    code = "budget-spent"


class Evaluator(Protocol):
    """Makes the launches that a strategy asks for, or takes them from records.

    `timed`: launches of the baseline's twin and of the baseline that were made before the search, to time them.
    """

    baseline: str
    timed: Sequence[tuple[Sample, Sample]]

    @property
    def plans(self) -> int:
        """How many problem sizes there are, each a plan."""

    @property
    def limited(self) -> bool:
        """Whether a budget may end the search before each candidate has all its blocks."""

    def block(
        self, candidates: Sequence[Candidate], *, plan: int = 0, search: bool = True, keep: int = 1
    ) -> list[Sample]:
        """One launch of each candidate, one after the other in random order; samples in the order of `candidates`.

        `keep`: for how many candidates the search leaves time to confirm them; fewer if there is no time for so many,
        but one at least unless it is 0. Raises BudgetSpent if `search` and the budget has no time for the block, so
        that nothing was launched; or if the budget is spent before a launch of it.
        """

    def joining_values(self, pending: int) -> Sequence[Value]:
        """Values that the budget had no time for at first, and now has; they join the screening.

        `pending`: launches until each of those that are screened now can be judged, without the baseline's.
        """

    def note(self, line: TuneLine) -> None:
        """Record the decision of a step."""


@dataclass(frozen=True)
class Options:
    """How a strategy decides.

    `threshold`: smaller gains do not count (0.02 for 2 %). `least`, `most`: a candidate is judged after at least and
    at most this many blocks. `confirm`: blocks of the confirmation. `alpha`: error probability of its verdicts.
    """

    threshold: float = 0.02
    least: int = 3
    most: int = 8
    confirm: int = 8
    alpha: float = 0.05
