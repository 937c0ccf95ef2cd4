"""The published results, from `results/published/*.toml`."""

from __future__ import annotations

from merge_bench.analysis import published
from tools.reference import page, table

_INTRO = """\
Results of others, as data in `results/published/`: a `.toml` for each dataset, and its numbers beside it. A value
that was printed is kept as it was (`published_value`, `published_unit`), next to the value in SI units, a `note`, and
`valid`: if that is `false`, the number is not used. None of them has an interval: as far as they say, each is from
one launch. [results.md](../results.md#published-and-imported-results) shows how to use them."""


def text() -> str:
    """The page."""
    found = published.datasets()
    rows = ([f"[`{name}`](#{name})", each.title, each.authors] for name, each in found.items())
    parts = [_INTRO, table(["dataset", "holds", "authors"], rows)]
    for name, each in found.items():
        facts = {"what": each.what, "hardware": each.hardware, "method": each.method, "source": "; ".join(each.source)}
        facts["units"] = f"published: {each.published_units}; stored: {each.stored_units}"
        parts += [f"## {name}", table(["", each.title], ([f"*{key}*", value] for key, value in facts.items()))]
        parts += ["\n".join(f"- {note}" for note in each.notes)]
    return page("Published results", *parts)
