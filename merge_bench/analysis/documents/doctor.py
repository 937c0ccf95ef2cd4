"""The document of ``doctor --json``; `docs/reference/records.md` describes it."""

from __future__ import annotations

from typing import Literal

import msgspec

from merge_bench.host.doctor import Finding


class DoctorDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What every check found on every host, and the worst state among them."""

    document_version: Literal[1] = 1
    worst: str
    findings: list[Finding]
