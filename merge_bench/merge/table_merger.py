"""A merge over a data plane that takes whole tables: it partitions, moves and puts together the rows by itself."""

from __future__ import annotations

import time

import numpy as np

from merge_bench.merge.engines.base import Side, TableEngine
from merge_bench.merge.exchange.base import Abort, PackedTable, ShuffledTable, TableExchange
from merge_bench.merge.merger import Measured, Merger, Transfers
from merge_bench.merge.plan import Plan
from merge_bench.records.schema import Flight, FrameCounts, Phases


class TableMerger(Merger):
    """Both tables are moved at once. The phase ``exchange`` ends when the received rows of each are one table."""

    engine: TableEngine

    def __init__(self, engine: TableEngine, rank: int, plan: Plan, abort: Abort) -> None:
        super().__init__(engine, rank, plan, abort)
        assert isinstance(self.exchange, TableExchange)  # as its description says
        self._plane = self.exchange

    def merge(self) -> Measured:
        engine = self.engine
        engine.begin()
        entered = time.perf_counter()
        self.exchange.barrier()
        cpu, start = time.process_time(), time.perf_counter()
        with self._range("partition"):
            tables, packed = engine.tables(), dict[Side, PackedTable]()
            if self.exchange.workers > 1:
                keys = engine.shape.key_positions
                packed = {side: self._plane.pack(tables.pop(side), keys(side)) for side in Side}
            engine.synchronize()
        partitioned = time.perf_counter()
        shuffled = dict[Side, ShuffledTable]()
        with self._range("exchange"):
            if packed:
                shuffled = dict(zip(Side, self._plane.shuffle([packed[side] for side in Side]), strict=True))
                tables = {side: self._plane.unpack(shuffled[side]) for side in Side}
            for side in Side:
                engine.take_table(side, tables.pop(side))
            engine.synchronize()
        exchanged = time.perf_counter()
        with self._range("join"):
            rows = engine.join()
        joined, cpu = time.perf_counter(), time.process_time() - cpu
        transfers = self._make_transfers(packed, shuffled)
        self.exchange.barrier()
        self._note_spans(
            ("barrier", entered, start),
            ("partition", start, partitioned),
            ("exchange", partitioned, exchanged),
            ("join", exchanged, joined),
            ("barrier", joined, time.perf_counter()),
        )
        phases = Phases(partition=partitioned - start, exchange=exchanged - partitioned, join=joined - exchanged)
        return self._make_measurement(joined - start, phases, transfers, rows, cpu)

    def _make_transfers(self, packed: dict[Side, PackedTable], shuffled: dict[Side, ShuffledTable]) -> Transfers:
        """What was exchanged. Peers say how much they sent to this worker, since the data plane does not.

        That comes after the timed interval. The seconds of a source are those in which anything was under way.
        """
        if not packed:
            return Transfers(FrameCounts(left=0, right=0), Flight(left=0.0, right=0.0, union=0.0), {})
        peers = self.exchange.peers
        sent = {peer: np.array([packed[side].sizes[peer] for side in Side], np.int64) for peer in peers}
        arrived = {peer: np.empty(len(Side), np.int64) for peer in peers}
        self.exchange.transfer(
            {peer: sizes.view(np.uint8) for peer, sizes in sent.items()},
            {peer: sizes.view(np.uint8) for peer, sizes in arrived.items()},
        )
        left, right = (int(sum(sent[peer][at] for peer in peers)) for at in range(len(Side)))
        seconds = [shuffled[side].seconds for side in Side]
        return Transfers(
            FrameCounts(left=left, right=right),
            Flight(left=seconds[0], right=seconds[1], union=max(seconds)),
            {peer: (int(sizes.sum()), max(seconds)) for peer, sizes in arrived.items()},
        )
