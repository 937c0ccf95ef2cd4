"""The structures in `schema` for results that another program measured. SI seconds and bytes."""

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
    """The source of an imported campaign: the output of another program. merge_bench did not measure or verify it."""

    program: str
    file: str
    sha256: str
    command: str | None = None
    fraction: float | None = None
    headline: Headline


class ImportedIteration(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The figures that the other program printed for an iteration: of all workers together."""

    bandwidth_bytes_per_second: NotNegative
    throughput_bytes_per_second: NotNegative
    wall_resolution_seconds: NotNegative
