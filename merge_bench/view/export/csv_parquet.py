"""``--format csv`` and ``--format parquet``: a flat table, as text and with types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from merge_bench.view.export import Exporter

if TYPE_CHECKING:
    from merge_bench.records.campaign import Campaign
    from merge_bench.records.recorded_plan import RecordedPlan


def _make_table(campaigns: Sequence[Campaign]) -> tuple[Mapping[str, type], list[dict[str, Any]]]:
    """Return the columns of the table, and its rows; merges have the labels that they have in the other formats."""
    from merge_bench.analysis.dataframes import make_flat_table
    from merge_bench.view.export.bencher_prometheus import unusual_merge_option_texts
    from merge_bench.view.titles import workload_text

    def describe_merge(plan: RecordedPlan) -> dict[str, str]:
        return {"problem": workload_text([plan]), "options": ", ".join(unusual_merge_option_texts(plan))}

    return make_flat_table(campaigns, describe_merge)


def _encode_csv(campaigns: Sequence[Campaign]) -> bytes:
    """Encode results as CSV of RFC 4180 in UTF-8, with line ends ``\\n``; an unknown value is an empty cell."""
    import csv
    import io

    columns, rows = _make_table(campaigns)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        cells = [row[name] for name in columns]
        writer.writerow([str(cell).lower() if isinstance(cell, bool) else cell for cell in cells])
    return text.getvalue().encode("utf-8", "backslashreplace")


CSV = Exporter(
    "csv",
    help="a row per timed iteration, launch of a command, or row of a network measurement, with units in the headings",
    place=0,
    encode=_encode_csv,
)


def _encode_parquet(campaigns: Sequence[Campaign]) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    columns, rows = _make_table(campaigns)
    types = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    table = pa.Table.from_pylist(rows, pa.schema([(name, types[kind]) for name, kind in columns.items()]))
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink)
    contents: bytes = sink.getvalue().to_pybytes()
    return contents


PARQUET = Exporter("parquet", help="the table of csv, with types", place=1, encode=_encode_parquet, binary=True)
