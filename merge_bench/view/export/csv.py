"""``--format csv``: a flat table as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from merge_bench.view.export import Exporter

if TYPE_CHECKING:
    from merge_bench.records.campaign import Campaign


def _encode(campaigns: Sequence[Campaign]) -> bytes:
    """Results as CSV of RFC 4180 in UTF-8, with line ends ``\\n``; an unknown value is an empty cell."""
    import csv
    import io

    from merge_bench.analysis.dataframes import flat_rows

    columns, rows = flat_rows(campaigns)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row[name]) for name in columns] for row in rows)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _cell(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


EXPORTER = Exporter(
    "csv",
    help="a row per timed iteration, or per row of a network measurement, with the units in the headings",
    place=0,
    encode=_encode,
)
