"""`run --against RESULT --fail-on slower`: what was just measured held against what was measured before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from merge_bench.comparing.command import judged
from merge_bench.comparing.document import Document, compare
from merge_bench.errors import UsageError
from merge_bench.record.campaign import Campaign
from merge_bench.record.reader import read_campaign

METRIC = "throughput"


@dataclass(frozen=True)
class Gate:
    """`against`: the earlier result, None where a campaign's configs are held against its first."""

    against: Campaign | None
    fail_on: Sequence[str]
    threshold: float

    def hold(self, campaign: Campaign) -> tuple[Document, int]:
        """The comparison's document, its ``error`` filled, and the exit status: 4, 5 or 0.

        Raises
        ------
        UsageError
            If the two cannot be compared; what was measured is kept.
        """
        campaigns = [self.against, campaign] if self.against is not None else [campaign]
        document = compare(campaigns, threshold=self.threshold)
        document["error"], status = judged(document, metric=METRIC, fail_on=self.fail_on)
        return document, status


def asked_for(values: Mapping[str, Any], *, configs: int) -> Gate | None:
    """The gate that the options of `run` ask for; the earlier result is read before anything is launched.

    Raises
    ------
    UsageError
        If there is nothing to compare with, or the earlier result cannot be read.
    """
    against, fail_on = values["against"], tuple(values["fail_on"])
    if fail_on and not against and configs < 2:
        raise UsageError("--fail-on needs something to compare with: --against RESULT, or several --configs")
    if not against and not fail_on:
        return None
    earlier = read_campaign(str(against)) if against else None
    return Gate(earlier, fail_on, float(values["threshold"]))
