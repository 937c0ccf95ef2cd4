"""The documents of ``probe … --json`` and of ``--reference list --json``; `docs/reference/records.md` has them."""

from __future__ import annotations

from typing import Literal

import msgspec

from merge_bench.analysis.documents import Failure
from merge_bench.errors import Caution
from merge_bench.records.probe_rows import Row


class ProbeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of one campaign, or of several and of files: `records` has the path of the one, or of each."""

    document_version: Literal[1] = 1
    records: str | list[str]
    rows: list[Row]
    warnings: list[Caution]
    error: Failure | None


class ReferencesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What ``--reference`` can name: published measurements, each with where it is from."""

    document_version: Literal[1] = 1
    references: dict[str, str]
