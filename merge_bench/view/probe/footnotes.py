"""What stands below a table of a network measurement: how it was measured, what was asked for, what it ran on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from merge_bench.probe.ranks.ucc import SHARP_ASKED
from merge_bench.records.probe_rows import Row
from merge_bench.view.numbers import binary
from merge_bench.view.probe.tables import Table
from merge_bench.view.report.content import Page, grouped
from merge_bench.view.text import visible

OTHER_LANES, WRONG, REMARK = "!", "!!", "*"


def mark(row: Row | None) -> str:
    """What stands beside a row that is not what it seems."""
    if row is None:
        return ""
    if row.wrong:
        return WRONG
    return OTHER_LANES if row.as_requested is False else REMARK if row.note else ""


def footnotes(page: Page, table: Table) -> None:
    """What was measured and how, for every line of `table`; lines with the same ones together."""
    for sentences, lines in grouped(table.lines, lambda line: tuple(_sentences(line.rows))).items():
        (first, _), *rest = sentences
        page.line(f"{_some([line.label for line in lines])}: {visible(first)}", "dim")
        for text, style in rest:
            page.line(visible(text), style, indent=2)


def _sentences(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Sentences, each with its style."""
    first = rows[0]
    notes = [(f"{REMARK} {note}", "yellow") for note in dict.fromkeys(row.note for row in rows) if note]
    asked = ", ".join(f"{name}={value}" for name, value in first.requested.items())
    lanes = list(dict.fromkeys(lane for row in rows for lane in row.selected))
    if first.source is not None:
        known = [f"requested: {asked}"] * bool(asked) + [f"selected: {', '.join(lanes)}"] * bool(lanes)
        return [(f"{first.source}; {first.method}", ""), *((text, "dim") for text in known), *notes]
    counts = sorted({row.launches for row in rows})
    number = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    how = "one launch" if counts == [1] else f"medians over {number} launches"
    return [
        (f"{how}; {' / '.join(dict.fromkeys(row.method for row in rows))}{_where(rows)}", ""),
        (f"requested: {asked or 'nothing'}", "dim"),
        (f"selected: {', '.join(lanes) or 'not known'}", "dim"),
        (f"protocols: {_protocols(rows) or 'not known'}", "dim"),
        *_doubts(rows, first.requested.get("UCX_TLS"), lanes),
        *notes,
    ]


def _where(rows: Sequence[Row]) -> str:
    """The hosts, where they are few."""
    hosts = list(dict.fromkeys(row.hosts for row in rows if row.hosts))
    if len(hosts) != 1:
        return ""
    names = list(dict.fromkeys(hosts[0]))
    return f"; on {' and '.join(names) if len(names) < 3 else f'{len(names)} hosts'}"


def _doubts(rows: Sequence[Row], asked: str | None, lanes: Sequence[str]) -> list[tuple[str, str]]:
    doubts = []
    other = [row for row in rows if row.as_requested is False]
    if other and other[0].test.endswith(SHARP_ASKED):
        carried = " / ".join(dict.fromkeys(row.protocol or "?" for row in other))
        doubts.append(
            (f"{OTHER_LANES} {_sizes(other, rows)}: {carried} was used although SHARP was requested", "bold yellow")
        )
    elif other:
        though = f" although UCX_TLS={asked} was requested" if asked else ", not only the requested ones"
        doubts.append(
            (f"{OTHER_LANES} {_sizes(other, rows)}: UCX selected {', '.join(lanes) or '?'}{though}", "bold yellow")
        )
    if asked is not None and not lanes:
        doubts.append(("unknown whether the requested transports were used", "dim"))
    wrong = [row for row in rows if row.wrong]
    if wrong:
        doubts.append(
            (f"{WRONG} {_sizes(wrong, rows)}: WRONG RESULT; the table shows the number of wrong elements", "bold red")
        )
    return doubts


def _sizes(some: Sequence[Row], rows: Sequence[Row]) -> str:
    if len(some) == len(rows):
        return "every size"
    return binary(some[0].size) if len(some) == 1 else f"{len(some)} of {len(rows)} sizes"


def _protocols(rows: Sequence[Row]) -> str:
    """Runs of sizes with the same protocol, as measured; nothing is claimed about what lies between two sizes."""
    if all(row.protocol is None for row in rows):
        return ""
    runs = [list(run) for _, run in groupby(rows, lambda row: row.protocol)]
    return "; ".join(f"{_span(run)} {run[0].protocol or 'not known'}" for run in runs)


def _span(run: Sequence[Row]) -> str:
    return binary(run[0].size) if len(run) == 1 else f"{binary(run[0].size)} to {binary(run[-1].size)}"


def _some(labels: Sequence[str]) -> str:
    return "; ".join(labels) if len(labels) <= 8 else f"all {len(labels)}"
