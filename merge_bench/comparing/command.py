"""The `compare` command once its options are parsed: read, compare, show, hold the gate; gives the exit status."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from merge_bench.comparing.document import Document, compare
from merge_bench.config.values import percent
from merge_bench.errors import GateNotMet, UsageError, WrongResult
from merge_bench.record.reader import read_campaign

GATES = {
    "slower": ("SLOWER", "FAILED", "WRONG"),
    "inconclusive": ("INCONCLUSIVE", "FAILED", "WRONG"),
    "not-faster": ("SLOWER", "EQUIVALENT", "INCONCLUSIVE", "FAILED", "WRONG"),
}
"""Which verdicts each ``--fail-on`` does not let pass."""


def compare_command(
    results: Sequence[str], *, threshold: str, metric: str, fail_on: Sequence[str], anyway: bool, markdown: bool,
    json_output: bool,
) -> int:  # fmt: skip
    """`compare`: verdicts on results."""
    if markdown and json_output:
        raise UsageError("--markdown and --json both say what to print: name one")
    share = parse_percent(threshold)
    document = compare([read_campaign(result) for result in results], threshold=share, anyway=anyway)
    measured = {each["pair"] for each in document["comparisons"] if each["metric"] == metric}
    if not measured or (fail_on and measured < {each["pair"] for each in document["comparisons"]}):
        raise UsageError(f"--metric {metric} cannot be compared: {'; '.join(document['notes'])}")
    document["error"], status = judged(document, metric=metric, fail_on=fail_on)
    if json_output:
        print(json.dumps(document, allow_nan=False))
    elif markdown:
        from merge_bench.report.comparison_markdown import markdown as render

        print(render(document, metric=metric))
    else:
        from merge_bench.report.comparison import print_comparison

        print_comparison(document, metric=metric)
    if document["error"] is not None:
        print(f"merge_bench: {document['error']['message']}", file=sys.stderr)
    return status


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


def parse_percent(text: str) -> float:
    """``2%`` → 0.02.

    Raises
    ------
    UsageError
        If it is no share of 0 to 100 %.
    """
    try:
        return percent(text)
    except ValueError as error:
        raise UsageError(f"--threshold {error}") from None


def _error(kind: type[GateNotMet] | type[WrongResult], message: str) -> Document:
    return {"code": kind.code, "message": message, "host": None, "rank": None}
