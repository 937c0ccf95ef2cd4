"""The ``error`` of a document."""

from __future__ import annotations

from typing import Self

import msgspec

from merge_bench.records.schema import FailureLine


class Failure(msgspec.Struct, frozen=True):
    """Why a result is incomplete: a code for programs, one sentence, and the host and rank if they are known."""

    code: str
    message: str
    host: str | None = None
    rank: int | None = None

    @classmethod
    def of(cls, line: FailureLine) -> Self:
        """The failure that a line of the records holds."""
        return cls(line.code, line.message, line.host, line.rank)
