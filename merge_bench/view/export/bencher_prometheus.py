"""``--format bencher`` and ``--format prometheus``: figures for programs that follow them over time.

Bencher Metric Format, which ``bencher run --adapter json --file FILE`` reads: a benchmark is one config with one
problem or command, or one row of a network measurement; its measures are called after the figure with its unit
(``wall-seconds``), so that none is taken for one of Bencher's own (``latency`` is in nanoseconds).

Prometheus' text format (0.0.4), as the textfile collector of node_exporter reads it: every figure is a gauge in its
base unit. No sample has a time, which the collector refuses; when a result was measured is a gauge of its own.

Both have the same figures, medians over launches, under names that stay the same from one result to the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from merge_bench.config.options import BY_KEY
from merge_bench.errors import UsageError
from merge_bench.view.export import Exporter

if TYPE_CHECKING:
    from merge_bench.analysis.documents import RunDocument
    from merge_bench.records.campaign import Campaign
    from merge_bench.records.probe_rows import ProbeRow
    from merge_bench.records.recorded_plan import RecordedPlan

PREFIX = "merge_bench_"
_LONGEST_MEASURE = 64  # Bencher's limit
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_STATE_GAUGES = {
    "verified": "1 if the result was verified, else 0; a wrong result has no other figures.",
    "complete_launches": "Launches that ended without a failure.",
    "failed_launches": "Launches that failed.",
    "measured_timestamp_seconds": "When the last launch began, in seconds since the epoch.",
}


HELP = {
    "wall_seconds": "Wall-clock time of an iteration, or of one run of a command, median over launches.",
    "throughput_bytes_per_second": "Bytes of both input frames per second of wall-clock time, median over launches.",
    "bandwidth_bytes_per_second": "Bytes that a worker sends to others per second in flight, harmonic mean of workers.",
    "partition_seconds": "Longest time of any worker in the partition phase.",
    "exchange_seconds": "Longest time of any worker in the exchange phase.",
    "join_seconds": "Longest time of any worker in the join phase.",
    "link_limit_bytes_per_second": "Bytes per second of a worker when it only exchanges the messages of the merge.",
    "link_ratio": "Speed of the exchange as a ratio of the link limit.",
    "peak_memory_bytes": "Peak host memory of the worker that needs most.",
    "gpu_energy_joules": "Energy that a merge uses on the GPUs of its workers.",
    "cpu_energy_joules": "Energy that a merge uses on the processors of its hosts.",
    "probe_seconds": "Time of an operation of a network measurement, median over launches.",
    "probe_bandwidth_bytes_per_second": "Bandwidth of a network measurement, median over launches.",
    "probe_messages_per_second": "Message rate of a network measurement, median over launches.",
    "command_value": "Value of a metric of a command in its own unit, median over launches.",
}


@dataclass(frozen=True)
class ExportedValue:
    """One measured number of a result, as it is exported.

    `name`: a key of `HELP`, which ends in the unit. `interval`: the 95 % interval over launches; for a network
    measurement the range of its launches; None if unknown. `metric`, `unit`: those of a ``command_value``.
    """

    name: str
    value: float
    interval: tuple[float, float] | None = None
    metric: str = ""
    unit: str = ""

    @property
    def bencher_measure_name(self) -> str:
        """The name of the value in Bencher: ``wall-seconds``, or for a command's metric ``busbw-gb-s``."""
        words = f"{self.metric} {self.unit or 'value'}".lower() if self.metric else self.name
        return re.sub(r"[^a-z0-9]+", "-", words)[:_LONGEST_MEASURE].strip("-") or "value"

    @property
    def prometheus_labels(self) -> dict[str, str]:
        """The Prometheus labels of the value: metric and unit for a metric of a command, else none."""
        return {"metric": self.metric, "unit": self.unit} if self.metric else {}


@dataclass(frozen=True)
class ExportedBenchmark:
    """A thing measured, as it is exported: a config with a problem or command, or a row of a network measurement.

    `name`, `labels`: the same for every result that measured the same. `figures`: the values, none if the result was
    wrong. `verified`: None for network measurements. `measured`: when the last launch began, seconds since the epoch.
    """

    name: str
    labels: Mapping[str, str]
    figures: tuple[ExportedValue, ...]
    verified: bool | None
    wrong: bool
    launches: int
    failed_launches: int
    measured: float | None


def exported_benchmarks(campaigns: Sequence[Campaign]) -> list[ExportedBenchmark]:
    """Return every benchmark of `campaigns`.

    Raises UsageError if two of them have the same name, so that their values could not be told apart.
    """
    by_name: dict[str, tuple[ExportedBenchmark, Campaign]] = {}
    for campaign in campaigns:
        for benchmark in (
            _benchmarks_of_probe(campaign) if campaign.probe is not None else _benchmarks_of_runs(campaign)
        ):
            if benchmark.name in by_name:
                first = by_name[benchmark.name][1]
                where = f"{first.folder} and {campaign.folder} both measured"
                if first is campaign:
                    where = f"{campaign.folder} contains more than one"
                raise UsageError(
                    f"{where} {benchmark.name!r}, and this format has one value for each; export csv instead"
                )
            by_name[benchmark.name] = benchmark, campaign
    return [benchmark for benchmark, _ in by_name.values()]


def _benchmarks_of_runs(campaign: Campaign) -> Iterator[ExportedBenchmark]:
    from merge_bench.analysis.summary import summarize_run
    from merge_bench.view.titles import workload_text

    for run in campaign.runs:
        document = summarize_run(campaign, run, campaign.head.campaign_id)
        plan, wrong = run.plan, document.verification.state == "wrong"
        what = workload_text([plan]) if plan.command is None else plan.command.shell_line
        of_merge = {
            "problem": what,
            "engine": plan.engine or "",
            "exchange": plan.exchange or "",
            "hosts": str(len(document.plan["hosts"])),
            "options": ", ".join(unusual_merge_option_texts(plan)),
        }
        labels = {"config": run.config.name} | (of_merge if plan.command is None else {"command": what})
        ways = [f"engine {plan.engine}"] * bool(plan.engine) + [f"exchange {plan.exchange}"] * bool(plan.exchange)
        times = [launch.line.time for launch in run.launches if launch.line is not None]
        yield ExportedBenchmark(
            name=", ".join([f"{run.config.name}: {what}", *ways, *unusual_merge_option_texts(plan)]),
            labels=labels,
            figures=() if wrong else tuple(_values_of_run(document)),
            verified=document.verified,
            wrong=wrong,
            launches=sum(launch.complete for launch in run.launches),
            failed_launches=sum(launch.failed for launch in run.launches),
            measured=max(times, default=None),
        )


def unusual_merge_option_texts(plan: RecordedPlan) -> Iterator[str]:
    """Describe the options of a plan that change which rows are merged or how, if they differ from the usual ones."""
    work = plan.workload
    if work is not None and work.name == "synthetic":
        if work.payload_columns not in (None, 1):
            yield f"{work.payload_columns} payload columns"
        if work.fraction not in (None, BY_KEY["frac_match"].default):
            yield f"match fraction {work.fraction:g}"
        if work.zipf:
            yield f"skew zipf:{work.zipf:g}"
    if plan.distribution == "broadcast":
        yield "broadcast"
    if plan.pipeline:
        yield "pipeline"
    if plan.runtime_filter:
        yield "runtime filter"


def _values_of_run(document: RunDocument) -> Iterator[ExportedValue]:
    """Yield the values of a run that were measured."""
    from merge_bench.analysis.aggregate import PHASES
    from merge_bench.analysis.documents import MetricSummary
    from merge_bench.records.recorded_plan import WALL

    phases, link, energy = document.phases_seconds, document.link, document.energy
    spreads: dict[str, MetricSummary | float | None] = {
        "wall_seconds": document.wall_seconds,
        "throughput_bytes_per_second": document.throughput_bytes_per_second,
        "bandwidth_bytes_per_second": document.bandwidth_bytes_per_second.harmonic_mean,
        **{f"{name}_seconds": getattr(phases, name) for name in PHASES},
        "link_limit_bytes_per_second": link.limit_bytes_per_second if link else None,
        "link_ratio": link.fraction if link else None,
        "peak_memory_bytes": document.peak_memory_bytes.max,
        "gpu_energy_joules": energy.gpu_joules_per_merge if energy else None,
        "cpu_energy_joules": energy.cpu_joules_per_merge if energy else None,
    }
    for name, figure in spreads.items():
        value, interval = (figure.median, figure.ci95) if isinstance(figure, MetricSummary) else (figure, None)
        if value is not None:
            yield ExportedValue(name, value, interval)
    for metric in document.metrics if isinstance(document.metrics, list) else ():
        if metric.spread.median is not None and metric.name != WALL:
            yield ExportedValue(
                "command_value", metric.spread.median, metric.spread.ci95, metric=metric.name, unit=metric.unit
            )


def _benchmarks_of_probe(campaign: Campaign) -> Iterator[ExportedBenchmark]:
    from merge_bench.records.probe_rows import make_probe_rows

    times = [launch.line.time for launch in campaign.launches_not_replaced if launch.line is not None]
    for row in make_probe_rows(campaign):
        labels = {
            "config": row.config,
            "probe": row.probe,
            "test": row.test,
            "placement": row.placement,
            "memory": row.memory,
            "ranks": ",".join(map(str, row.ranks)),
            "size_bytes": str(row.size),
            "elements": "" if row.count is None else str(row.count),
        }
        what = [f"{row.config}: {row.probe} {row.test}", row.placement, f"{row.memory} memory"]
        what += [f"ranks {' '.join(map(str, row.ranks))}"] * bool(row.ranks) + [f"{row.size} B"]
        what += [f"{row.count} elements"] * (row.count is not None)
        yield ExportedBenchmark(
            name=", ".join(what),
            labels=labels,
            figures=tuple(_values_of_probe_row(row)) if not row.wrong else (),
            verified=None,
            wrong=bool(row.wrong),
            launches=row.launches,
            failed_launches=0,
            measured=max(times, default=None),
        )


def _values_of_probe_row(row: ProbeRow) -> Iterator[ExportedValue]:
    ranges = {"probe_seconds": row.seconds, "probe_bandwidth_bytes_per_second": row.bandwidth}
    for name, figure in ranges.items():
        if figure is not None:
            yield ExportedValue(name, figure.median, (figure.low, figure.high) if row.launches > 1 else None)
    if row.messages_per_second is not None:
        yield ExportedValue("probe_messages_per_second", row.messages_per_second)


def _encode_bencher(campaigns: Sequence[Campaign]) -> bytes:
    """Encode results as JSON of Bencher; `lower_value` and `upper_value` are the ends of an interval, if there is one.

    A result that was not verified has a mark in its name. The format has no other place for it, and its figures must
    not continue the series of a verified one.
    """
    import json

    from merge_bench.analysis.aggregate import UNVERIFIED

    all_benchmarks = exported_benchmarks(campaigns)
    wrong = next((benchmark for benchmark in all_benchmarks if benchmark.wrong), None)
    if wrong is not None:
        raise UsageError(f"the result of {wrong.name!r} is wrong, and Bencher would store its figures unmarked")
    benchmarks = {
        benchmark.name + (f" ({UNVERIFIED})" if benchmark.verified is False else ""): {
            figure.bencher_measure_name: {
                "value": float(figure.value),
                **dict(zip(("lower_value", "upper_value"), figure.interval or (), strict=False)),
            }
            for figure in benchmark.figures
        }
        for benchmark in all_benchmarks
        if benchmark.figures
    }
    if not benchmarks:
        raise UsageError(f"{campaigns[0].folder} contains no measurements to export")
    return (json.dumps(benchmarks, indent=2) + "\n").encode()


_BENCHER_HELP = "Bencher Metric Format, medians with their intervals over launches"
BENCHER = Exporter("bencher", _BENCHER_HELP, place=2, encode=_encode_bencher)


def _encode_prometheus(campaigns: Sequence[Campaign]) -> bytes:
    all_benchmarks = exported_benchmarks(campaigns)
    lines: list[str] = []
    for name, help in {**HELP, **_STATE_GAUGES}.items():
        samples = [
            ({**benchmark.labels, **labels}, value)
            for benchmark in all_benchmarks
            for labels, value in _prometheus_gauge_values(benchmark, name)
        ]
        if samples:
            lines += [f"# HELP {PREFIX}{name} {help}", f"# TYPE {PREFIX}{name} gauge"]
        for labels, value in samples:
            pairs = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items())
            lines.append(f"{PREFIX}{name}{{{pairs}}} {value!r}")
    return ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")


def _prometheus_gauge_values(
    benchmark: ExportedBenchmark, gauge_name: str
) -> Iterator[tuple[Mapping[str, str], float]]:
    """Yield the values of a gauge for one benchmark, each with its labels besides those of the benchmark."""
    yield from (
        (figure.prometheus_labels, float(figure.value)) for figure in benchmark.figures if figure.name == gauge_name
    )
    if gauge_name == "measured_timestamp_seconds" and benchmark.measured is not None:
        yield {}, float(benchmark.measured)
    if benchmark.verified is not None:
        states = (benchmark.verified, benchmark.launches, benchmark.failed_launches)
        yield from (
            ({}, float(value)) for state, value in zip(_STATE_GAUGES, states, strict=False) if state == gauge_name
        )


_PROMETHEUS_HELP = "gauges for node_exporter's textfile collector, medians over launches"
PROMETHEUS = Exporter("prometheus", _PROMETHEUS_HELP, place=3, encode=_encode_prometheus)
