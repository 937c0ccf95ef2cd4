"""The `compare` command once its options are parsed: read, compare, show, hold the gate; gives the exit status."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from merge_bench.analysis.compare.document import compare
from merge_bench.analysis.compare.gate import judged
from merge_bench.config.values import percent
from merge_bench.errors import UsageError
from merge_bench.records.reader import read_campaign


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
        from merge_bench.view.report.comparison_markdown import markdown as render

        print(render(document, metric=metric))
    else:
        from merge_bench.view.report.comparison import print_comparison

        print_comparison(document, metric=metric)
    if document["error"] is not None:
        print(f"merge_bench: {document['error']['message']}", file=sys.stderr)
    return status


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
