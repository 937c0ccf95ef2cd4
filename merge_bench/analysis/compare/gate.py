"""`run --against RESULT --fail-on slower`: what was just measured held against what was measured before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from merge_bench.analysis.compare.document import Document, compare
from merge_bench.errors import GateNotMet, UsageError, WrongResult
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign

METRIC = "throughput"
GATES = {
    "slower": ("SLOWER", "FAILED", "WRONG"),
    "inconclusive": ("INCONCLUSIVE", "FAILED", "WRONG"),
    "not-faster": ("SLOWER", "EQUIVALENT", "INCONCLUSIVE", "FAILED", "WRONG"),
}
"""Which verdicts each ``--fail-on`` does not let pass."""


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


def judged(document: Document, *, metric: str, fail_on: Sequence[str]) -> tuple[Document | None, int]:
    """What stands as ``error`` in the document, and the exit status: 4 for a wrong result, 5 for a gate not met.

    A/A comparisons pass every gate: they are there to show the noise.
    """
    chosen = [each for each in document["comparisons"] if each["metric"] == metric and not each["aa"]]
    wrong = [each["candidate"] for each in chosen if each["verdict"] == "WRONG"]
    if wrong:
        return _error(WrongResult, f"the merge result was wrong: {', '.join(wrong)}"), WrongResult.exit_status
    held = [each for each in chosen if any(each["verdict"] in GATES[gate] for gate in fail_on)]
    if held:
        named = ", ".join(f"{each['candidate']} is {each['verdict']} in {metric}" for each in held)
        options = " ".join(f"--fail-on {gate}" for gate in fail_on)
        return _error(GateNotMet, f"{options}: {named}"), GateNotMet.exit_status
    return None, 0


def _error(kind: type[GateNotMet] | type[WrongResult], message: str) -> Document:
    return {"code": kind.code, "message": message, "host": None, "rank": None}
