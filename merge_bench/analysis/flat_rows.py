"""Results as one flat table, for CSV and Parquet: the rows of `dataframes`, with the unit in each column's name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from merge_bench.analysis import aggregate, dataframes
from merge_bench.analysis.verification_state import state_of
from merge_bench.errors import UsageError
from merge_bench.records.campaign import Campaign

COLUMNS: Mapping[str, type] = {
    "campaign": str, "config": str, "plan": int, "engine": str, "exchange": str,
    "how": str, "question": str, "distribution": str, "pipeline": bool, "rows_per_chunk": int, "workers": int,
    "launch": int, "block": int, "complete": bool, "verification": str, "iteration": int, "time_unix_seconds": float,
    "wall_seconds": float, "partition_seconds": float, "exchange_seconds": float, "join_seconds": float,
    "throughput_bytes_per_second": float, "bandwidth_bytes_per_second": float, "link_fraction": float,
    "sent_bytes": int, "result_rows": int,
}  # fmt: skip
"""Columns of a table of merges. Phases: the longest time of any worker; bytes and rows: sums over all workers."""

PROBE_COLUMNS: Mapping[str, type] = {
    "campaign": str, "config": str, "launch": int, "probe": str, "test": str, "method": str, "placement": str,
    "memory": str, "ranks": str, "hosts": str, "size_bytes": int, "count_elements": int, "iterations": int,
    "seconds": float, "bandwidth_bytes_per_second": float, "messages_per_second": float, "selected": str,
    "protocol": str, "link_limit_bytes_per_second": float, "wrong_elements": int, "as_requested": bool,
}  # fmt: skip
"""Columns of a table of network measurements."""

_UNITS = {
    "throughput": "throughput_bytes_per_second", "bandwidth": "bandwidth_bytes_per_second", "size": "size_bytes",
    "wrong": "wrong_elements", "count": "count_elements", "link_limit": "link_limit_bytes_per_second",
}  # fmt: skip


def flat_rows(campaigns: Sequence[Campaign]) -> tuple[Mapping[str, type], list[dict[str, Any]]]:
    """The columns with their types, and a row for every timed iteration, or for every row of a network measurement.

    Raises
    ------
    UsageError
        If nothing was measured, or there are merges beside network measurements, which have other columns.
    """
    kinds = {campaign.probe is not None for campaign in campaigns}
    if len(kinds) > 1:
        raise UsageError("merges and network measurements have different columns; export them into separate files")
    of_probes = True in kinds
    make = _probe_rows if of_probes else _iteration_rows
    columns = PROBE_COLUMNS if of_probes else COLUMNS
    rows = [{name: row.get(name) for name in columns} for campaign in campaigns for row in make(campaign)]
    if not rows:
        raise UsageError(f"{campaigns[0].folder} contains no measurements to export")
    return columns, rows


def _probe_rows(campaign: Campaign) -> Iterator[dict[str, Any]]:
    return map(_with_unit_names, dataframes.probes(campaign))


def _iteration_rows(campaign: Campaign) -> Iterator[dict[str, Any]]:
    """The rows of `dataframes.iterations`, with the further columns that a flat table has."""
    extra_columns = (
        {
            "engine": run.plan.engine,
            "exchange": run.plan.exchange,
            "how": run.plan.how,
            "distribution": run.plan.distribution,
            "pipeline": run.plan.pipeline,
            "verification": verification,
            "time_unix_seconds": each.time,
            **{f"{name}_seconds": aggregate.phase_seconds(name)(launch, each) for name in aggregate.PHASES},
            "sent_bytes": _sum_if_all_known(
                worker.sent_bytes.left + worker.sent_bytes.right if worker.sent_bytes else None
                for worker in each.workers
            ),
            "result_rows": _sum_if_all_known(worker.result_rows for worker in each.workers),
        }
        for run in campaign.runs
        for verification in [state_of(run, aggregate.complete_launches(run)).value]
        for launch in run.launches
        for each in launch.timed
    )
    for row, own in zip(dataframes.iterations(campaign), extra_columns, strict=True):
        yield _with_unit_names(row) | own


def _with_unit_names(row: dict[str, Any]) -> dict[str, Any]:
    return {_UNITS.get(name, name): value for name, value in row.items()}


def _sum_if_all_known(values: Iterator[int | None]) -> int | None:
    """The sum of the values; None if there are no values, or one of them is None."""
    every = list(values)
    measured = [value for value in every if value is not None]
    return sum(measured) if measured and len(measured) == len(every) else None
