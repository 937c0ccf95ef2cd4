"""The comparison for people: one set of cells, printed aligned or as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.peer.ratios import Ratio, Standing
from merge_bench.units import GIB

HEADINGS = (
    "peer", "version", "launches", "wall s", "throughput GiB/s", "ours / peer", "interval", "peak GiB", "result",
)  # fmt: skip


def cells(
    lines: Sequence[Standing], versions: Mapping[str, str], results: Mapping[str, str], counted: set[str], data: int
) -> list[tuple[str, ...]]:
    """The table's rows. `counted`: the fastest of each family, marked; `data`: bytes processed by an iteration."""
    rows: list[tuple[str, ...]] = []
    for line in lines:
        name = line.contender
        launches = f"{line.launches - line.failed} of {line.launches}" if line.failed else str(line.launches)
        rows.append(
            (
                f"{name} *" if name in counted else name,
                versions.get(name, "-"),
                launches,
                "-" if line.wall is None else f"{line.wall:.4g}",
                "-" if line.wall is None else f"{data / line.wall / GIB:.3f}",
                "-" if line.ratio is None else f"{line.ratio.median:.2f}",
                "-" if line.ratio is None else interval(line.ratio),
                "-" if line.peak_bytes is None else f"{line.peak_bytes / GIB:.2f}",
                results.get(name, "-"),
            )
        )
    return rows


def interval(ratio: Ratio) -> str:
    """``1.31–1.42 (97 %)``, or ``1.31–1.42 (min–max of 3)`` where blocks are too few."""
    what = f"min–max of {ratio.blocks}" if ratio.coverage is None else f"{100 * ratio.coverage:.0f} %"
    return f"{ratio.low:.2f}–{ratio.high:.2f} ({what})"


def aligned(rows: Sequence[tuple[str, ...]]) -> str:
    """The table in columns of even width; numbers to the right."""
    widths = [max(len(row[k]) for row in (HEADINGS, *rows)) for k in range(len(HEADINGS))]
    text = {0, 1, 6, 8}
    shown = []
    for row in (HEADINGS, tuple("-" * width for width in widths), *rows):
        parts = [
            cell.ljust(width) if k in text else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        shown.append("  ".join(parts).rstrip())
    return "\n".join(shown)


def markdown(rows: Sequence[tuple[str, ...]]) -> str:
    """The table in Markdown."""
    rule = tuple("---" if k in (0, 1, 6, 8) else "---:" for k in range(len(HEADINGS)))
    return "\n".join(
        "| " + " | ".join(cell.replace("*", "\\*") for cell in row) + " |" for row in (HEADINGS, rule, *rows)
    )
