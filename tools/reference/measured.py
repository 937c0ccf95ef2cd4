"""The page of everything that was measured, from `results/goals/` and `results/curated/`."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from textwrap import fill
from typing import Any

from benchmarks import predict_validation
from benchmarks.goal.targets import Result
from benchmarks.h2o import HEADINGS, row
from benchmarks.shapes import SHAPES
from merge_bench.analysis.statistics import median
from merge_bench.merge.workload.h2o import H2O
from tools.reference import DOCS, page, table

RESULTS = DOCS.parent / "results" / "goals"
CURATED = DOCS.parent / "results" / "curated"


@dataclass(frozen=True)
class Processor:
    """`short`: its name in tables; `caches`: what tells it from others of the same model."""

    short: str
    name: str
    caches: str


PROCESSORS = {
    "intel-xeon-167": Processor("Xeon 167", "Intel Xeon, model 167", "2 MiB of L2, 480 MiB of L3"),
    "intel-xeon": Processor("Xeon 207", "Intel Xeon, model 207", "2 MiB of L2, 480 MiB of L3"),
    "intel-xeon-207-260": Processor("Xeon 207/260", "Intel Xeon, model 207", "2 MiB of L2, 260 MiB of L3"),
    "amd-epyc": Processor("EPYC", "AMD EPYC", "1 MiB of L2, 32 MiB of L3"),
    "amd-epyc-512": Processor("EPYC 512", "AMD EPYC", "512 KiB of L2, 32 MiB of L3"),
}
"""By the name of the file. All ran with two cores of a virtual machine."""

_HOW_TO_READ = """\
[performance.md](performance.md) says what these figures mean and how to repeat them. A figure of one processor says
nothing about another. In brackets stands the spread: with six blocks or more the interval of the median (97 %), with
fewer the least and the greatest value. The sources are `results/goals/` and `results/curated/`; where only a table of
results was kept, its section says so. *Load* is the load average of the machine's two cores over one minute when the
benchmark began, or over 1, 5 and 15 minutes; what ran a moment before counts in it."""

_SAME_ROWS = 4_000_000


def text() -> str:
    """The page."""
    goals = _read("")
    stored = stored_tables()
    parts = (
        _HOW_TO_READ,
        "## Processors",
        table(["here", "processor", "caches"], [[one.short, one.name, one.caches] for one in PROCESSORS.values()]),
        _neighbours(goals["intel-xeon-207-260"]),
        "## Beside other tools",
        "25e6 + 25e6 rows for each of two workers, both cores for every program. Seconds, medians over blocks; then how"
        " many times as long as merge_bench ([how](performance.md#compared-with-other-tools)).",
        _peers(goals),
        "## Goals",
        "[performance.md](performance.md#the-goals) says how each is measured.",
        *(part for name, document in goals.items() for part in _goals(name, document, goals)),
        "## Joins of other shapes",
        "How many times as fast merge_bench is as the fastest of DuckDB (table, or Arrow) and Polars streaming: without"
        " and with `--runtime-filter on` ([how](performance.md#other-shapes)).",
        *(_shapes(name, document) for name, document in _read("shapes-").items()),
        *questions(_read("h2o-")),
        "## Limits of memory",
        "`benchmarks.roofline`: the share of the copy limit that each phase reaches; then the time that the limits of"
        " its operations allow, of the time that it took ([how](performance.md#what-memory-allows)).",
        _roofline(_read("roofline-")),
        "## More workers",
        *_width(),
        "## Forecasts",
        "Forecasts of `predict` for clusters that it was not fitted on ([how](predict.md#validation)).",
        *(predict_validation.table(document) for document in _forecasts()),
        *(part for one in stored for part in section(one)),
    )
    titles = [part.removeprefix("## ") for part in parts if part.startswith("## ")]
    contents = "\n".join(f"- [{title}](#{_anchor(title)})" for title in titles)
    return page("Measurements", *(_filled(part) for part in (parts[0], contents, *parts[1:])))


def _neighbours(document: Mapping[str, Any]) -> str:
    """What the processors had in common, and how far the same merge differed on the one with the widest spreads."""
    (linear,) = (goal for goal in document["goals"] if goal["goal"] == "linear")
    rows = [size for block in linear["details"] for size in block["sizes"] if size["rows_per_chunk"] == _SAME_ROWS]
    times = [f"{size['nanoseconds_per_row']:.1f}" for size in rows]
    return (
        "Each had two cores of a virtual machine. Wide spreads, as on Xeon 207/260, probably come from other virtual"
        f" machines on the same host: there the same merge of 4e6 rows took {', '.join(times[:-1])} and {times[-1]} ns"
        f" a row in {len(times)} blocks."
    )


def _conditions(document: Mapping[str, Any]) -> str:
    """Commit of a stored result, whether its sources were committed, and the load over 1, 5 and 15 minutes."""
    changes = " with uncommitted changes" if document["git"]["dirty"] else ""
    load = ", ".join(f"{average:.1f}" for average in document["load_average"])
    return f"commit {document['git']['commit'][:7]}{changes}, load {load}"


WALLS = ("<!-- Walls of forecasts, written by: python -m tools.reference -->", "<!-- End of the walls -->")


def with_forecast_walls(page_text: str) -> str:
    """The page of `predict`, with the walls of the stored validation between both marks of `WALLS`."""
    begin, end = WALLS
    tables = "\n\n".join(_filled(predict_validation.table(document, only_walls=True)) for document in _forecasts())
    return f"{page_text.partition(begin)[0]}{begin}\n\n{tables}\n\n{end}{page_text.partition(end)[2]}"


def _forecasts() -> list[Any]:
    folder = CURATED / "predict-cpu-2026-11"
    return [json.loads((folder / f"{part}.json").read_bytes()) for part in predict_validation.PARTS]


def _anchor(title: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _filled(part: str) -> str:
    """Paragraphs and items in lines of at most 120 characters; tables and headings as they are."""
    return "\n".join(
        line
        if line.startswith(("|", "#"))
        else fill(
            line, 120, break_long_words=False, break_on_hyphens=False, subsequent_indent="  " * line.startswith("- ")
        )
        for line in part.splitlines()
    )


@cache
def _read(prefix: str) -> dict[str, Any]:
    files = {name: RESULTS / f"{prefix}{name}.json" for name in PROCESSORS}
    return {name: json.loads(path.read_bytes()) for name, path in files.items() if path.exists()}


def _peers(documents: Mapping[str, Any]) -> str:
    """Seconds of each program, and how many times as long as ours, by processor."""
    found: dict[str, dict[str, str]] = {"merge_bench": {}}
    for name, document in documents.items():
        results = {goal["goal"]: Result.from_json(goal) for goal in document["goals"]}
        for goal in ("polars", "duckdb", "dask"):
            if goal not in results or not results[goal].values:
                continue
            walls: dict[str, list[float]] = {}
            for each in results[goal].details:
                for program, wall in each["wall_seconds"].items():
                    walls.setdefault(program, []).append(wall)
            ours = walls.pop("merge_bench")
            if len(walls) > 1:
                walls[f"{goal}, the faster in each block"] = [min(each) for each in zip(*walls.values(), strict=True)]
            if goal == "polars":
                found["merge_bench"][name] = f"{median(ours):.3g}"
            for program, values in walls.items():
                ratios = [wall / own for wall, own in zip(values, ours, strict=True)]
                cell = f"{median(values):.3g}, {median(ratios):.3g}"
                found.setdefault(program, {})[name] = cell + (f" (of {len(ratios)})" if len(ratios) < 6 else "")
    rows = [[program, *(cells.get(name, "-") for name in documents)] for program, cells in found.items()]
    return table(["seconds, ÷ ours", *(PROCESSORS[name].short for name in documents)], rows)


def _goals(name: str, document: Mapping[str, Any], documents: Mapping[str, Any]) -> Iterator[str]:
    """A processor's table; a goal that was another at the time stands beside its verdict."""
    newest = {goal["goal"]: goal for each in reversed(list(documents.values())) for goal in each["goals"]}
    yield f"### {_title(name)}"
    rows = []
    for goal in document["goals"]:
        result, spread = Result.from_json(goal), Result.from_json(goal).spread
        target = result.target
        run = goal.get("run", document)
        commit, load = run["git"]["commit"][:7], f"{run['load_average'][0]:.1f}"
        if spread is None:
            rows.append([target.what, target.shown, "-", "-", "not measured", commit, load])
            continue
        met = ("met" if result.met else "**missed**") + ("" if result.sure else ", within the spread")
        met += f", limited by the {target.or_limited_by}" if result.instead else ""
        now = Result.from_json(newest[goal["goal"]]).target.shown
        met += f"; today {now}" if now != target.shown else ""
        ends = f"{spread.low:.3g}–{spread.high:.3g} of {spread.blocks}"
        rows.append([target.what, target.shown, f"{spread.median:.3g}{target.unit}", ends, met, commit, load])
    yield table(["goal", "target", "median", "spread, blocks", "verdict", "commit", "load"], rows)
    yield from dict.fromkeys(
        f"Why not measured: {'; '.join(goal['failures'])}." for goal in document["goals"] if not goal["values"]
    )


def _title(name: str) -> str:
    return f"{PROCESSORS[name].name} ({PROCESSORS[name].caches})"


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
    rows.append(["load", *(f"{document['load_average'][0]:.1f}" for document in documents.values())])
    return table(["", *(PROCESSORS[name].short for name in documents)], rows)


def _shapes(name: str, document: Mapping[str, Any]) -> str:
    rows = [_shape(shape, document["shapes"][shape]) for shape in SHAPES if shape in document["shapes"]]
    headings = ["shape", "rows per chunk", "ours (ms)", "fastest peer (ms)", "times as fast", "least–greatest"]
    title = f"### Shapes: {_title(name)}"
    what = f"{document['blocks']} interleaved blocks, {_conditions(document)}."
    return "\n\n".join((title, what, table([*headings, "with the filter (ms)", "times as fast"], rows)))


def _shape(name: str, found: Mapping[str, Any]) -> list[str]:
    standings = {each["contender"]: each for each in found["standings"]}
    ours, filtered = (standings[each]["wall"] for each in ("merge_bench", "merge_bench-filter"))
    walls = {each: line["wall"] for each, line in standings.items() if not each.startswith("merge_bench")}
    peer, wall = min(walls.items(), key=lambda each: each[1])
    ratio = standings[peer]["ratio"]
    return [
        SHAPES[name].name,
        f"{found['rows_per_chunk']:,}",
        f"{ours * 1e3:.0f}",
        f"{peer}, {wall * 1e3:.0f}",
        f"{ratio['median']:.2f}",
        f"{ratio['low']:.2f}–{ratio['high']:.2f}",
        f"{filtered * 1e3:.0f}",
        f"{wall / filtered:.2f}",
    ]


def questions(documents: Mapping[str, Any]) -> Iterable[str]:
    """The section on the joins of db-benchmark: a table for each processor and its number of rows.

    `documents`: what `benchmarks.h2o` wrote, by the name of the processor; nothing is made of none.
    """
    if documents:
        yield "## The joins of db-benchmark"
        yield (
            "`benchmarks.h2o`: of each program the fastest variant, its milliseconds and how many times as long as"
            " merge_bench it took ([how](performance.md#the-joins-of-db-benchmark)). In q3 pandas and Polars' in-memory"
            " engine copy no column of x."
        )
    for name, document in documents.items():
        yield f"### Questions: {_title(name)}, {document['rows']:,} rows"
        yield f"{document['blocks']} interleaved blocks, {_conditions(document)}. {_programs(document)}"
        asked = (each for each in H2O.questions if each.name in document["questions"])
        yield table(HEADINGS, [row(each, document["questions"][each.name]) for each in asked])


def _programs(document: Mapping[str, Any]) -> str:
    versions: dict[str, str] = {}
    for found in document["questions"].values():
        versions |= {name.split("-")[0]: version for name, version in found["versions"].items()}
    others = (f"{name} {version}" for name, version in sorted(versions.items()) if name != "merge_bench")
    return f"{', '.join(others)}."


def _width() -> Iterator[str]:
    document = json.loads((CURATED / "width-cpu-2026-11" / "width.json").read_bytes())
    hardware = document["hardware"]
    yield (
        f"All-to-all between test hosts, one worker each, on {hardware['cores']} cores of an {hardware['cpu_model']},"
        f" {_conditions(document)}. Ratio: exchange ÷ time of its bytes at link rate, headers included"
        " ([how](performance.md#more-workers))."
    )
    headings = ("workers", "Mbit/s per link", "exchange (ms)", "bytes at link rate (ms)", "ratio", "dropped")
    rows = [
        [
            str(each["workers"]),
            f"{each['rate'] / 1e6:.0f}",
            f"{each['exchange'] * 1e3:.0f}",
            f"{each['least'] * 1e3:.0f}",
            f"{each['exchange_over_least']:.2f}",
            f"{each['dropped']:.2%}",
            f"{each['peak_over_input']:.2f}",
            f"{each['startup']:.0f}",
        ]
        for each in document["widths"]
    ]
    yield table([*headings, "peak ÷ input", "start (s)"], rows)


@dataclass(frozen=True)
class Campaign:
    """A table of `results/curated/`, with its conditions.

    `about`: what the figures are; `machine`, `when`: of the measurement; `place`: its position on the page; `result`:
    the stored document from which its figures follow, in `results/curated/`, or nothing if only this table was kept.
    """

    title: str
    place: int
    command: str
    machine: str
    when: str
    about: str
    columns: list[str]
    rows: list[list[str]]
    commit: str = ""
    notes: tuple[str, ...] = ()
    result: str = ""

    def __post_init__(self) -> None:
        wrong = [row for row in self.rows if len(row) != len(self.columns)]
        if wrong or not (self.machine and self.when and self.command):
            raise ValueError(f"{self.title}: a row of another width ({wrong}), or no machine, date or command")


def stored_tables() -> list[Campaign]:
    """The tables of `results/curated/`, in the order of the page."""
    files = sorted(CURATED.rglob("*.toml"))
    return sorted((Campaign(**tomllib.loads(file.read_text("utf-8"))) for file in files), key=lambda one: one.place)


def section(campaign: Campaign) -> Iterator[str]:
    """The heading of a table, its conditions, the table, and its notes."""
    yield f"## {campaign.title}"
    commit = f", commit {campaign.commit}" if campaign.commit else ""
    kept = " Only this table was kept: its records are not stored."
    if campaign.result:
        document = json.loads((CURATED / campaign.result).read_bytes())
        commit = f", {_conditions(document)}"
        kept = f" From `results/curated/{campaign.result}`."
    conditions = f"Measured on {campaign.machine}; {campaign.when}{commit}: `{campaign.command}`."
    yield f"{campaign.about.strip()} {conditions}{kept}"
    yield table(campaign.columns, campaign.rows)
    if campaign.notes:
        yield "\n".join(f"- {note}" for note in campaign.notes)
