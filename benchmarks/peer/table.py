"""The rows of the comparison's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.peer.ratios import Standing
from merge_bench.units import GIB

HEADINGS = (
    "peer", "version", "launches", "wall s", "throughput GiB/s", "ours / peer", "interval", "peak GiB", "result",
)  # fmt: skip
TEXT = (0, 1, 6, 8)


def cells(
    lines: Sequence[Standing], versions: Mapping[str, str], results: Mapping[str, str], counted: set[str], data: int
) -> list[tuple[str, ...]]:
    """The table's rows. `counted`: the fastest of each family, marked; `data`: bytes processed by an iteration."""
    return [
        (
            f"{line.contender} *" if line.contender in counted else line.contender,
            versions.get(line.contender, "-"),
            f"{line.launches - line.failed} of {line.launches}" if line.failed else str(line.launches),
            "-" if line.wall is None else f"{line.wall:.4g}",
            "-" if line.wall is None else f"{data / line.wall / GIB:.3f}",
            "-" if line.ratio is None else f"{line.ratio.median:.2f}",
            "-" if line.ratio is None else str(line.ratio),
            "-" if line.peak_bytes is None else f"{line.peak_bytes / GIB:.2f}",
            results.get(line.contender, "-"),
        )
        for line in lines
    ]
