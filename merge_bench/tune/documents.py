"""The document of ``tune --json``; `docs/reference/records.md` describes every key."""

from __future__ import annotations

from typing import Literal

import msgspec

from merge_bench.analysis.documents import Failure
from merge_bench.records.schema import TuneLine


class Winner(msgspec.Struct, frozen=True, kw_only=True):
    """The config that was found: its settings, and for each the step that measured its effect, if there is one."""

    config: str
    settings: list[str]
    contributions: dict[str, TuneLine | None]


class PrunedValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value of the space that cannot help on this cluster, and the reason."""

    value: str
    reason: str


class TuneDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, and every step of the search as a line of the records. `config`: the file that was written."""

    document_version: Literal[1] = 1
    records: str
    config: str | None
    winner: Winner | None
    stopped: str | None
    undecided: list[str]
    no_gain_seen: list[str]
    noise_floor: TuneLine | None
    singles: list[TuneLine]
    combined: list[TuneLine]
    ablated: list[TuneLine]
    confirmed: list[TuneLine]
    interactions: list[TuneLine]
    failures: list[TuneLine]
    pruned: list[PrunedValue]
    error: Failure | None
