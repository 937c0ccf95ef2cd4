"""A campaign's records → the document that ``run --json`` prints.

Everything is recomputed from the lines, so that a result reads the same today, from a file, or on another machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from merge_bench.analysis import aggregate, diagnostics, metrics, transport_summary
from merge_bench.analysis.statistics import median, median_interval, quartiles
from merge_bench.analysis.verification_state import State, state_of
from merge_bench.records.campaign import Campaign, Launch, Run
from merge_bench.records.schema import SCHEMA

Document = dict[str, Any]


def summarize(campaign: Campaign) -> Document:
    """The ``run --json`` document of `campaign`; `docs/records.md` names every key.

    One run gives one document; a sweep gives ``{"schema", "records", "runs": [...]}``, a document for each
    config and plan in the order they were asked for.
    """
    runs = campaign.runs
    if len(runs) == 1:
        return summarize_run(campaign, runs[0], campaign.head.campaign_id)
    return {
        "schema": SCHEMA,
        "records": str(campaign.records),
        "runs": [
            summarize_run(campaign, run, f"{campaign.head.campaign_id}/{index}") for index, run in enumerate(runs)
        ],
    }


def summarize_run(campaign: Campaign, run: Run, run_id: str) -> Document:
    """The document of one run of `campaign`."""
    launches = aggregate.counted(run)
    state = state_of(run, launches)
    workers = aggregate.worker_figures(launches)
    lines = [launch.lanes for launch in launches or run.launches if launch.lanes is not None]
    lanes = transport_summary.lanes(lines)
    return {
        "schema": SCHEMA,
        "run_id": run_id,
        "records": str(campaign.records),
        "config": {"name": run.config.name, "path": run.config.path, "variables": dict(run.config.variables)},
        "plan": {"hosts": _hosts(launches), **run.plan},
        "verified": state is State.VERIFIED,
        "result_rows": _result_rows(launches),
        "wall_seconds": _wall(launches),
        "throughput_bytes_per_second": _throughput(launches),
        "bandwidth_bytes_per_second": _bandwidth(workers, launches),
        "phases_seconds": {
            name: aggregate.middle(aggregate.samples(launches, aggregate.phase(name))) for name in aggregate.PHASES
        },
        "link": _link(run, launches, lanes),
        "lanes": lanes,
        "requested_transports": transport_summary.requested(lines),
        "protocols": transport_summary.protocols(lines),
        "traffic": transport_summary.traffic(launches),
        "peak_memory_bytes": _memory(workers),
        "imported": msgspec.to_builtins(campaign.head.imported_from),
        "warnings": diagnostics.warnings(campaign, run, launches, workers, state),
        "error": diagnostics.error(campaign, run),
    }


def _hosts(launches: Sequence[Launch]) -> list[str]:
    """The hosts of the workers by rank, each once."""
    lines = [launch.line for launch in launches if launch.line is not None]
    return list(dict.fromkeys(worker.host for line in lines for worker in line.workers))


def _over_launches(samples: Sequence[float], iterations: Sequence[float]) -> Document:
    """Median and interval over launches; quartiles over all the iterations of them."""
    interval = median_interval(samples)
    spread = quartiles(iterations) if iterations else None
    return {
        "median": median(samples) if samples else None,
        "ci95": None if interval is None else [interval.low, interval.high],
        "quartiles": None if spread is None else [spread[0], spread[2]],
    }


def _wall(launches: Sequence[Launch]) -> Document:
    walls = [iteration.wall_seconds for launch in launches for iteration in launch.timed]
    found = _over_launches(aggregate.samples(launches, aggregate.wall), walls)
    return found | {"min": min(walls, default=None), "max": max(walls, default=None)}


def _throughput(launches: Sequence[Launch]) -> Document:
    rates = [rate for launch in launches for rate in aggregate.throughputs(launch)]
    return _over_launches(aggregate.throughput_samples(launches), rates)


def _bandwidth(workers: Sequence[aggregate.WorkerFigures], launches: Sequence[Launch]) -> Document:
    """Over workers; an imported result has that of each iteration alone, of which this is the median."""
    known = [worker.bandwidth.mean for worker in workers if worker.bandwidth.mean is not None]
    printed = aggregate.samples([launch for launch in launches if not known], metrics.iteration_bandwidth)
    return {
        "harmonic_mean": metrics.over_workers(known) if known else aggregate.middle(printed),
        "min": min(known, default=None),
        "max": max(known, default=None),
        "per_worker": [
            {
                "rank": worker.rank,
                "host": worker.host,
                "left": worker.bandwidth.left,
                "right": worker.bandwidth.right,
                "mean": worker.bandwidth.mean,
            }
            for worker in workers
        ],
    }


def _link(run: Run, launches: Sequence[Launch], lanes: Sequence[Document]) -> Document | None:
    limit = aggregate.link_limit(launches)
    if limit is None:
        return None
    transports = {transport for lane in lanes for transport in lane["transports"]}
    ratio = aggregate.wall_over_wire(launches)
    pipeline = run.plan.get("pipeline") is True
    busy = aggregate.computing(launches), aggregate.cores_used(launches)
    return {
        "limit_bytes_per_second": limit,
        "fraction": aggregate.link_fraction(launches),
        "check_bytes_per_second": aggregate.link_check(launches),
        "not_checked": aggregate.link_not_checked(run, launches),
        "wall_ratio": ratio,
        "bottleneck": metrics.bottleneck(ratio, *busy) if pipeline else None,
        "transports": sorted(transports),
    }


def _memory(workers: Sequence[aggregate.WorkerFigures]) -> Document:
    peaks = [worker.peak_bytes for worker in workers if worker.peak_bytes is not None]
    return {
        "max": max(peaks, default=None),
        "per_worker": [
            {
                "rank": worker.rank,
                "host": worker.host,
                "peak": worker.peak_bytes,
                "above_imports": worker.peak_above_imports_bytes,
                "device_peak": worker.device_peak_bytes,
                "device_above_imports": worker.device_peak_above_imports_bytes,
                "input": worker.input_bytes,
            }
            for worker in workers
        ],
    }


def _result_rows(launches: Sequence[Launch]) -> int | None:
    """Rows of the merged table: as the workers counted them last, else as the verification did."""
    for launch in reversed(launches):
        for iteration in reversed(launch.timed):
            rows = [worker.result_rows for worker in iteration.workers]
            if rows and None not in rows:
                return sum(row for row in rows if row is not None)
        for check in reversed(launch.verifications):
            if check.rows is not None:
                return check.rows
    return None
