"""Merges on GPUs: run as a user runs them, read back from what they print, and judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.on_gpu.figures import bandwidth_shares
from benchmarks.on_gpu.steps import Finding
from benchmarks.processes import Document, options, run_merge_bench, surroundings
from merge_bench.errors import GateNotMet, RunFailed
from merge_bench.units import format_bytes, format_count, format_rate, format_seconds

CONFIG = "optimized.cfg"
CUDF = "cudf"
UCX = "ucx"
DEVICE_LANE = "cuda_ipc"
ENERGY = "energy"  # the field of a run's document with joules, clocks and throttling of its GPUs, where it has one


@dataclass(frozen=True)
class Merge:
    """One run. `sharers`: workers on each GPU; `exchange`: a data plane that exchanges rows over UCX.

    `launches`: of each exchange, in turn; `exchange` may then be several, as ``ucx,rapidsmpf``. Their records hold no
    timelines, so that they stay small.
    """

    workers: int
    sharers: int
    rows: int
    exchange: str = "ucx"
    iterations: int = 10
    link_rounds: int = 5
    check_link: bool = False
    engine: str = CUDF
    launches: int = 1

    @property
    def gpus(self) -> int:
        """How many GPUs it takes."""
        return -(-self.workers // self.sharers)

    def options(self) -> list[str]:
        """The options of `run`."""
        return options(
            config=CONFIG,
            engine=self.engine,
            exchange=self.exchange,
            workers=self.workers,
            workers_per_gpu=self.sharers,
            chunk=self.rows,
            iterations=self.iterations,
            warmup=2,
            link_rounds=self.link_rounds,
            start_timeout=120,
            timeout=60,
            check_link=self.check_link,
            launches=self.launches if self.launches > 1 else None,
            timeline="off",
        )


def run(merge: Merge, name: str, folder: Path, limit: float, variables: Mapping[str, str] | None = None) -> Document:
    """The document that the run prints; its records are in ``runs/<name>``, its output is in ``logs``.

    `variables`: of its environment, besides this process's own.

    Raises
    ------
    RunFailed
        If it failed, or did not finish within `limit` seconds.
    """
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    chosen = [*merge.options(), "--results", str(folder / "runs" / name)]
    return run_merge_bench(chosen, {**surroundings(), **(variables or {})}, folder / "logs" / name, limit)[0]


def judge(merge: Merge, document: Document, device_bandwidth: int | None) -> Finding:
    """What a run proves and measures; it fails if a pair of workers does not use `cuda_ipc`."""
    if not document["verified"]:
        return Finding("the merge result was not verified", status=RunFailed.exit_status)
    if document["plan"]["engine"] != merge.engine:
        return Finding(
            f"the run used the engine {document['plan']['engine']}, not {merge.engine}", status=RunFailed.exit_status
        )
    figures: dict[str, Any] = {
        "rows_per_chunk": merge.rows,
        "workers": merge.workers,
        "workers_per_gpu": merge.sharers,
        "engine": merge.engine,
        "exchange": document["plan"].get("exchange", merge.exchange),
        "wall_seconds": document["wall_seconds"],
        "warnings": document["warnings"],
        "throughput_bytes_per_second": document["throughput_bytes_per_second"],
        "run_id": document.get("run_id"),
        ENERGY: document.get(ENERGY),
    }
    parts = [
        f"{format_count(document['result_rows'])} rows verified",
        f"{format_seconds(document['wall_seconds']['median'])} per merge",
        format_rate(document["throughput_bytes_per_second"]["median"]),
    ]
    parts += _gpu_state(document.get(ENERGY))
    status = 0
    if document.get("phases_seconds"):
        peaks = [each["device_peak"] for each in document["peak_memory_bytes"]["per_worker"]]
        known = [peak for peak in peaks if peak is not None]
        figures |= {
            "phases_seconds": document["phases_seconds"],
            "device_peak_bytes": peaks,
            "memory_bandwidth": bandwidth_shares(document, merge.gpus, device_bandwidth),
            "device_memory_bandwidth": device_bandwidth,
        }
        parts += [f"device peak {format_bytes(max(known))}"] if known else []
        if merge.workers > 1 and figures["exchange"] == UCX:
            figures |= {"link": document["link"], "lanes": document["lanes"], "protocols": document.get("protocols")}
            parts += _link(document["link"])
            lacking = without_device_lane(document["lanes"])
            parts.append(lacking or f"every pair over {DEVICE_LANE}")
            status = GateNotMet.exit_status if lacking else 0
    return Finding(", ".join(parts), figures, status)


def compare(merge: Merge, document: Document, bandwidth: int | None) -> Finding:
    """What a campaign of several exchanges proves, and how many times as fast the first one is as each other."""
    found = {run["plan"]["exchange"]: judge(merge, run, bandwidth) for run in document["runs"]}
    status = max(each.status for each in found.values())
    medians = {name: each.figures["wall_seconds"]["median"] for name, each in found.items() if each.figures}
    first, *others = merge.exchange.split(",")
    ratios = {name: medians[name] / medians[first] for name in others if {name, first} <= medians.keys()}
    parts = [f"{first} is {ratio:.2f} times as fast as {name}" for name, ratio in ratios.items()]
    parts += [f"{name}: {each.sentence}" for name, each in found.items()]
    figures = {"ratios": ratios, "exchanges": {name: dict(each.figures) for name, each in found.items()}}
    return Finding("; ".join(parts), figures, status)


def without_device_lane(pairs: Sequence[Document]) -> str | None:
    """The first pair of a document's lanes that does not use `cuda_ipc`, in words; None if all do."""
    for pair in pairs:
        if not any(lane.partition("/")[0] == DEVICE_LANE for lane in pair["transports"]):
            uses = ", ".join(pair["transports"]) or "no transport that UCX reports"
            return f"rank {pair['from']} to rank {pair['to']} does not use {DEVICE_LANE}, but {uses}"
    return None if pairs else "no transports were recorded"


def _gpu_state(energy: Document | None) -> list[str]:
    """Joules of a merge and the clock of each GPU, as far as they are known."""
    if not energy:
        return []
    joules = energy.get("joules_per_merge")
    parts = [] if joules is None else [f"{joules:.3g} J per merge"]
    for gpu in energy.get("gpus") or []:
        if gpu.get("sm_mhz") is not None:
            parts.append(f"GPU {gpu['index']} at {gpu['sm_mhz']} of {gpu.get('max_sm_mhz') or '?'} MHz")
    return parts


def _link(link: Document | None) -> list[str]:
    if link is None or link["limit_bytes_per_second"] is None:
        return []
    parts = [f"link limit {format_rate(link['limit_bytes_per_second'])} per worker"]
    parts += [f"fraction {link['fraction']:.2f}"] if link["fraction"] is not None else []
    checked = link.get("check_bytes_per_second")
    return parts + ([f"ucx_perftest {format_rate(checked)}"] if checked else [])
