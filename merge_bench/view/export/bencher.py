"""``--format bencher``: Bencher Metric Format, which ``bencher run --adapter json --file FILE`` reads.

A benchmark is one config with one problem, or one row of a network measurement; its measures are called after the
figure with its unit (``wall-seconds``), so that none is taken for one of Bencher's own (``latency`` is in nanoseconds).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from merge_bench.errors import UsageError
from merge_bench.view.export import Exporter

if TYPE_CHECKING:
    from merge_bench.analysis.named_figures import Figure
    from merge_bench.records.campaign import Campaign


def _encode(campaigns: Sequence[Campaign]) -> bytes:
    """Results as JSON of Bencher; `lower_value` and `upper_value` are the ends of an interval, if there is one.

    A result that was not verified has a mark in its name. The format has no other place for it, and its figures must
    not continue the series of a verified one.
    """
    import json

    from merge_bench.analysis.aggregate import UNVERIFIED
    from merge_bench.analysis.named_figures import subjects
    from merge_bench.view.titles import problem_of

    all_subjects = subjects(campaigns, lambda run: problem_of([run.plan]))
    wrong = next((subject for subject in all_subjects if subject.wrong), None)
    if wrong is not None:
        raise UsageError(f"the result of {wrong.name!r} is wrong, and Bencher would store its figures unmarked")
    benchmarks = {
        subject.name + (f" ({UNVERIFIED})" if subject.verified is False else ""): {
            figure.name.replace("_", "-"): _bencher_measure(figure) for figure in subject.figures
        }
        for subject in all_subjects
        if subject.figures
    }
    if not benchmarks:
        raise UsageError(f"{campaigns[0].folder} contains no measurements to export")
    return (json.dumps(benchmarks, indent=2) + "\n").encode()


def _bencher_measure(figure: Figure) -> dict[str, float]:
    """A figure, and the ends of its interval, as a measure of Bencher."""
    ends = zip(("lower_value", "upper_value"), figure.interval or (), strict=False)
    return {"value": float(figure.value), **dict(ends)}


EXPORTER = Exporter(
    "bencher", help="Bencher Metric Format, medians with their intervals over launches", place=2, encode=_encode
)
