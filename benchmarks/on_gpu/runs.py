"""Merges on GPUs: run as a user runs them, read back from what they print, and judged."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.on_gpu.figures import bandwidth_shares
from benchmarks.on_gpu.steps import Finding
from benchmarks.peer.children import run_limited
from merge_bench.cluster.supervisor import tail
from merge_bench.errors import GateNotMet, RunFailed
from merge_bench.units import format_bytes, format_count, format_rate, format_seconds

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "optimized.cfg"
CUDF = "cudf"
DEVICE_LANE = "cuda_ipc"
Document = Mapping[str, Any]


@dataclass(frozen=True)
class Merge:
    """One run. `sharers`: workers on each GPU; `exchange`: ``ucx``, or ``dask-p2p`` or ``dask-tasks``.

    With an `engine` that merges in host memory GPUs are left alone.
    """

    workers: int
    sharers: int
    rows: int
    exchange: str = "ucx"
    iterations: int = 10
    link_rounds: int = 5
    check_link: bool = False
    engine: str = CUDF

    @property
    def gpus(self) -> int:
        """How many GPUs it takes."""
        return -(-self.workers // self.sharers)

    def options(self) -> list[str]:
        """What `run` is told."""
        plane, _, shuffle = self.exchange.partition("-")
        words = [
            "--config", CONFIG, "--engine", self.engine, "--exchange", plane, "--workers", str(self.workers),
            "--workers-per-gpu", str(self.sharers), "--chunk", str(self.rows), "--iterations", str(self.iterations),
            "--warmup", "2", "--link-rounds", str(self.link_rounds), "--start-timeout", "120", "--timeout", "60",
        ]  # fmt: skip
        words += ["--shuffle", shuffle] if shuffle else []
        return words + (["--check-link"] if self.check_link else [])


def run(merge: Merge, name: str, folder: Path, limit: float) -> Document:
    """The document that the run prints; its records lie under ``runs/<name>`` and its output under ``logs``.

    Raises
    ------
    RunFailed
        If it printed none, or was not done after `limit` seconds.
    """
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    output, errors = logs / f"{name}.out", logs / f"{name}.err"
    argv = [
        sys.executable, "-m", "merge_bench", "run", *merge.options(), "--json", "--results",
        str(folder / "runs" / name),
    ]  # fmt: skip
    ended = run_limited(argv, surroundings(), ROOT, output, errors, limit)
    if ended.timed_out:
        raise RunFailed(f"it was not done after {limit:.0f} s")
    try:
        document: Document = json.loads(output.read_text())
    except ValueError:
        raise RunFailed(f"status {ended.status}: {tail(errors, 1) or 'it said nothing'}") from None
    error = document.get("error")
    if error or ended.status:
        failed = RunFailed(error["message"] if error else f"it ended with status {ended.status}")
        failed.exit_status = ended.status or RunFailed.exit_status
        raise failed
    return document


def surroundings() -> dict[str, str]:
    """This process's environment with this checkout's packages first."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


def judge(merge: Merge, document: Document, device_bandwidth: int | None) -> Finding:
    """What a run proves and measures; a pair of workers without `cuda_ipc` is a gate that was not met."""
    if not document["verified"]:
        return Finding("its result was not verified", status=RunFailed.exit_status)
    if document["plan"]["engine"] != merge.engine:
        return Finding(f"engine {document['plan']['engine']} merged, not {merge.engine}", status=RunFailed.exit_status)
    figures: dict[str, Any] = {
        "rows_per_chunk": merge.rows, "workers": merge.workers, "workers_per_gpu": merge.sharers,
        "engine": merge.engine, "exchange": merge.exchange, "wall_seconds": document["wall_seconds"],
        "throughput_bytes_per_second": document["throughput_bytes_per_second"], "warnings": document["warnings"],
    }  # fmt: skip
    said = [
        f"{format_count(document['result_rows'])} rows verified",
        f"{format_seconds(document['wall_seconds']['median'])} a merge",
        format_rate(document["throughput_bytes_per_second"]["median"]),
    ]
    status = 0
    if merge.exchange == "ucx" and merge.engine == CUDF:
        peaks = [each["device_peak"] for each in document["peak_memory_bytes"]["per_worker"]]
        known = [peak for peak in peaks if peak is not None]
        figures |= {
            "phases_seconds": document["phases_seconds"], "device_peak_bytes": peaks,
            "memory_bandwidth": bandwidth_shares(document, merge.gpus, device_bandwidth),
            "device_memory_bandwidth": device_bandwidth,
        }  # fmt: skip
        said += [f"device peak {format_bytes(max(known))}"] if known else []
        if merge.workers > 1:
            figures |= {"link": document["link"], "lanes": document["lanes"], "protocols": document.get("protocols")}
            said += _link(document["link"])
            lacking = without_device_lane(document["lanes"])
            said.append(lacking or f"every pair over {DEVICE_LANE}")
            status = GateNotMet.exit_status if lacking else 0
    return Finding(", ".join(said), figures, status)


def without_device_lane(lanes: Sequence[Mapping[str, Any]]) -> str | None:
    """The first pair whose recorded lanes hold no `cuda_ipc`, in words; None if all do."""
    if not lanes:
        return "no lanes were recorded"
    for pair in lanes:
        if not any(lane.startswith(f"{DEVICE_LANE}/") for lane in pair["transports"]):
            uses = ", ".join(pair["transports"]) or "nothing that UCX tells of"
            return f"rank {pair['from']} to rank {pair['to']} uses no {DEVICE_LANE} but {uses}"
    return None


def _link(link: Document | None) -> list[str]:
    if link is None or link["limit_bytes_per_second"] is None:
        return []
    said = [f"link limit {format_rate(link['limit_bytes_per_second'])} a worker"]
    said += [f"fraction {link['fraction']:.2f}"] if link["fraction"] is not None else []
    checked = link.get("check_bytes_per_second")
    return said + ([f"ucx_perftest {format_rate(checked)}"] if checked else [])
