"""Output of cudf-polars' benchmarks (``pdsh.py``, ``pdsds.py``): a line for each query and iteration, and a summary.

An iteration is one of each query; its wall-clock is the sum of theirs.
"""

from __future__ import annotations

import math
import re

from merge_bench.campaign.importers import ImportedResult, Importer
from merge_bench.campaign.printed_text import PrintedText, program_error_warning, unread_lines_warning
from merge_bench.errors import Caution
from merge_bench.records import schema as s
from merge_bench.records.recorded_plan import WALL

IMPORTER = Importer(name="cudf-polars", help="pdsh and pdsds", place=4, includes=("rapidsmpf",))

_LINE = re.compile(
    r"(?:✅\s*)?Query (?P<query>\d{1,6}) - Iteration (?P<iteration>\d{1,6}) finished in (?P<rest>.*)", re.ASCII
)
_SECONDS = re.compile(r"(\d{1,9}\.\d{4})s", re.ASCII)
_FAILED = re.compile(r"❌\s*(?:Query (?P<wrong>\d+) failed validation|query=(?P<query>\d+) iteration=\d+ failed).*")
_FACT = re.compile(r"(?P<name>query|path|scale_factor|executor|iterations): (?P<value>\S.*)|-{20,}|={20,}")
_TIME = re.compile(r"(?P<name>min|max|mean) time\s*: (?P<seconds>\d{1,9}\.\d{4})", re.ASCII)
_SUMMARY_TITLE = "Iteration Summary"
_SUMMARY = re.compile(rf"{_SUMMARY_TITLE}|Total mean time across all queries: .*|Validation Summary|All validated .*")


def find_identifying_line(text: PrintedText) -> int:
    """Return the number of the first line about a query, or of the summary's title; 0 without one."""
    lines = enumerate(text.bare, 1)
    return next((at for at, line in lines if _LINE.match(line) or _FAILED.match(line) or line == _SUMMARY_TITLE), 0)


def read(text: PrintedText) -> ImportedResult:
    """Read the times of queries; raises UsageError if one failed or is wrong, or if the text is cut or of two runs."""
    times: dict[int, dict[int, float]] = {}  # by iteration and query
    means: dict[int, float] = {}
    summarized: list[int] = []
    used: set[int] = set()
    first = find_identifying_line(text)
    for number, line in enumerate(text.bare, 1):
        if failed := _FAILED.match(line):
            what = "a wrong result" if failed["wrong"] else "a failure"
            text.refuse_line(number, f"the benchmark reports {what} of query {failed['wrong'] or failed['query']}")
        if match := _LINE.fullmatch(line):
            query, iteration, seconds = int(match["query"]), int(match["iteration"]), _SECONDS.fullmatch(match["rest"])
            if seconds is None:
                text.refuse_line(number, f"{match['rest']!r} is not a time such as 1.3267s; the text is cut or damaged")
            if query in times.setdefault(iteration, {}):
                text.refuse_line(
                    number, f"query {query} has a second iteration {iteration}; put each run into its own file"
                )
            times[iteration][query] = float(seconds[1])
        elif fact := _FACT.fullmatch(line):
            if fact["name"] == "query" and re.fullmatch(r"\d{1,6}", fact["value"], re.ASCII):
                summarized.append(int(fact["value"]))
        elif time := _TIME.fullmatch(line):
            if time["name"] == "mean" and summarized:
                means[summarized[-1]] = float(time["seconds"])
        elif not _SUMMARY.fullmatch(line):
            continue
        used.add(number)
    _refuse_missing_queries(text, times, means, summarized)
    only_means = not times
    iterations = {0: means} if only_means else times
    queries = list(iterations[min(iterations)])
    metrics = [{"name": name, "unit": "s", "better": "less"} for name in (WALL, *map(_query_metric_name, queries))]
    command = text.find_command(r"pds(?:h|ds)|cudf_polars", first)
    warnings = [*program_error_warning(text), *unread_lines_warning(text, used)]
    if only_means:
        warnings.append(Caution("imported-means", "the imported output has only the mean times of the queries"))
    return ImportedResult(
        program="cudf-polars benchmarks",
        plan={"command": {"argv": [IMPORTER.name], "metrics": metrics}, "launches": 1},
        measurements=[
            s.IterationLine(
                launch=0,
                index=index,
                wall_seconds=math.fsum(seconds.values()),
                values={_query_metric_name(query): each for query, each in seconds.items()},
            )
            for index, (_, seconds) in enumerate(sorted(iterations.items()))
        ],
        command=command,
        variables=text.library_variables(command),
        warnings=tuple(warnings),
    )


def _query_metric_name(query: int) -> str:
    return f"q{query}"


def _refuse_missing_queries(
    text: PrintedText, times: dict[int, dict[int, float]], means: dict[int, float], summarized_queries: list[int]
) -> None:
    """Refuse a text in which an iteration lacks a query, or a query of the summary has no time."""
    if not times and not means:
        text.refuse_incomplete("before the first query")
    every = dict.fromkeys(query for queries in times.values() for query in queries)
    for iteration in range(len(times)):  # they are counted from 0
        for query in every:
            if query not in times.get(iteration, {}):
                text.refuse_incomplete(f"and has no iteration {iteration} of query {query}")
    for query in summarized_queries:
        if query not in means or (times and query not in every):
            text.refuse_incomplete(f"and has no time of query {query}, which its summary has")
