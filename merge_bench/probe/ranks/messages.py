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


class _Message(msgspec.Struct, frozen=True, tag_field=KEY, tag=str.lower):
    """A message from a rank to the driver; its tag is the name of its class in lower case."""


class RankDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The description of one MPI rank.

    `host_number`: equal for ranks on one host. `network`: that of its host, if UCX got an interface.
    """

    worker: Worker
    host_number: int
    network: NetworkFacts | None = None


class Hello(_Message, frozen=True):
    """The message that all ranks have started, with their descriptions."""

    ranks: list[RankDescription]


class Row(_Message, frozen=True):
    """The message with the result of one test at one message size.

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


class ExchangeRow(_Message, frozen=True):
    """The message with the result of one exchange of `probe all-to-all`.

    `frames`: bytes from each rank to each, for each frame; `rounds`: seconds by rank and round; others as of `Row`.
    """

    frames: Sequence[Sequence[Sequence[int]]]
    rounds: Sequence[Sequence[float]]
    selected: tuple[str, ...]
    wrong: int


class Warn(_Message, frozen=True):
    caution: WarningMessage


class Error(_Message, frozen=True):
    """The message with the error for which a rank aborts; `rank` is None before MPI has started."""

    rank: int | None
    host: str
    code: str | None
    message: str


class Progress(_Message, frozen=True):
    """The message that a timed loop has made progress."""


class Done(_Message, frozen=True):
    """The message that the ranks have reported all results."""


Message = Hello | Row | ExchangeRow | Warn | Error | Progress | Done


def send_to_driver(message: Message) -> None:
    """Print a message on standard output, which the driver reads."""
    with _send_lock:
        sys.stdout.write(json.dumps(msgspec.to_builtins(message)) + "\n")  # ASCII, whatever the locale
        sys.stdout.flush()


def parse_message(line: str) -> Message | None:
    """Return the message in a line of standard output, or None; raises msgspec.ValidationError for a damaged one."""
    if not line.startswith(f'{{"{KEY}"'):
        return None
    with contextlib.suppress(json.JSONDecodeError):  # it may be cut off
        message: Message = msgspec.convert(json.loads(line), Message)
        return message
    return None
