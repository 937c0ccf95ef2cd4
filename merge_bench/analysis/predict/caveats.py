"""Sentences about what a forecast assumes or does not know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from merge_bench.analysis.diagnostics import EXCEEDED
from merge_bench.analysis.predict.basis import Basis
from merge_bench.analysis.predict.model import Problem
from merge_bench.analysis.predict.parameters import ASSUMED, MEASURED
from merge_bench.analysis.predict.samples import Measured
from merge_bench.units import format_bytes, format_count, format_rate, plural

BEYOND = 8
"""Workers or hosts beyond this many times the measured ones are far beyond what was measured."""

SIZES = 4
"""Chunks and messages this many times larger or smaller than the measured ones are, too."""


def remedy(parameter: str) -> str:
    """What to do about a parameter that is not known."""
    if parameter == "nic_rate":
        return (
            "no result measures the network between hosts; add a RESULT of a run across hosts or of "
            "`probe p2p --placement two-hosts`, or set the rate with --link nic=12.5GB/s,2us"
        )
    return (
        "no result measures transfers within a host; add a RESULT of a run with several workers per host (without "
        "--pipeline if it has several hosts) or of `probe p2p --placement one-host`, or set the rate with "
        "--link local=20GB/s,1us"
    )


def caveats(basis: Basis, problem: Problem) -> list[str]:
    """Sentences about how far the forecast goes beyond what was measured, and what is assumed in it."""
    runs = basis.measurements.runs
    above = _above_limit(basis, problem)
    return [*above, *basis.measurements.notes, *basis.notes, *_beyond(runs, problem), *_assumed(basis, problem)]


def _above_limit(basis: Basis, problem: Problem) -> Iterator[str]:
    """Rates that the link measurement of the same runs contradicts."""
    by_name = {parameter.name: parameter for parameter in basis.parameters}
    for link, hosts, needed, where in (
        ("local", 1, problem.per_host[0] > 1, "within a host"),
        ("nic", 2, problem.hosts > 1, "between hosts"),
    ):
        rate = by_name.get(f"{link}_rate")
        limits = [
            run.limit for run in basis.measurements.runs if run.limit and min(len(run.shape.per_host), 2) == hosts
        ]
        if not needed or rate is None or rate.value is None or rate.source != MEASURED or not limits:
            continue
        if rate.value > EXCEEDED * max(limits):
            yield (
                f"Warning: the fitted rate {where}, {format_rate(rate.value)}, is above the link limit that the same"
                f" runs measured, {format_rate(max(limits))}. Short exchanges can pass a shaper's burst or stay in a"
                " cache; larger ones will then take longer than forecast. Or the link measurement was disturbed. Add a"
                f" RESULT with larger chunks and --link-rounds 20, or set the link's own rate with --link {link}=RATE."
            )


def _beyond(runs: Sequence[Measured], problem: Problem) -> Iterator[str]:
    workers = max(run.shape.workers for run in runs)
    hosts = max(len(run.shape.per_host) for run in runs)
    if problem.workers > BEYOND * workers:
        times = problem.workers / workers
        yield (
            f"{problem.workers} workers are {times:.0f} times the largest measured number ({workers}): "
            "the numbers are an extrapolation."
        )
    if problem.hosts > max(hosts, 2):
        yield (
            f"At most {plural(hosts, 'host')} {'was' if hosts == 1 else 'were'} measured, not {problem.hosts}:"
            " the network is assumed to carry the full rate "
            "of all hosts at once."
        )
    chunks = [run.shape.rows_per_chunk for run in runs]
    if not min(chunks) / SIZES <= problem.rows_per_chunk <= SIZES * max(chunks):
        yield (
            f"Chunks of {format_count(round(problem.rows_per_chunk))} rows are far outside the measured sizes "
            f"({_between(round(min(chunks)), round(max(chunks)))} rows)."
        )
    messages = [run.shape.problem.message_bytes for run in runs if run.shape.workers > 1]
    if problem.workers > 1 and messages and problem.message_bytes < min(messages) / SIZES:
        yield (
            f"Messages of {format_bytes(problem.message_bytes)} are much smaller than the smallest measured ones "
            f"({format_bytes(min(messages))}): links may be slower for small messages."
        )
    measured = {max(run.shape.per_host) for run in runs}
    most, _ = problem.per_host
    if most not in measured:
        yield (
            f"No result has {most} workers per host, only {_between(min(measured), max(measured))}; the forecast "
            "assumes the same cores and the same memory bandwidth per worker."
        )


def _assumed(basis: Basis, problem: Problem) -> Iterator[str]:
    by_name = {parameter.name: parameter for parameter in basis.parameters}
    runs = basis.measurements.runs
    most, _ = problem.per_host
    far = problem.hosts > 1
    if problem.workers > 1:
        for link, needed, where in (("local", most > 1, "within a host"), ("nic", far, "between hosts")):
            latency, overhead = by_name[f"{link}_latency"], by_name[f"{link}_overhead"]
            if needed and latency.source == ASSUMED and overhead.source == ASSUMED and not latency.value:
                yield f"The latency {where} is unknown and assumed to be 0; it matters only for small messages."
    alone = [run for run in runs if len(run.shape.per_host) > 1 and max(run.shape.per_host) == 1]
    several = [run for run in runs if len(run.shape.per_host) > 1 and max(run.shape.per_host) > 1]
    if far and most > 1 and alone and not several:
        yield (
            "The network link of a host was measured with one worker per host; the forecast assumes the same total "
            "rate for several workers."
        )
    elif far and not alone and not several and by_name["nic_rate"].source == MEASURED:
        yield "The network link of a host was measured with one pair of processes, not with a merge across hosts."
    if far and by_name["nic_rate"].source != MEASURED:
        yield "The forecast assumes that workers can use the full rate of the specified network link."
    if by_name["partition_fixed"].source == ASSUMED:
        yield "Only one chunk size was measured; the fixed cost of an iteration is not separated from the cost per row."
    if all(len(run.launches) == 1 for run in runs):
        yield "Each run has only one launch; the intervals do not include the variation between launches."


def _between(low: int, high: int) -> str:
    return format_count(low) if low == high else f"{format_count(low)} to {format_count(high)}"
