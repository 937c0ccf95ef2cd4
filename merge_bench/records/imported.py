"""What records hold of a result that another program measured, beside the lines of `schema`. SI seconds and bytes."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

NotNegative: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """Totals that the other program printed: throughput is all bytes ÷ the whole wall-clock, no median."""

    wall_seconds: NotNegative
    wall_resolution_seconds: NotNegative
    bandwidth_bytes_per_second: NotNegative
    throughput_bytes_per_second: NotNegative


class ImportedFrom(msgspec.Struct, frozen=True, kw_only=True):
    """The text that a campaign was made of: another program's output, which nobody here measured or verified."""

    program: str
    file: str
    sha256: str
    command: str | None = None
    fraction: float | None = None
    headline: Headline


class ImportedIteration(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the other program printed of an iteration: over all workers, where our own records have each."""

    bandwidth_bytes_per_second: NotNegative
    throughput_bytes_per_second: NotNegative
    wall_resolution_seconds: NotNegative
