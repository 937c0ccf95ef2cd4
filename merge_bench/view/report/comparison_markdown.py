"""A comparison as GitHub-flavoured Markdown, for a comment or a page."""

from __future__ import annotations

from merge_bench.analysis.documents.compare import CompareDocument
from merge_bench.analysis.verification_state import UNVERIFIED
from merge_bench.view.report import comparison as parts
from merge_bench.view.report import markdown as md
from merge_bench.view.report.layout import Column


def markdown(document: CompareDocument, *, metric: str) -> str:
    """The document of ``compare``; `metric` is what the sentences are about."""
    lines = [f"* {name} {md.code(path)}" for name, path in parts.lettered(document)]
    for comparisons in parts.by_pair(document):
        chosen = parts.about(comparisons, metric)
        lines += ["", f"### {md.escaped(parts.title(chosen))}", "", f"**{md.escaped(parts.sentence(chosen))}**", ""]
        if any(each.ratio is not None for each in comparisons):
            strips = parts.strip_column(comparisons)
            drawn = Column(strips.heading, [md.code(each) if each else "" for each in strips.cells], text=True)
            lines += md.table(parts.metric_columns(comparisons), drawn, "" if chosen.verified else UNVERIFIED)
        if found := parts.of_pair(document, chosen):
            lines += ["", *md.table(parts.difference_columns(found))]
    if document.notes:
        lines += ["", "Notes:", "", *(f"* {md.escaped(note)}" for note in document.notes)]
    return "\n".join(lines)
