"""The `predict` command once its options are parsed: read, forecast, show, draw; gives the exit status."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from merge_bench.analysis.predict.document import predict
from merge_bench.errors import RunFailed, UsageError
from merge_bench.records.reader import read_campaign
from merge_bench.units import parse_count
from merge_bench.view.plot.draw import attempt, check_plots, draw
from merge_bench.view.plot.forecast import panels_of


def predict_command(
    results: Sequence[str], *, workers: int, hosts: int, chunk: str | None, config: str | None, what_if: Sequence[str],
    links: Sequence[str], plots: Sequence[str], json_output: bool,
) -> int:  # fmt: skip
    """`predict`: a forecast for a cluster that is not there."""
    files = check_plots(list(dict.fromkeys(plots)))
    document = predict(
        [read_campaign(result) for result in results],
        workers=workers, hosts=hosts, chunk=parse_rows(chunk), what_if=what_if, links=links, config=config,
    )  # fmt: skip
    problems = [problem for file in files if (problem := _draw(document, file))]
    if problems:
        document["error"] = {"code": RunFailed.code, "message": "; ".join(problems), "host": None, "rank": None}
    if json_output:
        print(json.dumps(document, allow_nan=False))
    else:
        from merge_bench.view.report.forecast import print_forecast

        print_forecast(document)
    for problem in problems:
        print(f"merge_bench: {problem}", file=sys.stderr)
    return RunFailed.exit_status if problems else 0


def parse_rows(text: str | None) -> int | None:
    """``25e6`` → 25000000.

    Raises
    ------
    UsageError
        If it is no count above 0.
    """
    if text is None:
        return None
    try:
        rows = parse_count(text)
    except ValueError as error:
        raise UsageError(f"--chunk {error}") from None
    if rows < 1:
        raise UsageError(f"--chunk {text} is less than 1")
    return rows


def _draw(document: Mapping[str, Any], file: Path) -> str | None:
    """Draw the forecast; gives what went wrong."""
    problem = attempt(partial(draw, panels_of(document)), file)
    if problem is None:
        print(f"merge_bench: wrote {file}", file=sys.stderr)
    return problem
