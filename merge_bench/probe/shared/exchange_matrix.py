"""What all-to-all and reduce-scatter send: sizes, contents that can be checked, and the figures of an exchange.

A matrix has a row for each sender and a column for each receiver, in bytes; its diagonal is what a rank keeps. What
reduce-scatter adds are small integers, so that every order of additions gives the same float32. They repeat after
`VALUES` elements, and so do their sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

import numpy as np
import numpy.typing as npt

MessageMatrix = Sequence[Sequence[int]]
Bytes = npt.NDArray[np.uint8]

PERIOD = 251
"""The contents of a message repeat after so many bytes: a prime, so that no shifted message looks right."""
SENDER, RECEIVER, FRAME = 31, 7, 101
"""How the first byte of a message differs by its sender, its receiver and its frame."""
ROW_SECONDS, FEWEST_ROUNDS, MOST_ROUNDS = 0.5, 10, 1000
BLANK = 0xFF
"""What buffers contain before a message arrives; no message has this byte."""
VALUES, STEP = 61, 7  # one more than the largest contribution, and how contributions differ between ranks
EXACT = 1 << 24  # integers up to here are exact in float32
MOST_RANKS = EXACT // VALUES
Vector = np.ndarray[Any, Any]


def equal_message_matrix(size: int, ranks: int) -> list[list[int]]:
    """Return the matrix of message bytes in which every rank sends `size` bytes to every rank, itself included."""
    return [[size] * ranks for _ in range(ranks)]


def ring_message_matrix(size: int, ranks: int) -> list[list[int]]:
    """Return the matrix of message bytes in which every rank sends (ranks − 1) × `size` bytes to the next rank only."""
    return [
        [size * (ranks - 1) if receiver == (sender + 1) % ranks else 0 for receiver in range(ranks)]
        for sender in range(ranks)
    ]


def rounds_in_half_a_second(round_seconds: float) -> int:
    """Return how many rounds of `round_seconds` each take half a second together; at least 10, at most 1000."""
    return int(min(MOST_ROUNDS, max(FEWEST_ROUNDS, ROW_SECONDS / max(round_seconds, 1e-9))))


def fill_message(message: Bytes, sender: int, receiver: int, frame: int) -> None:
    """Fill one message of a frame with bytes that depend on sender, receiver, frame and position."""
    for part, expected in _views_with_expected_bytes(message, sender, receiver, frame):
        part[:] = expected


def count_wrong_bytes(message: Bytes, sender: int, receiver: int, frame: int) -> int:
    """Return the number of bytes of a received message that differ from what `fill_message` writes."""
    return sum(
        int(np.count_nonzero(part != expected))
        for part, expected in _views_with_expected_bytes(message, sender, receiver, frame)
    )


def _views_with_expected_bytes(message: Bytes, sender: int, receiver: int, frame: int) -> Iterator[tuple[Any, Bytes]]:
    """Yield two views of a message, its whole periods and the bytes after them, each with the bytes expected there."""
    first = SENDER * sender + RECEIVER * receiver + FRAME * frame
    pattern = ((first + np.arange(PERIOD)) % PERIOD).astype(np.uint8)
    whole = message.size // PERIOD * PERIOD
    yield message[:whole].reshape(-1, PERIOD), pattern
    yield message[whole:], pattern[: message.size - whole]


@dataclass(frozen=True)
class ExchangeTraffic:
    """The bytes of one exchange, by rank: `sent` to others, `received` from them, and in the whole send buffer."""

    sent: tuple[int, ...]
    received: tuple[int, ...]
    in_send_buffer: tuple[int, ...]

    @classmethod
    def from_message_matrices(cls, frames: Sequence[MessageMatrix]) -> ExchangeTraffic:
        """Return the bytes of an exchange, all frames together.

        `frames`: bytes from each rank to each, a matrix per frame.
        """
        total = np.sum([np.array(frame, np.int64) for frame in frames], axis=0)
        own = np.diagonal(total)
        return cls(*(tuple(map(int, each)) for each in (total.sum(1) - own, total.sum(0) - own, total.sum(1))))

    @property
    def busiest_rank_bytes(self) -> int:
        """The bytes in one direction of the rank that sends or receives most."""
        return max(*self.sent, *self.received)


def mean_message_bytes(frames: Sequence[MessageMatrix]) -> int:
    """Return the mean bytes of a message from one rank to another, over all frames of an exchange."""
    total = np.sum([np.array(frame, np.int64) for frame in frames], axis=0)
    ranks = len(total)
    return round(int(total.sum() - total.trace()) / (len(frames) * ranks * (ranks - 1)))


def exchange_row_fields(
    traffic: ExchangeTraffic, round_seconds: Sequence[Sequence[float]], link_limit: float | None
) -> dict[str, Any]:
    """Return the fields of an all-to-all row: times and rates from the seconds `round_seconds[rank][round]`.

    ``seconds``: the median over rounds of the slowest rank. ``seconds_mean``, ``seconds_min``, ``seconds_max``:
    average, least and greatest over ranks of a rank's mean, the three that ``osu_alltoall`` prints. A rank's bandwidth
    is what it sends to others ÷ ``seconds``. Bus bandwidth is (S ÷ ``seconds``) × (n − 1) ÷ n as nccl-tests defines it
    for all-to-all, with S the mean send buffer of a rank, its own part included. `link_limit`: bytes per second that a
    rank can send.
    """
    ranks = len(traffic.sent)
    seconds = median(max(each) for each in zip(*round_seconds, strict=True))
    means = [mean(each) for each in round_seconds]
    rate = [sent / seconds if seconds > 0 else None for sent in traffic.sent]
    rates = [each for each in rate if each is not None]
    return {
        "seconds": seconds,
        "seconds_mean": mean(means),
        "seconds_min": min(means),
        "seconds_max": max(means),
        "bandwidth_bytes_per_second": mean(rates) if rates else None,
        "bandwidth_min": min(rates, default=None),
        "bandwidth_max": max(rates, default=None),
        "bus_bandwidth_bytes_per_second": mean(traffic.in_send_buffer) / seconds * (ranks - 1) / ranks
        if rates
        else None,
        "busiest_bytes": traffic.busiest_rank_bytes,
        "limit_bytes_per_second": link_limit,
    }


def fill_contributed_vector(vector: Vector, rank: int) -> None:
    """Fill the float32 vector that a rank contributes to a sum; an element depends only on its index and the rank."""
    rows, rest = _whole_periods_and_rest(vector)
    rows[:] = _contributed_values(0, rank)
    rest[:] = _contributed_values(0, rank)[: rest.size]


def count_wrong_sums(block: Vector, first_index: int, ranks: int) -> int:
    """Return the number of wrong elements in a block of the sum of all ranks' contributed vectors.

    `first_index`: the index of the block's first element in the sum.
    """
    expected = np.sum([_contributed_values(first_index, rank) for rank in range(ranks)], axis=0)
    rows, rest = _whole_periods_and_rest(block)
    return int(np.count_nonzero(rows != expected) + np.count_nonzero(rest != expected[: rest.size]))


def _contributed_values(first_index: int, rank: int) -> Vector:
    """Return the values that a rank contributes from `first_index` on, until they repeat."""
    return ((first_index + STEP * rank + np.arange(VALUES)) % VALUES).astype(np.float32)


def _whole_periods_and_rest(vector: Vector) -> tuple[Vector, Vector]:
    """Return two views of a vector: a matrix with a row for each whole period, and the elements after them."""
    whole = vector.size // VALUES * VALUES
    return vector[:whole].reshape(-1, VALUES), vector[whole:]
