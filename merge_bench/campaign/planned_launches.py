"""What a campaign will do: its head, and one job for each launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from merge_bench.campaign.make_plan import Prepared
from merge_bench.records.schema import Config, RunKey


@dataclass(frozen=True)
class Head:
    """The part of the records' first line that says what will be done."""

    configs: Sequence[Config]
    plans: Sequence[dict[str, Any]]
    runs: Sequence[RunKey]
    seed: int


@dataclass(frozen=True)
class Job:
    """One launch to make: of which config (by its name in the campaign) and plan (by its index), in which block."""

    prepared: Prepared
    config: str
    plan: int = 0
    block: int = 0
