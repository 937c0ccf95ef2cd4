"""How rows reach their matches: a shuffle, or a broadcast of one table. ``--distribution auto`` chooses between them.

A shuffle partitions both frames among the workers, a broadcast sends one whole. A worker joins the whole frame that was
sent with its own chunk of the other, which stays where it is. All workers have the rows that were sent, so none of them
can say that such a row has no match anywhere: a side whose unmatched rows belong to the result, and the side of which
semi and anti joins return rows, cannot be sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from merge_bench.errors import UsageError
from merge_bench.merge.engines.base import JoinKind, Side
from merge_bench.merge.workload import SyntheticSpec
from merge_bench.merge.workload.tables import TableSpec, mean_row_bytes
from merge_bench.units import format_bytes

SHUFFLE, BROADCAST = "shuffle", "broadcast"

GAIN = 2.0
"""``auto`` broadcasts if a shuffle sends at least so many times as much. Nearer to it, a broadcast saves little of the
link, while each worker joins all rows of the smaller table instead of its share."""


@dataclass(frozen=True)
class RowDistribution:
    """How rows are distributed: a broadcast sends the side `sent` whole to every worker; None: a shuffle.

    `reason`: why it was chosen.
    """

    sent: Side | None = None
    reason: str | None = None

    @property
    def distribution_name(self) -> str:
        """The name of the distribution: ``broadcast`` or ``shuffle``."""
        return SHUFFLE if self.sent is None else BROADCAST

    def to_json(self) -> dict[str, Any]:
        sent = None if self.sent is None else self.sent.value
        return {"distribution": self.distribution_name, "broadcast_side": sent, "distribution_reason": self.reason}


SHUFFLED = RowDistribution()


def sent_row_bytes(how: JoinKind, payload_columns: int) -> dict[Side, int]:
    """Return the bytes of a synthetic row when it is sent, by side.

    Semi and anti joins send only the key of a right row.
    """
    whole = 8 * (1 + payload_columns)
    return {Side.LEFT: whole, Side.RIGHT: whole if how.has_right_columns else 8}


def table_bytes_by_side(workload: SyntheticSpec | TableSpec, how: JoinKind = JoinKind.INNER) -> dict[Side, float]:
    """Estimate the bytes of each table over all workers; to estimate strings, one row group is read.

    For semi and anti joins the right table counts with its keys only.
    """
    if isinstance(workload, SyntheticSpec):
        row = sent_row_bytes(how, workload.payload_columns)
        return {side: float(row[side] * workload.rows) for side in Side}
    names = {Side.LEFT: None, Side.RIGHT: None if how.has_right_columns else workload.keys}
    return {side: mean_row_bytes(workload.side(side), names[side]) * workload.side(side).rows for side in Side}


def broadcastable_sides(how: JoinKind) -> tuple[Side, ...]:
    """Return the sides that a broadcast can send whole in this kind of join (see the module's docstring)."""
    return tuple(
        side for side in Side if not how.keeps_unmatched(side) and (how.has_right_columns or side is Side.RIGHT)
    )


def check_broadcast_possible(how: JoinKind) -> None:
    """Raise `UsageError` for a kind of join with which a broadcast cannot give the right result."""
    if not broadcastable_sides(how):
        raise UsageError(
            f"--distribution broadcast cannot be used with --how {how.value}, which keeps unmatched rows of both"
            " tables; use --distribution shuffle"
        )


def bytes_between_workers(table_bytes: Mapping[Side, float], workers: int, sent_side: Side | None) -> float:
    """Return the bytes that all workers together send to other workers.

    A shuffle sends (W - 1) ÷ W of all rows, a broadcast W - 1 times the side that is sent (`sent_side`; None: a
    shuffle). `table_bytes`: bytes of both sides over all workers.
    """
    return (
        sum(table_bytes.values()) * (workers - 1) / workers
        if sent_side is None
        else table_bytes[sent_side] * (workers - 1)
    )


def choose_distribution(
    option_value: str,
    how: JoinKind,
    workers: int,
    measure_table_bytes: Callable[[], Mapping[Side, float]],
    *,
    incompatible_option: str | None,
) -> RowDistribution:
    """Choose shuffle or broadcast: a broadcast sends the smaller side, and ``auto`` takes what sends fewer bytes.

    No separate rule for memory is needed: a broadcast that sends fewer bytes in all than a shuffle also leaves fewer
    received bytes on each worker, the whole side that is sent included, and no worker makes a table of more than a
    bucket of it at once.

    `measure_table_bytes`: returns the bytes of both sides over all workers; called only if the choice depends on them.
    `incompatible_option`: an option that excludes a broadcast, such as ``--pipeline on``; None if there is none.
    """
    if option_value == SHUFFLE:
        return RowDistribution()
    sides = broadcastable_sides(how)
    if option_value == BROADCAST:
        return RowDistribution(min(sides, key=measure_table_bytes().__getitem__))
    if workers == 1:
        return RowDistribution(reason="one worker sends nothing to others")
    if incompatible_option is not None:
        return RowDistribution(reason=f"{incompatible_option} needs a shuffle")
    if not sides:
        return RowDistribution(reason=f"--how {how.value} keeps unmatched rows of both tables")
    table_bytes = measure_table_bytes()
    smaller = min(sides, key=table_bytes.__getitem__)
    whole, shuffled = (
        bytes_between_workers(table_bytes, workers, smaller),
        bytes_between_workers(table_bytes, workers, None),
    )
    reason = (
        f"a broadcast of the {smaller.value} table sends {format_bytes(whole)} per iteration, a shuffle"
        f" {format_bytes(shuffled)}"
    )
    return RowDistribution(smaller if GAIN * whole < shuffled else None, reason)
