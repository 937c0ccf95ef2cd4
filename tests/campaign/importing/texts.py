"""Texts as cudf-merge prints them, in the layouts that it has had, of numbers chosen here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dask.utils import format_bytes, format_time

from merge_bench.analysis.statistics import harmonic_mean
from merge_bench.campaign.importers.cudf_merge import CudfMergeReport, read_report

LAYOUTS = ("2022", "ucxx", "ucx-py")
WALLS = (0.04916, 0.05043, 0.11972)
BANDWIDTHS = (1.10 * 2**30, 1.07 * 2**30, 825.80 * 2**20)
FILE = Path("merge.out")


def fallback_time(seconds: float) -> str:
    """What cudf-merge prints where Dask is not installed."""
    for limit, factor, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if seconds < limit:
            return f"{seconds * factor:.3f} {unit}"
    return f"{seconds:.3f} s"


def fallback_bytes(count: float) -> str:
    """What cudf-merge prints where Dask is not installed."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power:
            return f"{count / 1024**power:.2f} {unit}"
    return f"{count} B"


def text(
    layout: str = "2022",
    *,
    workers: int = 16,
    rows: int = 1_000_000,
    walls: Sequence[float] = WALLS,
    bandwidths: Sequence[float] = BANDWIDTHS,
    devices: str | None = None,
    time_text: Callable[[float], str] = format_time,
    bytes_text: Callable[[float], str] = format_bytes,
) -> str:
    """The output of a run; `devices` is what stands beside ``Device(s)``, one chunk on each of the workers else."""
    data = workers * rows * 32
    whole = sum(walls) + 0.001
    of_gpu = layout == "ucx-py"
    who = (
        [("Number of devices", str(workers))]
        if layout == "2022"
        else [("Device(s)", devices or str(list(range(workers // 2)))), ("Chunks per device", "1" if devices else "2")]
    )
    facts = [
        *who,
        ("Rows per chunk", str(rows)),
        ("Total data processed", bytes_text(data * len(walls))),
        ("Data processed per iter", bytes_text(data)),
        *([] if layout == "2022" else [("Row matching fraction", "0.3")]),
    ]
    bandwidth, throughput = ("Avg Bandwidth / GPU", "Throughput / GPU") if of_gpu else ("Bandwidth", "Throughput")
    headline = [
        ("Wall-clock", time_text(whole)),
        (bandwidth, f"{bytes_text(harmonic_mean(bandwidths))}/s"),
        (throughput, f"{bytes_text(data * len(walls) / whole)}/s"),
    ]
    table = [
        ("Iteration" if layout == "2022" else "Run", "Wall-clock", bandwidth, throughput),
        *(
            (str(index), time_text(wall), f"{bytes_text(rate)}/s", f"{bytes_text(data / wall)}/s")
            for index, (wall, rate) in enumerate(zip(walls, bandwidths, strict=True))
        ),
    ]
    lines = ["cuDF merge benchmark", "-" * 110, *map(_line, facts), "=" * 110, *map(_line, headline), "=" * 110]
    return "\n".join([*lines, *map(_line, table)]) + "\n"


def read(content: str) -> CudfMergeReport:
    """The report in `content`."""
    return read_report(FILE, content.encode())


def _line(cells: Sequence[str]) -> str:
    return "".join(f"{cell: <25} | " for cell in cells[:-1]) + cells[-1]
