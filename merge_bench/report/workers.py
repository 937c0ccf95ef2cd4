"""The part of the report about single workers and pairs of workers."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from merge_bench.analysis.aggregate import WorkerFigures, pair_figures
from merge_bench.analysis.documents import RunDocument
from merge_bench.analysis.uneven_ranks import overloaded_ranks, straggling_rank
from merge_bench.records.campaign import Launch
from merge_bench.report.run_sections import why_absent
from merge_bench.view.content import Column, Page, by_pair
from merge_bench.view.numbers import gib, mib, ms, number, rows

_LARGEST_MATRIX = 8
_MOST_ROWS = 64

NOT_MEASURED = "not measured"


def write_workers(page: Page, document: RunDocument, workers: Sequence[WorkerFigures], mark: str | None) -> None:
    """Put a table with a row for each worker on a page; its last column marks slow and overloaded workers."""
    shown = list(workers) if page.whole else _workers_to_show(workers)
    who = [
        Column("Rank", [str(w.rank) for w in shown]),
        Column("Host", [w.host for w in shown], text=True),
    ]
    speed = [
        Column("Left\n(GiB/s)", [gib(w.bandwidth.left) for w in shown]),
        Column("Right\n(GiB/s)", [gib(w.bandwidth.right) for w in shown]),
        Column("Mean\n(GiB/s)", [gib(w.bandwidth.mean) for w in shown]),
        Column("Partition\n(ms)", [ms(w.partition) for w in shown]),
        Column("Exchange\n(ms)", [ms(w.exchange) for w in shown]),
        Column("Join\n(ms)", [ms(w.join) for w in shown]),
    ]
    load = [
        Column("Received\n(rows)", [rows(w.received_rows) for w in shown]),
        Column("Peak memory\n(GiB)", [gib(w.memory.peak) for w in shown]),
        Column("Peak above\nimports (GiB)", [gib(w.memory.above_imports) for w in shown]),
        Column("of its\ninput (×)", [number(_peak_per_input(w)) for w in shown]),
        Column("Device peak\n(GiB)", [gib(w.memory.device_peak) for w in shown] if _used_gpu_memory(shown) else []),
        Column("", _worker_remarks(workers, shown), text=True),
    ]
    page.heading("Workers (medians; bandwidth: bytes sent to other workers ÷ seconds in flight)")
    page.wide_table(who, speed, load, mark=mark)
    if len(shown) < len(workers):
        page.line(f"Shown: the {len(shown)} slowest of {len(workers)} workers; the records contain all.", "dim")
    columns = (("bandwidth", "bandwidth.mean"), ("phases", "partition"), ("received rows", "received_rows"))
    lacking = [name for name, field in columns if any(attrgetter(field)(w) is None for w in shown)]
    if lacking:
        page.note(f"{', '.join(lacking)}: {why_absent(document)}")
    if any(w.memory.peak is None for w in shown):
        page.note("peak memory: not measured")


def write_pairs(page: Page, launches: Sequence[Launch], mark: str | None) -> None:
    """Put tables of bytes and rates from each worker to each other on a page, if workers are few."""
    traffic = pair_figures(launches)
    if not traffic or len({rank for pair in traffic for rank in pair}) > _LARGEST_MATRIX:
        return
    page.heading("Pairs: data sent per iteration (MiB), from row to column")
    page.table(*by_pair({pair: mib(figures.bytes) for pair, figures in traffic.items()}), mark=mark)
    rates = {pair: figures.bytes / figures.seconds for pair, figures in traffic.items() if figures.seconds}
    if rates:
        page.heading("Pairs: bytes ÷ seconds in flight (GiB/s), from row to column")
        page.table(*by_pair({pair: gib(rate) for pair, rate in rates.items()}), mark=mark)


def _workers_to_show(workers: Sequence[WorkerFigures]) -> list[WorkerFigures]:
    """All workers, or of too many those with the least bandwidth."""
    if len(workers) <= _MOST_ROWS:
        return list(workers)
    slowest = sorted(workers, key=lambda w: (w.bandwidth.mean is None, w.bandwidth.mean or 0.0, w.rank))
    return slowest[: _MOST_ROWS // 2]


def slowest_rank(workers: Sequence[WorkerFigures]) -> int | None:
    """The rank of the worker with the least bandwidth; None unless bandwidths differ."""
    rates = {worker.rank: rate for worker in workers if (rate := worker.bandwidth.mean) is not None}
    return min(rates, key=lambda rank: rates[rank]) if len(set(rates.values())) > 1 else None


def why_no_bandwidth(
    launches: Sequence[Launch], workers: Sequence[WorkerFigures], *, running: bool = False
) -> dict[int, str]:
    """Why workers have no bandwidth, by rank: what each of them sent in the timed iterations of `launches`.

    `running`: whether more iterations are to come.
    """
    sent: dict[int, list[tuple[int, int] | None]] = {}
    for launch in launches:
        for iteration in launch.timed:
            for part in iteration.workers:
                sizes = part.sent_bytes
                sent.setdefault(part.rank, []).append(None if sizes is None else (sizes.left, sizes.right))
    lacking = [worker.rank for worker in workers if worker.bandwidth.mean is None]
    none = "no figure yet" if running else NOT_MEASURED
    return {rank: _what_was_sent(sent[rank]) if rank in sent else none for rank in lacking}


def _what_was_sent(sent: Sequence[tuple[int, int] | None]) -> str:
    """``sent no left rows in these 4 iterations``; `sent`: bytes of the left and right frame in each iteration."""
    measured = [each for each in sent if each is not None]
    if len(measured) < len(sent):
        return NOT_MEASURED
    left, right = (sum(frame) for frame in zip(*measured, strict=True))
    if left and right:
        return NOT_MEASURED
    what = "no right rows" if left else "no left rows" if right else "nothing"
    return f"sent {what} in {'this iteration' if len(sent) == 1 else f'these {len(sent)} iterations'}"


def _worker_remarks(workers: Sequence[WorkerFigures], shown: Sequence[WorkerFigures]) -> list[str]:
    """For each worker in `shown`: whether it is the slowest of all `workers`, overloaded, or slow in a phase."""
    remarks = [(slowest_rank(workers), "slowest")]
    remarks += [(overload.rank, f"overloaded {overload.factor:.2f} ×") for overload in overloaded_ranks(workers)]
    remarks += [(slow.rank, f"slow {slow.phase}")] if (slow := straggling_rank(workers)) is not None else []
    return [", ".join(remark for rank, remark in remarks if rank == worker.rank) for worker in shown]


def _peak_per_input(worker: WorkerFigures) -> float | None:
    """Peak memory above imports ÷ bytes of the worker's input."""
    if worker.memory.above_imports is None or not worker.memory.input:
        return None
    return worker.memory.above_imports / worker.memory.input


def _used_gpu_memory(workers: Sequence[WorkerFigures]) -> bool:
    return any(worker.memory.device_peak is not None for worker in workers)
