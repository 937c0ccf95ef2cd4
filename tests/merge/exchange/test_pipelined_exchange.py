"""The pipelined exchange between processes: every piece arrives whole, in the order of joins, and failures end it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from merge_bench.errors import RunFailed
from merge_bench.merge.engines.base import WHOLE, FramePiece, OutgoingParcel, Side
from merge_bench.merge.exchange import base
from merge_bench.merge.exchange.pipelined_exchange import PipelinedExchange
from tests.merge.exchange.ranks import ABORTED, Ranks, ranks

KIB, MIB = 1 << 10, 1 << 20
PARTS = 4
PIECES = (
    FramePiece(Side.LEFT, WHOLE),
    FramePiece(Side.LEFT, WHOLE),
    *(FramePiece(side, part) for side in Side for part in range(PARTS)),
)


@pytest.fixture(scope="module")
def four() -> Iterator[Ranks]:
    with ranks(4) as made:
        yield made


def size(source: int, target: int, number: int, most: int) -> int:
    """Each piece of each pair has a size of its own, zero among them."""
    return (source * 7919 + target * 104_729 + number * 1_299_709) % 7 * (most // 6)


def content(source: int, target: int, number: int, most: int) -> np.ndarray:
    rng = np.random.default_rng((source, target, number))
    return rng.integers(0, 256, size(source, target, number, most), np.uint8)


class Ends:
    """What one rank sends, and room for what it receives; `order`: numbers of pieces by source, as headers came."""

    def __init__(self, exchange: Any, most: int) -> None:
        self.rank, self.workers, self.most = exchange.rank, exchange.workers, most
        self.rooms: dict[tuple[int, int], np.ndarray] = {}
        self.order: dict[int, list[int]] = {peer: [] for peer in range(self.workers)}

    def room(self, number: int, source: int, header: Any) -> np.ndarray:
        length = int(header[:8].view(np.int64)[0])
        self.order[source].append(number)
        self.rooms[source, number] = np.full(length, 0xEE, np.uint8)
        return self.rooms[source, number]

    def outgoing(self, number: int) -> list[OutgoingParcel]:
        found = []
        for target in range(self.workers):
            data = content(self.rank, target, number, self.most)
            found.append(OutgoingParcel(np.array([data.size], np.int64).view(np.uint8), data))
        return found

    def wrong(self, numbers: list[int]) -> list[str]:
        return [
            f"piece {number} from rank {source}"
            for source in range(self.workers)
            for number in numbers
            if source != self.rank
            and not np.array_equal(self.rooms.get((source, number)), content(source, self.rank, number, self.most))
        ]


def pieces_of(part: int) -> list[int]:
    return [number for number, piece in enumerate(PIECES) if piece.part in (WHOLE, part)]


def exchange_pieces(exchange: Any, most: int, turns: int) -> list[str]:
    """Whole exchanges one after the other, with something else between; gives what was wrong."""
    wrong = []
    for turn in range(turns):
        ends = Ends(exchange, most)
        with PipelinedExchange(exchange, PIECES, 8, ends.room) as pipeline:
            for number in range(len(PIECES)):
                if (exchange.rank + turn + number) % 5 == 0:
                    time.sleep(0.002)  # to partition takes its time, which differs
                pipeline.queue_piece(number, ends.outgoing(number))
            for part in range(PARTS):
                pipeline.wait_for_part(part)
                wrong += ends.wrong(pieces_of(part))
            pipeline.wait_for_all_messages()
        for side in Side:
            expected = sum(
                size(exchange.rank, peer, number, most)
                for number, piece in enumerate(PIECES)
                for peer in range(exchange.workers)
                if piece.side is side and peer != exchange.rank
            )
            if pipeline.sent_bytes[side] != expected:
                wrong.append(f"{pipeline.sent_bytes[side]} bytes of {side} counted as sent, not {expected}")
        for peer, meter in pipeline.arrivals.items():
            expected = sum(size(peer, exchange.rank, number, most) for number in range(len(PIECES)))
            if pipeline.arrived_bytes[peer] != expected or meter.seconds > pipeline.both.seconds:
                wrong.append(f"{pipeline.arrived_bytes[peer]} bytes in {meter.seconds} s from rank {peer}")
        flights = [pipeline.flights[side].seconds for side in Side]
        if not max(flights) <= pipeline.both.seconds <= sum(flights) + 1e-9:
            wrong.append(f"{flights} s in flight, of both {pipeline.both.seconds}")
        exchange.barrier()
    return wrong


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_every_piece_is_whole_when_its_part_is_waited_for(four: Ranks, workers: int) -> None:
    assert four.everyone(exchange_pieces, workers, 300 * KIB, 3) == [[]] * workers


@pytest.mark.parametrize("message_bytes", [1000, 64 * KIB])
def test_cut_into_messages(four: Ranks, message_bytes: int) -> None:
    assert four.everyone(exchange_pieces, 3, 120 * KIB, 2, message_bytes=message_bytes) == [[]] * 3


def test_with_error_handling(four: Ranks) -> None:
    assert four.everyone(exchange_pieces, 2, 2 * MIB, 2, error_handling=True, message_bytes=MIB) == [[]] * 2


class Watched:
    """An exchange that notes the most bytes of sends of data under way, to all and to one, and the longest message."""

    def __init__(self, exchange: Any) -> None:
        self.exchange = exchange
        self.most = self.most_to_one = self.longest = 0
        self.under_way: dict[int, int] = dict.fromkeys(exchange.peers, 0)
        self.sends: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.exchange, name)

    def reserve_operations(self, stages: int) -> int:
        headers = self.exchange.reserve_operations(stages)
        self.data = headers + 1
        return headers

    def post_message(self, buffer: Any, peer: int, stage: int, number: int, *, receive: bool) -> Any:
        message = self.exchange.post_message(buffer, peer, stage, number, receive=receive)
        if stage == self.data and not receive:
            self.sends.append(id(message))
            self.under_way[peer] += buffer.nbytes
            self.most = max(self.most, sum(self.under_way.values()))
            self.most_to_one = max(self.most_to_one, *self.under_way.values())
            self.longest = max(self.longest, buffer.nbytes)
        return message

    def raise_if_failed(self, message: Any) -> None:
        self.exchange.raise_if_failed(message)
        if id(message) in self.sends:
            self.sends.remove(id(message))
            self.under_way[message.peer] -= message.buffer.nbytes


@contextlib.contextmanager
def window_of(size: int) -> Iterator[None]:
    """Another window in this process."""
    before, base.WINDOW_BYTES = base.WINDOW_BYTES, size
    try:
        yield
    finally:
        base.WINDOW_BYTES = before


@window_of(MIB)
def all_at_once(exchange: Any, most: int) -> tuple[list[str], dict[int, list[int]], tuple[int, int, int]]:
    """Everything is handed over before the exchange begins, the last first; the window is 1 MiB."""
    ends = Ends(exchange, most)
    watched = Watched(exchange)
    pipeline = PipelinedExchange(watched, PIECES, 8, ends.room)
    for number in reversed(range(len(PIECES))):
        pipeline.queue_piece(number, ends.outgoing(number))
    with pipeline:
        pipeline.wait_for_all_messages()
    wrong = ends.wrong(list(range(len(PIECES))))
    exchange.barrier()
    return wrong, ends.order, (watched.most, watched.most_to_one, watched.longest)


def test_what_is_joined_first_goes_first(four: Ranks) -> None:
    found = four.everyone(all_at_once, 2, 3 * MIB, message_bytes=MIB // 4)
    for rank, (wrong, order, _) in enumerate(found):
        keys = [(PIECES[number].part, PIECES[number].side is Side.RIGHT) for number in order[1 - rank]]
        assert len(keys) == len(PIECES)
        assert keys == sorted(keys)
        assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("message_bytes", [0, 2 * MIB, 64 * KIB])
def test_sends_under_way_to_three_peers_stay_within_the_window_however_long_messages_may_be(
    four: Ranks, message_bytes: int
) -> None:
    found = four.everyone(all_at_once, 4, 3 * MIB, message_bytes=message_bytes)
    share = MIB // 3
    longest = min(message_bytes or share, share // 2 // 4096 * 4096)
    for wrong, _, (most, most_to_one, longest_seen) in found:
        assert wrong == []
        assert longest_seen == longest
        assert share // 2 < most_to_one <= share
        assert most_to_one < most <= MIB


@window_of(MIB)
def beside_one_that_waits(exchange: Any, folder: Path) -> bool:
    """Ranks 0 to 2 exchange while rank 3 does nothing until they say that they have everything from each other."""
    ends = Ends(exchange, 3 * MIB)
    deadline = time.monotonic() + 30
    if exchange.rank == 3:
        while len(list(folder.iterdir())) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    with PipelinedExchange(exchange, PIECES, 8, ends.room) as pipeline:
        for number in range(len(PIECES)):
            pipeline.queue_piece(number, ends.outgoing(number))
        quick = [peer for peer in range(3) if peer != exchange.rank]
        expected = {peer: sum(size(peer, exchange.rank, n, 3 * MIB) for n in range(len(PIECES))) for peer in quick}
        while exchange.rank != 3 and any(pipeline.arrived_bytes[peer] < expected[peer] for peer in quick):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        (folder / str(exchange.rank)).touch()
        pipeline.wait_for_all_messages()
    exchange.barrier()
    return ends.wrong(list(range(len(PIECES)))) == []


@pytest.mark.slow
def test_a_peer_that_takes_nothing_delays_nobody_else(four: Ranks, tmp_path: Path) -> None:
    assert four.everyone(beside_one_that_waits, 4, tmp_path, timeout=60) == [True] * 4


@pytest.mark.parametrize(
    ("workers", "share", "longest"),
    [
        (1, 16 * MIB, 8 * MIB),
        (2, 16 * MIB, 8 * MIB),
        (32, 541_200, 270_336),
        (257, 64 * KIB, 32 * KIB),
        (1024, 64 * KIB, 32 * KIB),
    ],
)
def test_peers_share_the_window_until_shares_would_be_too_small(workers: int, share: int, longest: int) -> None:
    assert base.in_flight_bytes_per_peer(workers) == share
    assert base.longest_message_bytes(workers, 0) == base.longest_message_bytes(workers, 32 * MIB) == longest
    assert base.longest_message_bytes(workers, 1000) == 1000


def stop_in_the_middle(exchange: Any, how: str) -> tuple[str, float, list[str]]:
    """Rank 1 sends some pieces and no more; rank 0 waits for the others, computing or not."""
    ends = Ends(exchange, 300 * KIB)
    aborted_at = [time.perf_counter()]
    stop = threading.Event()

    def abort_later() -> None:
        time.sleep(0.3)
        aborted_at[0] = time.perf_counter()
        exchange.abort.abort_run("a peer died")

    def beat() -> None:
        while not stop.wait(0.05):
            exchange.abort.note_heartbeat()

    threads = {"abort": abort_later, "heartbeats": beat}
    if how in threads:
        threading.Thread(target=threads[how], daemon=True).start()
    reason = "it ended"
    try:
        with PipelinedExchange(exchange, PIECES, 8, ends.room) as pipeline:
            count = 4 if exchange.rank else len(PIECES) - (how == "computing")
            for number in range(count):
                pipeline.queue_piece(number, ends.outgoing(number))
            if exchange.rank == 1:
                time.sleep(1.0)
                return "", 0.0, []
            if how == "error":
                raise KeyError("the engine failed")
            if how == "computing":
                time.sleep(0.8)
                pipeline.queue_piece(count, ends.outgoing(count))  # raises if the exchange was given up meanwhile
                return reason, 0.0, []
            pipeline.wait_for_part(PARTS - 1)
    except (RunFailed, KeyError) as error:
        reason = str(error)
    finally:
        stop.set()
    alive = [thread.name for thread in threading.enumerate() if thread.name == "exchange"]
    return reason, time.perf_counter() - aborted_at[0], alive


def test_abort_ends_it(four: Ranks) -> None:
    (reason, seconds, alive), _ = four.everyone(stop_in_the_middle, 2, "abort", timeout=100)
    assert (reason, alive) == ("a peer died", [])
    assert seconds < 2  # it is looked at thousands of times a second


def test_silence_ends_it_and_names_the_rank(four: Ranks) -> None:
    (reason, seconds, alive), _ = four.everyone(stop_in_the_middle, 2, "silence", timeout=0.4)
    assert reason.startswith("rank 0 received nothing from rank 1 for ")
    assert seconds >= 0.4
    assert alive == []


def test_even_heartbeats_do_not_help_forever(four: Ranks) -> None:
    (reason, seconds, _), _ = four.everyone(stop_in_the_middle, 2, "heartbeats", timeout=0.2)
    assert "nothing from rank 1 for" in reason
    assert seconds >= 0.8


def test_a_worker_that_computes_for_long_waits_for_nobody(four: Ranks) -> None:
    (reason, _, _), _ = four.everyone(stop_in_the_middle, 2, "computing", timeout=0.1)
    assert reason == "it ended"


def test_an_engine_that_fails_ends_the_thread(four: Ranks) -> None:
    (reason, _, alive), _ = four.everyone(stop_in_the_middle, 2, "error", timeout=100)
    assert (reason, alive) == ("'the engine failed'", [])


def stream_on(exchange: Any) -> str:
    """Exchange until something ends it."""
    ends = Ends(exchange, MIB)
    outgoing = [ends.outgoing(number) for number in range(len(PIECES))]
    try:
        while True:
            with PipelinedExchange(exchange, PIECES, 8, ends.room) as pipeline:
                for number, each in enumerate(outgoing):
                    pipeline.queue_piece(number, each)
                for part in range(PARTS):
                    pipeline.wait_for_part(part)
                pipeline.wait_for_all_messages()
    except RunFailed as reason:
        return str(reason)


@pytest.mark.parametrize("error_handling", [False, True])
def test_killed_peer(error_handling: bool) -> None:
    """With error handling UCX reports the death.

    Without it the limit does, or shared memory that is gone; or UCX aborts, if it was reading the peer's memory.
    """
    with ranks(2) as pair:
        pair.begin(2, error_handling=error_handling, timeout=60 if error_handling else 1)
        reason = pair.survivor(stream_on, after=0.4)
    assert "rank 1" in reason or (not error_handling and reason == ABORTED)
    assert "failed" in reason or (not error_handling and ("received nothing" in reason or reason == ABORTED)), reason
