"""The document of ``transports --json``."""

from __future__ import annotations

from typing import Literal

import msgspec

from merge_bench.analysis.documents.run import Lane
from merge_bench.errors import Caution
from merge_bench.records.schema import SizeRange


class Pair(Lane, frozen=True, kw_only=True):
    """What UCX selected from one worker to another, and how its messages travel by memory and size."""

    protocols: list[SizeRange]


class TransportsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Requested settings, the transports that each host offers (with their devices), and what UCX selected."""

    document_version: Literal[1] = 1
    requested: dict[str, str]
    available: dict[str, dict[str, list[str]]]
    pairs: list[Pair]
    warnings: list[Caution]
