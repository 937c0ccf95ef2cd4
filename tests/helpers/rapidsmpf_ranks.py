"""Merges over the data plane rapidsmpf, each rank a process of its own."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from merge_bench.merge.engines.base import JoinKind
from tests.helpers import merge_cases
from tests.helpers.process_pair import answers_of

SECONDS = 120.0
POOL = 2 * 2**30


@dataclass(frozen=True)
class Merged:
    """What a rank found: its rows of the result, what it measured, and rapidsmpf's statistics."""

    table: pa.Table
    measured: Any
    statistics: dict[str, float]


def merge_ranks(
    tables: tuple[pa.Table, pa.Table],
    keys: tuple[str, ...],
    workers: int,
    *,
    how: JoinKind = JoinKind.INNER,
    prepare: Callable[[], None] | None = None,
    iterations: int = 2,
) -> list[Merged]:
    """What every rank found, by rank. `prepare` runs first in each process."""
    context = multiprocessing.get_context("spawn")
    answers, pipes = context.Queue(), [context.Pipe() for _ in range(workers)]
    lefts, rights = (merge_cases.chunks(table, workers) for table in tables)
    processes = [
        context.Process(
            target=_rank, args=(rank, workers, pipes[rank][1], lefts, rights, keys, how, prepare, iterations, answers)
        )
        for rank in range(workers)
    ]
    return answers_of(processes, answers, SECONDS, lambda: _carry_addresses([ours for ours, _ in pipes]))


def connect_ranks(workers: int) -> list[Any]:
    """Connect the real rapidsmpf between processes without a GPU; what each rank says: its number, how many there are,
    and whether a barrier took time. A text is an error.
    """
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(workers)]
    processes = [context.Process(target=_connect, args=(rank, workers, pipes[rank][1])) for rank in range(workers)]
    for process in processes:
        process.start()
    try:
        _carry_addresses([ours for ours, _ in pipes])
        return [pipe.recv() if pipe.poll(SECONDS) else f"no answer within {SECONDS:.0f} s" for pipe, _ in pipes]
    finally:
        for process in processes:
            process.join(timeout=5)
            process.kill()


def _connect(rank: int, workers: int, pipe: Any) -> None:
    from merge_bench.merge.exchange.base import AbortFlag
    from merge_bench.merge.exchange.rapidsmpf import RapidsmpfExchange
    from merge_bench.merge.exchange.ucx import UcxExchange

    try:
        abort = AbortFlag()
        plane = RapidsmpfExchange(UcxExchange(rank, workers, abort=abort), abort=abort, bind=lambda: None)
        pipe.send(plane.address)
        plane.connect(pipe.recv())
        found = *plane._numbered, plane.measure_barrier_seconds() > 0
        plane.barrier()
        plane.close()
        pipe.send(found)
    except BaseException:
        pipe.send(traceback.format_exc())


def _carry_addresses(pipes: list[Any]) -> None:
    addresses = []
    for rank, pipe in enumerate(pipes):
        assert pipe.poll(SECONDS), f"rank {rank} sent no address within {SECONDS:.0f} s"
        addresses.append(pipe.recv())
    assert all(isinstance(address, bytes) for address in addresses), addresses
    for pipe in pipes:
        pipe.send(addresses)


def _rank(rank: int, workers: int, pipe: Any, *rest: Any) -> None:
    *arguments, answers = rest
    try:
        answers.put((rank, _merge_rank(rank, workers, pipe, *arguments)))
    except BaseException:
        pipe.send(traceback.format_exc())
        answers.put((rank, traceback.format_exc()))


def plan_of(workers: int, how: JoinKind = JoinKind.INNER, timeout: float = 30.0) -> Any:
    """A plan with this data plane; its tables are not used."""
    from merge_bench.merge.plan import Plan
    from merge_bench.merge.workload import SyntheticSpec

    return Plan(
        workload=SyntheticSpec(rows=1000 * workers, fraction=0.3, payload_columns=1, seed=1),
        workers=workers,
        iterations=1,
        warmup=0,
        launches=1,
        engine="cudf",
        exchange="rapidsmpf",
        protocol="tcp",
        verify="ends",
        timeout=timeout,
        seed=1,
        how=how,
    )


def _merge_rank(
    rank: int,
    workers: int,
    pipe: Any,
    lefts: Any,
    rights: Any,
    keys: tuple[str, ...],
    how: JoinKind,
    prepare: Any,
    iterations: int,
) -> Merged:
    if prepare is not None:
        prepare()
    from merge_bench.merge.engines import import_engine_class
    from merge_bench.merge.engines.gpu_memory import set_up_memory_pool
    from merge_bench.merge.exchange.base import AbortFlag
    from merge_bench.merge.merger import make_merger

    set_up_memory_pool(POOL)
    engine = import_engine_class("cudf")(merge_cases.shapes(lefts[0], rights[0], keys, workers, how)[rank])
    engine.load_chunks(lefts[rank], rights[rank])
    merger = make_merger(engine, rank, plan_of(workers, how), AbortFlag())
    pipe.send(merger.exchange.address)
    merger.exchange.connect(pipe.recv())
    for _ in range(iterations):
        measured = merger.merge()
    table = pa.concat_tables(list(engine.result_tables()))
    assert table.num_rows == measured.worker.result_rows
    statistics = merger.exchange.statistics()
    merger.exchange.barrier()
    merger.exchange.close()
    return Merged(table, measured, statistics)
