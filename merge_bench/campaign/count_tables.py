"""Reads the keys of real tables before anything is started: does the merge fit, and which rows can match nothing?"""

from __future__ import annotations

import functools
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from merge_bench.campaign import choose_distribution
from merge_bench.errors import Caution, UsageError
from merge_bench.host.memory import available_bytes
from merge_bench.merge.engines.base import How, Side
from merge_bench.merge.plan import PROCESS_BYTES
from merge_bench.merge.workload.tables import TableSpec
from merge_bench.units import format_bytes, format_count

if TYPE_CHECKING:
    from merge_bench.merge.verification.duckdb_reference import Counts

TABLE_COPIES = 3  # the chunks, the parcels sent and the parcels received


def count_tables(
    spec: TableSpec, workers: int, how: How = How.INNER, sent: Side | None = None
) -> tuple[Caution, ...]:  # fmt: skip
    """Refuse a merge that cannot fit; warn of rows that match nothing because a key of theirs is null.

    `sent`: the table that is sent whole to every worker.

    Raises
    ------
    UsageError
        With what the tables and the result would take.
    """
    from merge_bench.merge.workload.tables import output_bytes

    counts = _count(spec, how)
    rows = counts.rows
    sizes = choose_distribution.side_bytes(spec)
    tables = int(sum(sizes.values()))
    result, available = output_bytes(spec, rows, how), available_bytes()
    # Of a broadcast: the chunks, what is partitioned of the table that stays, and the other one once on every worker.
    copies = TABLE_COPIES * tables if sent is None else tables + sizes[sent.other] + workers * sizes[sent]
    needed = int(workers * PROCESS_BYTES + copies + result)
    if needed > available:
        remedy = "use smaller tables, or keys that repeat less often"
        if sent is not None and workers * sizes[sent] > TABLE_COPIES * tables:
            remedy = f"use --distribution shuffle, which does not copy the {sent.value} table to all {workers} workers"
        raise UsageError(
            f"a merge with {format_count(rows)} result rows needs about {format_bytes(needed)} of memory, but"
            f" {socket.gethostname()} has {format_bytes(available)}; {remedy}"
        )
    return null_keys(spec, counts.keyless)


@functools.lru_cache(maxsize=1)
def _count(spec: TableSpec, how: How) -> Counts:
    """As `count_rows`; kept for the next run of a sweep, whose engine or exchange changes nothing here."""
    from merge_bench.merge.verification import duckdb_reference

    return duckdb_reference.count_rows(spec, how)


def null_keys(spec: TableSpec, keyless: Mapping[Side, int]) -> tuple[Caution, ...]:
    """The warning of rows with a null or a NaN among their keys, which other libraries match with each other."""
    found = [
        f"{format_count(keyless[side])} of {format_count(spec.side(side).rows)} rows of the {side.value} table"
        for side in Side
        if keyless[side]
    ]
    if not found:
        return ()
    floats = any(field.floating for field in spec.left.fields if field.name in spec.keys)
    null = "null or NaN" if floats else "null"
    has = "have" if sum(keyless.values()) > 1 else "has"
    return (
        Caution(
            "null-keys",
            f"{' and '.join(found)} {has} a {null} key; a {null} key matches nothing, as in SQL; pandas matches them"
            " with each other",
        ),
    )
