"""How rows reach their matches: a shuffle partitions both frames among the workers, a broadcast sends one whole.

A worker joins the whole frame that was sent with its own chunk of the other, which stays where it is. All workers have
the rows that were sent, so none of them can say that such a row has no match anywhere: a side whose unmatched rows
belong to the result, and the side of which semi and anti joins return rows, cannot be sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from merge_bench.errors import UsageError
from merge_bench.merge.engines.base import How, Side
from merge_bench.units import format_bytes

SHUFFLE, BROADCAST, AUTO = "shuffle", "broadcast", "auto"

GAIN = 2.0
"""``auto`` broadcasts if a shuffle sends at least so many times as much. Nearer to it, a broadcast saves little of the
link, while each worker joins all rows of the smaller table instead of its share."""


@dataclass(frozen=True)
class Distribution:
    """`sent`: the side that is sent whole to every worker; None: a shuffle. `reason`: why, where ``auto`` decided."""

    sent: Side | None = None
    reason: str | None = None

    @property
    def name(self) -> str:
        """``shuffle`` or ``broadcast``."""
        return SHUFFLE if self.sent is None else BROADCAST

    def to_json(self) -> dict[str, Any]:
        sent = None if self.sent is None else self.sent.value
        return {"distribution": self.name, "broadcast_side": sent, "distribution_reason": self.reason}


SHUFFLED = Distribution()


def sendable_sides(how: How) -> tuple[Side, ...]:
    """The sides that a broadcast can send whole in this kind of join; the module says why it cannot send the others."""
    return tuple(side for side in Side if not how.keeps(side) and (how.pairs or side is Side.RIGHT))


def check_broadcast(how: How) -> None:
    """Refuse a broadcast with a kind of join of which it cannot give the right result.

    Raises
    ------
    UsageError
        If no side can be sent whole.
    """
    if not sendable_sides(how):
        raise UsageError(
            f"--distribution broadcast cannot be used with --how {how.value}, which keeps unmatched rows of both"
            " tables; use --distribution shuffle"
        )


def crossing_bytes(sizes: Mapping[Side, float], workers: int, sent: Side | None) -> float:
    """Bytes that all workers together send to others: of a shuffle (W - 1) ÷ W of all rows, of a broadcast W - 1 times
    the side that is sent.

    Parameters
    ----------
    sizes
        Bytes of both sides over all workers.
    sent
        The side that is sent whole; None: a shuffle.
    """
    return sum(sizes.values()) * (workers - 1) / workers if sent is None else sizes[sent] * (workers - 1)


def choose(name: str, how: How, workers: int, sizes: Mapping[Side, float], *, without: str | None) -> Distribution:
    """The distribution called `name`; a broadcast sends the smaller side. ``auto`` decides by the bytes that are sent.

    No separate rule for memory is needed: a broadcast that sends fewer bytes in all than a shuffle also leaves fewer
    received bytes on each worker, the whole side that is sent included, and no worker makes a table of more than a
    bucket of it at once.

    Parameters
    ----------
    sizes
        Bytes of both sides over all workers.
    without
        An option with which there is no broadcast, such as ``--pipeline on``; None if there is none.
    """
    sides = sorted(sendable_sides(how), key=lambda side: sizes[side])
    if name == BROADCAST:
        return Distribution(sides[0])
    if name == SHUFFLE:
        return Distribution()
    if workers == 1:
        return Distribution(reason="one worker sends nothing to others")
    if without is not None:
        return Distribution(reason=f"{without} needs a shuffle")
    if not sides:
        return Distribution(reason=f"--how {how.value} keeps unmatched rows of both tables")
    whole, shuffled = crossing_bytes(sizes, workers, sides[0]), crossing_bytes(sizes, workers, None)
    reason = (
        f"a broadcast of the {sides[0].value} table sends {format_bytes(whole)} per iteration, a shuffle"
        f" {format_bytes(shuffled)}"
    )
    return Distribution(sides[0] if GAIN * whole < shuffled else None, reason)
