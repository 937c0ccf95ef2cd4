"""The table of workers with their GPUs, NUMA nodes and RDMA ports."""

from __future__ import annotations

from collections.abc import Sequence

from merge_bench.host.pinning import Binding
from merge_bench.view.content import Page, by_row

HEADINGS = (
    "Rank",
    "Worker",
    "Host",
    "GPU",
    "NUMA node\nof GPU",
    "NUMA nodes\nof cores",
    "RDMA ports",
    "Nearest port",
    "Fits",
)


def write_bindings(page: Page, bindings: Sequence[Binding]) -> None:
    """Put the table on a page, if there is a GPU or an RDMA port."""
    if not any(each.gpu is not None or each.ports or each.near for each in bindings):
        return
    page.heading("Workers, their GPUs and RDMA ports")
    rows = [
        (
            _text(each.rank), each.worker if each.rank is None else "", each.host,
            _text(each.gpu), _text(each.gpu_node),
            ", ".join(map(str, each.core_nodes)), ", ".join(each.ports) or "none", each.distance or "",
            "no" if each.problems else "yes" if each.near and each.ports else "",
        )
        for each in bindings
    ]  # fmt: skip
    page.table(*by_row(HEADINGS, rows, range(len(HEADINGS))))
    for each in bindings:
        for problem in each.problems:
            who = f"rank {each.rank}" if each.rank is not None else each.worker
            page.line(f"{who} on {each.host}: {problem}", "yellow")


def _text(value: object) -> str:
    return "" if value is None else str(value)
