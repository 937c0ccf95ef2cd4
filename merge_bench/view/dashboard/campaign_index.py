"""Which results a page lists and offers: those of its folder, and the published and shipped ones."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from merge_bench.analysis import published
from merge_bench.records.results_folder import RUNNING, YOURS, Entry, ResultsFolder
from merge_bench.view.text import short, visible
from merge_bench.view.titles import short_times, title_of_entry, unusual_engines

SHIPPED, PUBLISHED = "shipped", "published"


def beside(results: Path) -> list[ResultsFolder]:
    """The published and shipped results to list with those in `results`."""
    shipped = published.FOLDER.parent
    places = {results / "curated": SHIPPED, results / "published": PUBLISHED}
    if results.resolve() != shipped:
        places |= {published.FOLDER: PUBLISHED, shipped / "curated": SHIPPED}
    return [ResultsFolder(place, origin) for place, origin in places.items()]


def _label(entry: Entry) -> str:
    """Its title, its engines if one is not the usual one, and its status."""
    return " · ".join(filter(None, (short(title_of_entry(entry), 60), unusual_engines(entry.plans), entry.status)))


def offered(entries: Sequence[Entry], name: Callable[[Entry], str] = _label) -> dict[str, str]:
    """The id of each of `entries` by when it began and its `name`: ``25 Nov 14:02 · tcp: … · done``.

    The folder's name is added where two have the same label, and the year where there are several.
    """
    began = short_times((entry.started for entry in entries), clock=True)
    labels = [
        " · ".join(filter(None, (time, visible(name(entry))))) for time, entry in zip(began, entries, strict=True)
    ]
    counts = Counter(labels)
    return {
        label + f" ({visible(entry.folder.name)})" * (counts[label] > 1): entry.id
        for label, entry in zip(labels, entries, strict=True)
    }


def newest_running(entries: Sequence[Entry]) -> Entry | None:
    """The campaign to watch: the newest that runs, or else the newest of yours."""
    running = (entry for entry in entries if entry.written and entry.status == RUNNING)
    yours = (entry for entry in entries if entry.origin == YOURS and entry.head is not None)
    return next(itertools.chain(running, yours), None)
