"""``--format parquet``: the table of ``--format csv``, with types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from merge_bench.view.export import Exporter

if TYPE_CHECKING:
    from merge_bench.records.campaign import Campaign


def _encode(campaigns: Sequence[Campaign]) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    from merge_bench.analysis.dataframes import flat_rows

    columns, rows = flat_rows(campaigns)
    types = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    table = pa.Table.from_pylist(rows, pa.schema([(name, types[kind]) for name, kind in columns.items()]))
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink)
    contents: bytes = sink.getvalue().to_pybytes()
    return contents


EXPORTER = Exporter("parquet", help="the table of csv, with types", place=1, encode=_encode, binary=True)
