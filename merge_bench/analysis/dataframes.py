"""A campaign's records as tidy tables, a row an observation: data frames for Python, and one flat table for files.

Seconds, bytes, rows and bytes per second; None where something was not measured. Warm-up iterations and launches that
were interrupted and made again are left out. Names of columns are identifiers, so that ``frame.wall_seconds`` works;
in the flat table, for CSV and Parquet, they have the unit in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from merge_bench.analysis import aggregate, energy
from merge_bench.analysis.aggregate import verification_state
from merge_bench.analysis.compare import Metric, metrics_of_command
from merge_bench.analysis.transports import selected_lanes
from merge_bench.errors import UsageError
from merge_bench.records.campaign import Campaign, Launch, Run
from merge_bench.records.recorded_plan import WALL, CommandPlan, RecordedPlan

Rows = Iterator[dict[str, Any]]
_TYPES: Mapping[str, type] = {"str": str, "int": int, "float": float, "bool": bool}


def _parse_column_types(text: str) -> dict[str, type]:
    """The type of each column by name, from words such as ``launch:int``."""
    return {name: _TYPES[kind] for name, kind in (word.split(":") for word in text.split())}


COLUMNS = _parse_column_types("""
    campaign:str config:str plan:int problem:str options:str engine:str exchange:str how:str question:str
    distribution:str pipeline:bool
    rows_per_chunk:int workers:int launch:int block:int complete:bool verification:str iteration:int
    time_unix_seconds:float wall_seconds:float partition_seconds:float exchange_seconds:float join_seconds:float
    throughput_bytes_per_second:float bandwidth_bytes_per_second:float link_fraction:float
    sent_bytes:int result_rows:int
""")
"""Columns of a flat table of merges. Problem: tables, keys and rows; options: those that are unusual.

Phases: the longest time of any worker; bytes and rows: sums over all workers.
"""

PROBE_COLUMNS = _parse_column_types("""
    campaign:str config:str launch:int probe:str test:str method:str placement:str memory:str ranks:str hosts:str
    size_bytes:int count_elements:int iterations:int seconds:float bandwidth_bytes_per_second:float
    messages_per_second:float selected:str protocol:str link_limit_bytes_per_second:float wrong_elements:int
    as_requested:bool
""")
"""Columns of a flat table of network measurements."""

COMMAND_COLUMNS = _parse_column_types("""
    campaign:str config:str plan:int command:str launch:int block:int complete:bool failure:str verification:str
    time_unix_seconds:float wall_seconds:float
""")
"""Columns of a flat table of commands, before one for each of their other metrics."""

_WITH_UNIT = {
    "throughput": "throughput_bytes_per_second",
    "bandwidth": "bandwidth_bytes_per_second",
    "size": "size_bytes",
    "wrong": "wrong_elements",
    "count": "count_elements",
    "link_limit": "link_limit_bytes_per_second",
}


def command_rows(campaign: Campaign) -> Rows:
    """Yield a row for every launch of a command, with the values of its metrics, each in its unit."""
    for run in campaign.runs:
        command = run.plan.command or CommandPlan()
        metrics = metrics_of_command(command.metrics)
        verification = verification_state(run, aggregate.complete_launches(run)).value
        for launch in run.launches:
            cells = _launch_identity_cells(campaign, run, launch) | {
                "command": command.shell_line,
                "failure": launch.failures[0].code if launch.failures else None,
                "verification": verification,
                "time_unix_seconds": launch.timed_iterations[0].time if launch.timed_iterations else None,
            }
            measured = {_metric_column_name(metric): metric.launch_value(launch) for metric in metrics}
            yield {name: cells[name] for name in COMMAND_COLUMNS if name in cells} | measured


def _metric_column_name(metric: Metric) -> str:
    """The column name of a command's metric: the metric's name, with ``_value`` if another column has that name."""
    if metric.name == WALL:
        return "wall_seconds"
    return f"{metric.name}_value" if metric.name in COMMAND_COLUMNS else metric.name


def iteration_rows(campaign: Campaign) -> Rows:
    """Yield a row for every timed iteration of a merge, or for every launch of a command."""
    if campaign.command is not None:
        yield from command_rows(campaign)
        return
    for run, launch in _runs_with_launches(campaign):
        for iteration in launch.timed_iterations:
            yield _launch_identity_cells(campaign, run, launch) | {
                "iteration": iteration.index,
                "wall_seconds": iteration.wall_seconds,
                "throughput": aggregate.throughput(launch, iteration),
                "bandwidth": aggregate.iteration_bandwidth(iteration),
                "link_fraction": aggregate.link_limit_fraction(launch, iteration),
            }


def worker_rows(campaign: Campaign) -> Rows:
    """Yield a row for every worker in every timed iteration."""
    for run, launch in _runs_with_launches(campaign):
        hosts = {worker.rank: worker.host for worker in launch.line.workers} if launch.line else {}
        for iteration in launch.timed_iterations:
            frames = aggregate.which_frames_were_sent(iteration.workers)
            for worker in iteration.workers:
                bandwidth = aggregate.worker_bandwidth(worker, frames)
                yield _launch_identity_cells(campaign, run, launch) | {
                    "iteration": iteration.index,
                    "rank": worker.rank,
                    "host": hosts.get(worker.rank),
                    "seconds": worker.seconds,
                    **{f"{name}_seconds": getattr(worker.phases_seconds, name, None) for name in aggregate.PHASES},
                    "overlap_seconds": worker.overlap_seconds,
                    "join_overlap_seconds": worker.join_overlap_seconds,
                    "sent_left_bytes": getattr(worker.sent_bytes, "left", None),
                    "sent_right_bytes": getattr(worker.sent_bytes, "right", None),
                    "flight_seconds": getattr(worker.flight_seconds, "union", None),
                    "bandwidth_left": bandwidth.left,
                    "bandwidth_right": bandwidth.right,
                    "bandwidth": bandwidth.mean,
                    "received_left_rows": getattr(worker.received_rows, "left", None),
                    "received_right_rows": getattr(worker.received_rows, "right", None),
                    "result_rows": worker.result_rows,
                    "cpu_seconds": worker.cpu_seconds,
                }


def worker_pair_rows(campaign: Campaign) -> Rows:
    """Yield a row for every ordered pair of workers in every launch: medians over the launch's timed iterations."""
    for run, launch in _runs_with_launches(campaign):
        by_pair = {
            (lane.from_rank, lane.to_rank): lane for lane in selected_lanes([launch.lanes] if launch.lanes else [])
        }
        for (sender, receiver), figures in aggregate.worker_pair_traffic([launch]).items():
            lane = by_pair.get((sender, receiver))
            yield _launch_identity_cells(campaign, run, launch) | {
                "from_rank": sender,
                "to_rank": receiver,
                "bytes": float(figures.bytes),
                "seconds": figures.seconds,
                "rate": figures.bytes / figures.seconds if figures.seconds else None,
                "placement": lane.placement if lane else None,
                "transports": ",".join(lane.transports) if lane else None,
            }


def launch_rows(campaign: Campaign) -> Rows:
    """Yield a row for every launch: medians over its timed iterations."""
    if campaign.command is not None:
        yield from command_rows(campaign)
        return
    for run, launch in _runs_with_launches(campaign):
        phases = {name: aggregate.launch_median(launch, aggregate.phase_seconds(name)) for name in aggregate.PHASES}
        peaks = [worker.peak_bytes or 0 for worker in launch.memory.workers] if launch.memory else []
        yield _launch_identity_cells(campaign, run, launch) | {
            "failure": launch.failures[0].code if launch.failures else None,
            "iterations": len(launch.timed_iterations),
            "wall_seconds": aggregate.launch_median(launch, aggregate.wall_seconds),
            "throughput": aggregate.launch_median(launch, aggregate.throughput),
            "bandwidth": aggregate.launch_median(launch, aggregate.bandwidth),
            **{f"{name}_seconds": seconds for name, seconds in phases.items()},
            "link_limit": aggregate.link_limit([launch]),
            "link_fraction": aggregate.launch_median(launch, aggregate.link_limit_fraction),
            "peak_memory_bytes": max(peaks, default=None),
            "gpu_joules_per_merge": energy.gpu_joules_per_merge(launch),
            "cpu_joules_per_merge": energy.cpu_joules_per_merge(launch),
            "startup_seconds": launch.line.startup_seconds if launch.line else None,
            "seconds": launch.end.seconds if launch.end else None,
        }


def probe_rows(campaign: Campaign) -> Rows:
    """Yield a row for every result of a network measurement."""
    names = ("probe", "test", "method", "placement", "memory", "size", "count", "iterations", "seconds")
    for launch in campaign.launches_not_replaced:
        for line in launch.probes:
            yield {
                "campaign": campaign.head.campaign_id,
                "config": launch.line.config if launch.line else None,
                "launch": launch.index,
                **{name: getattr(line, name) for name in names},
                "bandwidth": line.bandwidth_bytes_per_second,
                "messages_per_second": line.messages_per_second,
                "ranks": ",".join(map(str, line.ranks)),
                "hosts": ",".join(line.hosts),
                "selected": ",".join(line.selected),
                "protocol": line.protocol,
                "link_limit": line.limit_bytes_per_second,
                "wrong": line.wrong,
                "as_requested": line.as_requested,
            }


def make_flat_table(
    campaigns: Sequence[Campaign], describe_merge: Callable[[RecordedPlan], dict[str, str]]
) -> tuple[Mapping[str, type], list[dict[str, Any]]]:
    """Make one table of campaigns; returns the type of each column by name, and the rows.

    A row is a timed iteration of a merge, a network measurement, or a launch of a command. `describe_merge`: returns
    the ``problem`` and the ``options`` of a merge as text. Raises UsageError if nothing was measured, or if the
    campaigns measured different kinds of things, whose columns differ.
    """
    kinds = {_table_kind_of_campaign(campaign) for campaign in campaigns}
    if len(kinds) > 1:
        raise UsageError(f"{' and '.join(sorted(kinds))} have different columns; export them into separate files")
    columns, make = _TABLES[kinds.pop()]
    measured = (row for campaign in campaigns for row in make(campaign))
    if make is _iteration_rows_with_totals:
        measured = (row for campaign in campaigns for row in _described_merge_rows(campaign, describe_merge))
    if make is command_rows:  # whose metrics have a person's names
        columns = {**columns, **dict.fromkeys(map(_metric_column_name, _metrics_besides_wall_time(campaigns)), float)}
        named = measured
    else:
        named = ({_WITH_UNIT.get(name, name): value for name, value in row.items()} for row in measured)
    rows = [{name: row.get(name) for name in columns} for row in named]
    if not rows:
        raise UsageError(f"{campaigns[0].folder} contains no measurements to export")
    return columns, rows


def _iteration_rows_with_totals(campaign: Campaign) -> Rows:
    """Yield a row for every timed iteration, with all columns of the flat table of merges."""
    rows = iteration_rows(campaign)
    for run in campaign.runs:
        plan, verification = run.plan, verification_state(run, aggregate.complete_launches(run)).value
        timed = [(launch, iteration) for launch in run.launches for iteration in launch.timed_iterations]
        for launch, iteration in timed:
            yield next(rows) | {
                "how": plan.how,
                "distribution": plan.distribution,
                "pipeline": plan.pipeline,
                "verification": verification,
                "time_unix_seconds": iteration.time,
                **{f"{name}_seconds": aggregate.phase_seconds(name)(launch, iteration) for name in aggregate.PHASES},
                "sent_bytes": _sum_if_all_known(
                    aggregate.sum_of_both_frames(worker.sent_bytes) for worker in iteration.workers
                ),
                "result_rows": _sum_if_all_known(worker.result_rows for worker in iteration.workers),
            }


def _described_merge_rows(campaign: Campaign, describe_merge: Callable[[RecordedPlan], dict[str, str]]) -> Rows:
    """The rows of a flat table of merges, with the cells that describe each merge."""
    described = {run.plan_index: describe_merge(run.plan) for run in campaign.runs}
    return (row | described[row["plan"]] for row in _iteration_rows_with_totals(campaign))


_TABLES: Mapping[str, tuple[Mapping[str, type], Callable[[Campaign], Rows]]] = {
    "merges": (COLUMNS, _iteration_rows_with_totals),
    "network measurements": (PROBE_COLUMNS, probe_rows),
    "commands": (COMMAND_COLUMNS, command_rows),
}
"""By what was measured, the columns of a flat table and its rows."""


def _table_kind_of_campaign(campaign: Campaign) -> str:
    """The kind of flat table for a campaign: ``merges``, ``network measurements`` or ``commands``."""
    if campaign.probe is not None:
        return "network measurements"
    return "merges" if campaign.command is None else "commands"


def _metrics_besides_wall_time(campaigns: Sequence[Campaign]) -> Iterator[Metric]:
    """The metrics of all commands in `campaigns` but the wall-clock; each has a column of its own."""
    commands = (plan.command for campaign in campaigns for plan in campaign.plans if plan.command is not None)
    return (metric for each in commands for metric in metrics_of_command(each.metrics) if metric.name != WALL)


def _sum_if_all_known(values: Iterator[int | None]) -> int | None:
    """The sum of the values; None if there are no values, or one of them is None."""
    every = list(values)
    measured = [value for value in every if value is not None]
    return sum(measured) if measured and len(measured) == len(every) else None


def _runs_with_launches(campaign: Campaign) -> Iterator[tuple[Run, Launch]]:
    return ((run, launch) for run in campaign.runs for launch in run.launches)


def _launch_identity_cells(campaign: Campaign, run: Run, launch: Launch) -> dict[str, Any]:
    """The cells that identify a launch, by column: campaign, config, plan, launch, …; `complete`: whether it counts."""
    return {
        "campaign": campaign.head.campaign_id,
        "config": run.config.name,
        "plan": run.plan_index,
        "engine": run.plan.engine,
        "exchange": run.plan.exchange,
        "rows_per_chunk": run.plan.rows_per_chunk,
        "question": run.plan.question or None,
        "workers": run.plan.workers,
        "launch": launch.index,
        "block": launch.block_index,
        "complete": launch.complete,
    }
