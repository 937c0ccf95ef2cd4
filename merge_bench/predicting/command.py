"""The `predict` command once its options are parsed: read, forecast, show, draw; gives the exit status."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from merge_bench.errors import RunFailed, UsageError
from merge_bench.outputs import check_writable, replacing
from merge_bench.predicting.document import predict
from merge_bench.record.reader import read_campaign
from merge_bench.record.writer import RECORDS
from merge_bench.units import parse_count


def predict_command(
    results: Sequence[str], *, workers: int, hosts: int, chunk: str | None, config: str | None, what_if: Sequence[str],
    links: Sequence[str], plots: Sequence[str], json_output: bool,
) -> int:  # fmt: skip
    """`predict`: a forecast for a cluster that is not there."""
    files = _plots(plots)
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
        from merge_bench.report.forecast import print_forecast

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


def _plots(names: Sequence[str]) -> list[Path]:
    """The files to draw, seen to before anything is computed."""
    from merge_bench.plot.draw import check_form

    files = [Path(name) for name in dict.fromkeys(names)]
    for file in files:
        check_form(file)
        check_writable("--plot", file)
        if file.name == RECORDS:
            raise UsageError(f"--plot {file} is the records of a result, which are never overwritten")
    return files


def _draw(document: Mapping[str, Any], file: Path) -> str | None:
    """Whatever a drawing library raises must not hide the forecast; gives what went wrong."""
    from merge_bench.plot.draw import draw
    from merge_bench.plot.forecast import panels_of

    try:
        with replacing(file) as draft:
            draw(panels_of(document), draft, file)
    except Exception as problem:
        why = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        return f"{file} was not written: {why or type(problem).__name__}"
    print(f"merge_bench: wrote {file}", file=sys.stderr)
    return None
