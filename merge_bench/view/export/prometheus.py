"""``--format prometheus``: Prometheus' text format (0.0.4), as the textfile collector of node_exporter reads it.

Every figure is a gauge in its base unit. No sample has a time, which the collector refuses; when a result was measured
is a gauge of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from merge_bench.view.export import Exporter

if TYPE_CHECKING:
    from merge_bench.analysis.named_figures import Subject
    from merge_bench.records.campaign import Campaign

PREFIX = "merge_bench_"
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


def _encode(campaigns: Sequence[Campaign]) -> bytes:
    from merge_bench.analysis.named_figures import HELP, subjects
    from merge_bench.view.titles import problem_of

    all_subjects = subjects(campaigns, lambda run: problem_of([run.plan]))
    lines: list[str] = []
    for name, help in {**HELP, **_STATE_GAUGES}.items():
        samples = [(subject.labels, value) for subject in all_subjects for value in _gauge_values(subject, name)]
        if samples:
            lines += [f"# HELP {PREFIX}{name} {help}", f"# TYPE {PREFIX}{name} gauge"]
        for labels, value in samples:
            pairs = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items())
            lines.append(f"{PREFIX}{name}{{{pairs}}} {value!r}")
    return ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")


_STATE_GAUGES = {
    "verified": "1 if the result was verified, else 0; a wrong result has no other figures.",
    "complete_launches": "Launches that ended without a failure.",
    "failed_launches": "Launches that failed.",
    "measured_timestamp_seconds": "When the last launch began, in seconds since the epoch.",
}


def _gauge_values(subject: Subject, name: str) -> Iterator[float]:
    """The value of the gauge `name` for one subject, if it has one; network measurements are not verified."""
    yield from (float(figure.value) for figure in subject.figures if figure.name == name)
    if name == "measured_timestamp_seconds" and subject.measured is not None:
        yield float(subject.measured)
    if subject.verified is not None:
        states = (subject.verified, subject.launches, subject.failed_launches)
        yield from (float(value) for state, value in zip(_STATE_GAUGES, states, strict=False) if state == name)


EXPORTER = Exporter(
    "prometheus", help="gauges for node_exporter's textfile collector, medians over launches", place=3, encode=_encode
)
