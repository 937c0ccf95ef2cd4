"""In which order a worker turns to its peers: in each step one other sends to it, and it expects that one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from merge_bench.merge.engines.base import FramePiece, OutgoingParcel, Side
from merge_bench.merge.exchange.base import AbortFlag, PendingMessage
from merge_bench.merge.exchange.pipelined_exchange import PipelinedExchange
from merge_bench.merge.exchange.ucx import UcxExchange
from merge_bench.merge.partition import ByteRuns


class Noted(UcxExchange):
    """An end of the data plane without UCX: notes whom it would send to and receive from, in order.

    All peers answer at once, and all that arrives is zeros.
    """

    def __init__(self, rank: int, workers: int) -> None:
        self.rank, self.workers, self.message_bytes, self.abort = rank, workers, 0, AbortFlag()
        self._stage, self._abandoned = 0, []
        self._worker = SimpleNamespace(progress_once=lambda: False)
        self.noted: dict[bool, list[int]] = {True: [], False: []}
        self.messages: list[tuple[int, int]] = []  # number and bytes of those that were sent

    def post_message(self, buffer: Any, peer: int, stage: int, number: int, *, receive: bool) -> PendingMessage:
        self.noted[receive].append(peer)
        if receive:
            buffer[:] = 0
        else:
            self.messages.append((number, buffer.nbytes))
        return PendingMessage(SimpleNamespace(completed=True, check_error=lambda: None), peer, receive, buffer)


def schedule(workers: int) -> list[Noted]:
    """Every rank's end after one transfer with all others."""
    ends = [Noted(rank, workers) for rank in range(workers)]
    for end in ends:
        peers = [peer for peer in range(workers) if peer != end.rank]
        end.transfer({p: np.ones(1, np.uint8) for p in peers}, {p: np.ones(1, np.uint8) for p in peers})
    return ends


@pytest.mark.parametrize("workers", [2, 3, 8, 32])
def test_no_worker_is_sent_to_by_two_in_one_step(workers: int) -> None:
    ends = schedule(workers)
    for step in range(workers - 1):
        assert {end.noted[False][step] for end in ends} == set(range(workers))


@pytest.mark.parametrize("workers", [2, 3, 8, 32])
def test_a_worker_expects_in_each_step_the_one_that_sends_to_it_then(workers: int) -> None:
    ends = schedule(workers)
    for step in range(workers - 1):
        for end in ends:
            assert ends[end.noted[True][step]].noted[False][step] == end.rank


@pytest.mark.parametrize(
    ("message_bytes", "messages"), [(0, [(0, 5), (1, 3)]), (2, [(0, 2), (1, 2), (2, 1), (3, 2), (4, 1)])]
)
def test_each_run_of_a_parcel_is_sent_in_messages_of_its_own(
    message_bytes: int, messages: list[tuple[int, int]]
) -> None:
    end = Noted(0, 2)
    end.message_bytes = message_bytes
    flight = end.transfer({1: ByteRuns(tuple(np.ones(size, np.uint8) for size in (5, 0, 3)))}, {})
    assert end.messages == messages
    assert flight.sent_bytes == 8


@pytest.mark.parametrize("workers", [3, 8])
def test_the_pipelined_exchange_serves_its_peers_in_the_same_order(workers: int) -> None:
    for end in schedule(workers):
        sent = list(end.noted[False])
        pieces = [FramePiece(Side.LEFT, 0)]
        with PipelinedExchange(end, pieces, 8, lambda number, source, header: np.empty(0, np.uint8)) as pipeline:
            pipeline.queue_piece(0, [OutgoingParcel(np.zeros(8, np.uint8), np.ones(1, np.uint8))] * workers)
            pipeline.wait_for_all_messages()
        order = list(dict.fromkeys(end.noted[False][len(sent) :]))
        assert order == sent
