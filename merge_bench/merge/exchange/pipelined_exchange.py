"""The pipelined exchange: pieces of both frames travel while their worker partitions and joins other pieces.

While a `PipelinedExchange` is open, its own thread drives UCX, and no other thread may use UCX. A header announces
every piece to its receiver. Between two ranks, headers and data are sent one after the other, in the order of joins.

Each of a worker's W - 1 peers has an equal share of a window (`in_flight_bytes_per_peer`), and no message is longer
than half of it. So sends in flight hold at most max(`WINDOW_BYTES`, (W - 1) · `LEAST_SHARE`) bytes besides their
headers, and so do all other workers' sends to one worker.
"""

from __future__ import annotations

import heapq
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from merge_bench.merge.engines.base import WHOLE, FramePiece, OutgoingParcel, Side
from merge_bench.merge.exchange.base import (
    MessageExchange,
    PendingMessage,
    TransferTimer,
    in_flight_bytes_per_peer,
    longest_message_bytes,
)
from merge_bench.merge.frame import Bytes
from merge_bench.merge.timeline_recording import TimelineNotes

IDLE_SECONDS = 300e-6  # between polls of UCX while the worker computes; sockets buffer what arrives meanwhile
WAITING_SECONDS = 50e-6  # and while it waits
SWITCH_SECONDS = 1e-4  # for which a thread that computes in Python may hold the interpreter's lock
_NUMBER_BYTES = 8  # bytes before a header: the number of its piece

Room = Callable[[int, int, Bytes], Any]


class PipelinedExchange:
    """One worker's end of one pipelined exchange. All workers open it at the same point, with the same pieces.

    `pieces`: the pieces to exchange; a piece's number is its position in this list. `header_bytes`: length of the
    longest header. `room`: called by the exchange thread with a piece's number, a source rank and a header; returns the
    buffer to receive the piece. `notes`: where to note when messages of data begin and end; None: nowhere.
    """

    def __init__(
        self,
        exchange: MessageExchange,
        pieces: Sequence[FramePiece],
        header_bytes: int,
        room: Room,
        notes: TimelineNotes | None = None,
    ) -> None:
        self._notes = notes
        self._exchange, self._pieces, self._room = exchange, pieces, room
        self._header_bytes = _NUMBER_BYTES + header_bytes
        self._stage = exchange.reserve_operations(2)
        self._peers = exchange.peers
        self._share = in_flight_bytes_per_peer(exchange.workers)
        self._longest = longest_message_bytes(exchange.workers, exchange.message_bytes)
        self._handed_over: deque[tuple[int, Sequence[OutgoingParcel]]] = deque()
        self._outgoing: dict[int, Sequence[OutgoingParcel]] = {}
        self._queues: dict[int, list[tuple[int, bool, int]]] = {peer: [] for peer in self._peers}
        self._sending: dict[int, tuple[int, int]] = {}  # peer → piece and how much of it was posted
        self._sends_posted = dict.fromkeys(self._peers, 0)  # messages of data posted to each peer
        self._headers_sent = dict.fromkeys(self._peers, 0)
        self._bytes_under_way = dict.fromkeys(self._peers, 0)  # bytes
        self._headers_received = dict.fromkeys(self._peers, 0)  # headers from each peer
        self._receives_posted = dict.fromkeys(self._peers, 0)  # messages of data posted from each peer
        self._still_to_arrive: dict[tuple[int, int], int] = {}  # (source, piece) → messages that are still to arrive
        self._missing = Counter(piece.part for piece in pieces for _ in self._peers)  # part → pieces still to arrive
        self._pending: list[PendingMessage] = []
        self.sent_bytes = dict.fromkeys(Side, 0)
        self.flights = {side: TransferTimer() for side in Side}
        self.both = TransferTimer()
        self.arrivals = {peer: TransferTimer() for peer in self._peers}
        self.arrived_bytes = dict.fromkeys(self._peers, 0)
        self._changed = threading.Condition()
        self._waiting_since: float | None = None
        self._error: BaseException | None = None
        self._stopped = self._ended = False
        self._thread = threading.Thread(target=self._run_exchange_thread, name="exchange", daemon=True)

    def __enter__(self) -> PipelinedExchange:
        self._switch = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self._thread.join()
        sys.setswitchinterval(self._switch)

    def queue_piece(self, piece_number: int, parcels: Sequence[OutgoingParcel]) -> None:
        """Queue a piece to be sent: one parcel per worker, in rank order.

        Its buffers must not change until the exchange ends. Raises the `RunFailed` with which the exchange has failed,
        if it has.
        """
        self._handed_over.append((piece_number, parcels))
        if self._error is not None:
            raise self._error

    def wait_for_part(self, part_number: int) -> None:
        """Wait until all pieces of a part, and all `WHOLE` ones, have arrived from every worker; raises `RunFailed`."""
        self._wait_until(lambda: not self._missing[WHOLE] and not self._missing[part_number])

    def wait_for_all_messages(self) -> None:
        """Wait until every send and receive is complete; raises `RunFailed`."""
        self._wait_until(lambda: False)

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            self._waiting_since = time.monotonic()
            self._changed.wait_for(lambda: self._ended or condition())
            self._waiting_since = None
        if self._error is not None:
            raise self._error

    # -- the exchange thread runs the methods below

    def _run_exchange_thread(self) -> None:
        try:
            self._exchange_all_pieces()
        except BaseException as error:
            self._error = error
        self._exchange.abandon_messages(self._pending)
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _exchange_all_pieces(self) -> None:
        """Send and receive until all pieces are complete; runs in the exchange thread."""
        for peer in self._peers:
            self._post_header_receive(peer)
        last_byte = time.monotonic()
        while not self._stopped:
            self._exchange.abort.raise_if_aborted()
            moved = self._exchange.progress()
            # A receive of a message that is already here completes at once without progress: so always look.
            settled, posted = self._finish_completed_messages(), self._post_queued_messages()
            if moved or settled or posted:
                last_byte = time.monotonic()
                continue
            if self._all_pieces_exchanged():
                return
            since = self._waiting_since
            if since is not None and self._pending:
                self._exchange.raise_if_stalled(self._pending, max(last_byte, since))
            time.sleep(IDLE_SECONDS if since is None else WAITING_SECONDS)

    def _all_pieces_exchanged(self) -> bool:
        """Whether all pieces were sent and received."""
        count = len(self._pieces)
        return not self._pending and all(
            self._headers_received[peer] == count == self._headers_sent[peer] and peer not in self._sending
            for peer in self._peers
        )

    def _post_queued_messages(self) -> bool:
        """Post queued messages as far as the peers' shares allow; returns whether any was posted."""
        while self._handed_over:
            number, outgoing = self._handed_over.popleft()
            self._outgoing[number] = outgoing
            piece = self._pieces[number]
            for queue in self._queues.values():
                heapq.heappush(queue, (piece.part, piece.side is Side.RIGHT, number))
        posted = False
        for peer in self._peers:
            while self._can_post_next_message(peer):
                self._post_next_message(peer)
                posted = True
        return posted

    def _can_post_next_message(self, peer: int) -> bool:
        """Whether a message to this peer is queued and fits into the peer's share of the bytes in flight."""
        if peer not in self._sending and not self._queues[peer]:
            return False
        number, start = self._sending.get(peer) or (self._queues[peer][0][-1], 0)
        rest: int = self._outgoing[number][peer].data.nbytes - start
        return self._bytes_under_way[peer] + min(rest, self._longest) <= self._share

    def _post_next_message(self, peer: int) -> None:
        """Post the next message to a peer: the next bytes of a piece, or the header of the next piece."""
        if peer not in self._sending:
            number = heapq.heappop(self._queues[peer])[-1]
            outgoing = self._outgoing[number][peer]
            header = np.zeros(self._header_bytes, np.uint8)
            header[:_NUMBER_BYTES].view(np.int64)[0] = number
            header[_NUMBER_BYTES : _NUMBER_BYTES + outgoing.header.nbytes] = outgoing.header
            message = self._exchange.post_message(header, peer, self._stage, self._headers_sent[peer], receive=False)
            self._pending.append(message)
            self._headers_sent[peer] += 1
            if outgoing.data.nbytes:
                self._sending[peer] = (number, 0)
            return
        number, start = self._sending.pop(peer)
        data = self._outgoing[number][peer].data
        stop = min(data.nbytes, start + self._longest)
        posted = time.perf_counter()
        message = self._exchange.post_message(
            data[start:stop], peer, self._stage + 1, self._sends_posted[peer], receive=False
        )
        self._track_posted_message(message, number, posted)
        self._sends_posted[peer] += 1
        self._bytes_under_way[peer] += stop - start
        self.sent_bytes[self._pieces[number].side] += stop - start
        if stop < data.nbytes:
            self._sending[peer] = (number, stop)

    def _post_header_receive(self, peer: int) -> None:
        """Post a receive for the next header from a peer, if the peer has another piece to send."""
        if self._headers_received[peer] < len(self._pieces):
            header = np.empty(self._header_bytes, np.uint8)
            message = self._exchange.post_message(header, peer, self._stage, self._headers_received[peer], receive=True)
            self._pending.append(message)

    def _finish_completed_messages(self) -> bool:
        """Update the state for all messages that are complete; returns whether there were any."""
        done, unfinished = list[PendingMessage](), list[PendingMessage]()
        for message in self._pending:
            (done if message.request.completed else unfinished).append(message)
        self._pending = unfinished
        for message in done:
            self._exchange.raise_if_failed(message)
            if message.piece is not None:
                self._track_completed_message(message, message.piece)
            elif message.receive:
                self._headers_received[message.peer] += 1
                self._post_piece_receives(message.peer, message.buffer)
                self._post_header_receive(message.peer)
        return bool(done)

    def _post_piece_receives(self, source_rank: int, header: Bytes) -> None:
        """Get the buffer for the piece that a header announces, and post receives into it."""
        number = int(header[:_NUMBER_BYTES].view(np.int64)[0])
        buffer = self._room(number, source_rank, header[_NUMBER_BYTES:])
        starts = range(0, buffer.nbytes, self._longest)
        self._still_to_arrive[source_rank, number] = len(starts)
        for start in starts:
            part, posted = buffer[start : start + self._longest], time.perf_counter()
            message = self._exchange.post_message(
                part, source_rank, self._stage + 1, self._receives_posted[source_rank], receive=True
            )
            self._receives_posted[source_rank] += 1
            self._track_posted_message(message, number, posted)
        if not starts:
            self._record_piece_arrival(source_rank, number)

    def _track_posted_message(self, message: PendingMessage, piece_number: int, post_time: float) -> None:
        """Count a message as in flight from now on.

        Its timeline note begins at `post_time`, before the message was posted, because it may be complete already.
        """
        message.piece = piece_number
        self._pending.append(message)
        now = time.perf_counter()
        for meter in self._timers_of_message(message, piece_number):
            meter.begin_transfer(now)
        if self._notes is not None:
            self._notes.note_message_posted(
                (piece_number, message.peer, message.receive), post_time, message.buffer.nbytes
            )

    def _track_completed_message(self, message: PendingMessage, piece_number: int) -> None:
        """Count a message as no longer in flight, and its bytes as arrived if it was received."""
        now, peer, size = time.perf_counter(), message.peer, message.buffer.nbytes
        for meter in self._timers_of_message(message, piece_number):
            meter.end_transfer(now)
        if self._notes is not None:
            self._notes.note_message_completed((piece_number, peer, message.receive), now)
        if not message.receive:
            self._bytes_under_way[peer] -= size
            return
        self.arrived_bytes[peer] += size
        self._still_to_arrive[peer, piece_number] -= 1
        if not self._still_to_arrive[peer, piece_number]:
            self._record_piece_arrival(peer, piece_number)

    def _record_piece_arrival(self, source_rank: int, piece_number: int) -> None:
        """Record that all bytes of a piece from one peer have arrived, and wake the thread that waits for its part."""
        del self._still_to_arrive[source_rank, piece_number]
        part = self._pieces[piece_number].part
        with self._changed:
            self._missing[part] -= 1
            if not self._missing[part]:
                self._changed.notify_all()

    def _timers_of_message(self, message: PendingMessage, piece_number: int) -> list[TransferTimer]:
        """Return the timers that measure a message: of its side, of both sides, and of its peer if it is received."""
        meters = [self.flights[self._pieces[piece_number].side], self.both]
        return [*meters, self.arrivals[message.peer]] if message.receive else meters
