"""What was measured on each processor, side by side, from `results/goals/*.json`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from benchmarks.goal.targets import Result
from benchmarks.h2o import HEADINGS, row
from benchmarks.shapes import SHAPES
from merge_bench.merge.workload.h2o import BENCHMARK
from tools.reference import DOCS, page, table

RESULTS = DOCS.parent / "results" / "goals"
PROCESSORS = {
    "intel-xeon-167": "Intel Xeon, model 167 (2 MiB of L2, 480 of L3)",
    "intel-xeon": "Intel Xeon, model 207 (2 MiB of L2, 480 of L3)",
    "intel-xeon-207-260": "Intel Xeon, model 207 (2 MiB of L2, 260 of L3)",
    "amd-epyc": "AMD EPYC (1 MiB of L2, 32 of L3)",
}
"""By the name of the file. All ran with two cores of a virtual machine, alone on it."""

_ALONE = """\
Two cores of a virtual machine each, alone on it; a figure of one processor says nothing about another. Figures have the
commit that was measured. Wide spreads, as with 260 MiB of L3, probably come from other virtual machines on the same
host: there the same merge of 4e6 rows took 10.8, 13.7 and 22.9 ns a row within five minutes."""


def goals() -> str:
    """The page of the goals and of the limits of memory."""
    return page(
        "Goals, processor by processor",
        "[performance.md](performance.md#the-goals) says what each goal measures. " + _ALONE,
        _goals(_read("")),
        "A cell has the median over blocks and its spread: with six blocks or more its interval of 97 %, with fewer the"
        " least and the greatest. A goal that was another at the time stands in the cell.",
        "## Share of the limits of memory",
        "`benchmarks.roofline`: how much of the copy limit each phase reaches; then the time that the limits of what it"
        " does allow, of the time that it took ([how](performance.md#what-memory-allows)).",
        _roofline(_read("roofline-")),
    )


def shapes() -> str:
    """The page of joins of several shapes."""
    return page(
        "Joins of several shapes, processor by processor",
        "How many times as fast merge_bench is as the fastest of DuckDB (table, or Arrow) and Polars streaming: as"
        " it is, and with `--runtime-filter on` ([what](performance.md#compared-with-other-tools)).",
        _ALONE,
        *(_shapes(name, document) for name, document in _read("shapes-").items()),
        *_questions(_read("h2o-")),
    )


@cache
def _read(prefix: str) -> dict[str, Any]:
    files = {name: RESULTS / f"{prefix}{name}.json" for name in PROCESSORS}
    return {name: json.loads(path.read_bytes()) for name, path in files.items() if path.exists()}


def _goals(documents: Mapping[str, Any]) -> str:
    known: dict[str, dict[str, tuple[Result, str]]] = {}
    for name, document in documents.items():
        for goal in document["goals"]:
            commit = goal.get("run", document)["git"]["commit"]
            known.setdefault(goal["goal"], {})[name] = Result.from_json(goal), commit
    rows = []
    for of in known.values():
        newest = next(iter(of.values()))[0].target
        cells = (_goal(*of[name], newest.shown) if name in of else "not measured" for name in documents)
        rows.append([newest.what, newest.shown, *cells])
    return table(["goal", "target", *(PROCESSORS[name] for name in documents)], rows)


def _goal(result: Result, commit: str, target: str) -> str:
    spread = result.spread
    if spread is None:
        return "; ".join(result.failures) or "not measured"
    met = ("met" if result.met else "**missed**") + ("" if result.sure else ", within the spread")
    limited = f", limited by the {result.target.or_limited_by}" if result.instead else ""
    another = f"; the goal was {result.target.shown}" if result.target.shown != target else ""
    ends = f"{spread.low:.3g}–{spread.high:.3g} of {spread.blocks}"
    return f"{spread.median:.3g}{result.target.unit}{limited} ({ends}): {met}{another} ({commit[:7]})"


def _roofline(documents: Mapping[str, Any]) -> str:
    def of_phase(name: str) -> Iterable[str]:
        for document in documents.values():
            phase = next(each for each in document["phases"] if each["name"] == name)
            own = document.get("own_least_seconds", {}).get(name)
            beside = (
                f"; {own * 1e3:.0f} of {phase['seconds'] * 1e3:.0f} ms: {own / phase['seconds']:.0%}" if own else ""
            )
            yield f"{phase['fraction']:.0%}{beside}"

    def of_limit(name: str) -> Iterable[str]:
        for document in documents.values():
            rate = next((each["rate"] for each in document["limits"] if each["name"] == name), None)
            yield "not measured" if rate is None else f"{rate / 1e9:.1f} GB/s"

    rows = [[f"limit: {name}", *of_limit(name)] for name in ("copy", "loop", "kernel copy", "read")]
    rows += [[name, *of_phase(name)] for name in ("partition", "exchange", "join", "whole")]
    rows.append(["commit", *(document["git"]["commit"][:7] for document in documents.values())])
    return table(["", *(PROCESSORS[name] for name in documents)], rows)


def _shapes(name: str, document: Mapping[str, Any]) -> str:
    rows = [_shape(shape, document["shapes"][shape]) for shape in SHAPES if shape in document["shapes"]]
    headings = ["shape", "rows per chunk", "ours (ms)", "fastest peer (ms)", "times as fast", "least–greatest"]
    title = f"## {PROCESSORS[name]}"
    what = f"{document['blocks']} interleaved blocks, commit {document['git']['commit'][:7]}."
    return "\n\n".join((title, what, table([*headings, "with the filter (ms)", "times as fast"], rows)))


def _questions(documents: Mapping[str, Any]) -> Iterable[str]:
    """The joins of db-benchmark, a table for each processor and number of rows; nothing if there are no results."""
    if documents:
        yield "## The joins of db-benchmark"
        yield (
            "`benchmarks.h2o`: of each program the fastest variant, its milliseconds and how many times as long as"
            " merge_bench it took, median over blocks with its interval, with fewer than six blocks the least and the"
            " greatest ([what](performance.md#the-joins-of-db-benchmark)). In q3 pandas and Polars' in-memory engine"
            " copy no column of x."
        )
    for name, document in documents.items():
        commit = document["git"]["commit"][:7]
        yield f"### {PROCESSORS[name]}, {document['rows']:,} rows"
        yield f"{document['blocks']} interleaved blocks, commit {commit}. {_programs(document)}"
        asked = (each for each in BENCHMARK.questions if each.name in document["questions"])
        yield table(HEADINGS, [row(each, document["questions"][each.name]) for each in asked])


def _programs(document: Mapping[str, Any]) -> str:
    versions: dict[str, str] = {}
    for found in document["questions"].values():
        versions |= {name.split("-")[0]: version for name, version in found["versions"].items()}
    others = (f"{name} {version}" for name, version in sorted(versions.items()) if name != "merge_bench")
    return f"{', '.join(others)}."


def _shape(name: str, found: Mapping[str, Any]) -> list[str]:
    standings = {each["contender"]: each for each in found["standings"]}
    ours, filtered = (standings[each]["wall"] for each in ("merge_bench", "merge_bench-filter"))
    walls = {each: line["wall"] for each, line in standings.items() if not each.startswith("merge_bench")}
    peer, wall = min(walls.items(), key=lambda each: each[1])
    ratio = standings[peer]["ratio"]
    return [
        SHAPES[name].name, f"{found['rows_per_chunk']:,}", f"{ours * 1e3:.0f}", f"{peer}, {wall * 1e3:.0f}",
        f"{ratio['median']:.2f}", f"{ratio['low']:.2f}–{ratio['high']:.2f}", f"{filtered * 1e3:.0f}",
        f"{wall / filtered:.2f}",
    ]  # fmt: skip
