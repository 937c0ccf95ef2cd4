"""What ranks report to the driver: lines of JSON on standard output, whose first key is ``merge_bench``.

All other lines on standard output come from libraries or tools.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Sequence

import msgspec

from merge_bench.errors import WarningMessage
from merge_bench.host.description import NetworkFacts
from merge_bench.records.schema import Worker

KEY = "merge_bench"
_send_lock = threading.Lock()


class _RankMessage(msgspec.Struct, frozen=True, tag_field=KEY, tag=str.lower):
    """The base class of messages from a rank to the driver; the tag in JSON is the class's name in lower case."""


class RankDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The description of one MPI rank.

    `worker`: the rank as the records describe workers. `host_number`: a number, equal for ranks on one host. `network`:
    the interfaces of its host, if UCX was given one.
    """

    worker: Worker
    host_number: int
    network: NetworkFacts | None = None


class RanksStarted(_RankMessage, frozen=True):
    """The message from a rank to the driver that all ranks have started, with the description of each."""

    ranks: list[RankDescription]


class MeasuredRow(_RankMessage, frozen=True):
    """The message from a rank to the driver with the result of one test at one message size.

    `seconds`: seconds of an operation, as the test defines it, on each rank that measures time. `rate`: bytes per
    second, if the test has one. `wrong`: how many elements are wrong, if they were checked. `selected`: UCX's lanes.
    """

    test: str
    size: int
    iterations: int
    seconds: list[float]
    selected: tuple[str, ...]
    rate: float | None = None
    wrong: int | None = None


class ExchangeRow(_RankMessage, frozen=True):
    """The message from a rank to the driver with the result of one exchange of `probe all-to-all`.

    `frames`: bytes from each rank to each, for each frame. `rounds`: seconds by rank and round. `selected`: UCX's
    lanes. `wrong`: number of wrong bytes.
    """

    frames: Sequence[Sequence[Sequence[int]]]
    rounds: Sequence[Sequence[float]]
    selected: tuple[str, ...]
    wrong: int


class RankWarning(_RankMessage, frozen=True):
    """The message from a rank to the driver with a warning for the records."""

    caution: WarningMessage


class RankError(_RankMessage, frozen=True):
    """The message from a rank to the driver with the error for which the rank aborts.

    `rank`: None if MPI had not started. `code`: that of the error class, None for an unexpected exception.
    """

    rank: int | None
    host: str
    code: str | None
    message: str


class LoopProgress(_RankMessage, frozen=True):
    """The message from a rank to the driver that a timed loop has made progress."""


class RanksDone(_RankMessage, frozen=True):
    """The message from a rank to the driver that all results have been reported."""


Message = RanksStarted | MeasuredRow | ExchangeRow | RankWarning | RankError | LoopProgress | RanksDone


def send_to_driver(message: Message) -> None:
    """Print a message as a line of JSON on standard output, which the driver reads."""
    with _send_lock:
        sys.stdout.write(json.dumps(msgspec.to_builtins(message)) + "\n")  # ASCII, whatever the locale
        sys.stdout.flush()


def parse_message(line: str) -> Message | None:
    """Return the message in a line of standard output, or None; raises ValidationError for a damaged message."""
    if not line.startswith(f'{{"{KEY}"'):
        return None
    with contextlib.suppress(json.JSONDecodeError):  # it may be cut off
        message: Message = msgspec.convert(json.loads(line), Message)
        return message
    return None
