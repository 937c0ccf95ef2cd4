"""DuckDB: reads buckets where they lie, as Arrow, and joins them in memory."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from merge_bench.errors import RunFailed
from merge_bench.merge.engines import Description
from merge_bench.merge.engines.base import JoinShape
from merge_bench.merge.engines.host import HostEngine

ENGINE = Description(
    name="duckdb",
    help="DuckDB's hash join",
    attribute="DuckdbEngine",
    packages=("duckdb",),
    place=4,
    in_parts=True,
    result_copies=1.25,
    kept_bytes=2,
)


class DuckdbEngine(HostEngine):
    """Joins groups of buckets with a query, in an in-memory database of its own."""

    name = ENGINE.name
    join_rows = 1 << 19

    def __init__(self, shape: JoinShape) -> None:
        super().__init__(shape)
        self._database = duckdb.connect(
            ":memory:",
            config={
                "threads": shape.threads,
                "async_threads": 0,  # by default 8, to read files
                "pin_threads": "off",  # the launcher decides about cores
                "temp_directory": "",  # no spilling: a join that does not fit in memory fails
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "preserve_insertion_order": False,
                "arrow_large_buffer_size": True,  # 64-bit offsets, as the columns travel
            },
        )
        self._database.execute("SET enable_progress_bar = false")
        # Columns have numbered names, because DuckDB's names do not distinguish `a` from `A`.
        left, right = ([field.name for field in fields] for fields in (shape.left, shape.right))
        condition = " AND ".join(f"l{left.index(key)} = r{right.index(key)}" for key in shape.keys)
        payload = [at for at, name in enumerate(right) if name not in shape.keys]
        columns = ", ".join([*(f"l{at}" for at in range(len(left))), *(f"r{at}" for at in payload)])
        self._query = f"SELECT {columns} FROM left_rows JOIN right_rows ON {condition}"
        self._output = pa.schema([(f.name, f.type) for f in (*shape.left, *(shape.right[at] for at in payload))])

    def join_tables(self, left: pa.Table, right: pa.Table, keys: Sequence[str]) -> pa.Table:
        """Inner join of two tables without null or NaN keys."""
        try:
            self._database.register("left_rows", _reader(left, "l"))
            self._database.register("right_rows", _reader(right, "r"))
            return self._database.sql(self._query).to_arrow_table()
        except duckdb.Error as error:
            reason = str(error).partition("\n")[0]
            raise RunFailed(f"rank {self.shape.rank} failed while joining in DuckDB: {reason}") from error

    def to_arrow(self, piece: pa.Table) -> pa.Table:
        """One joined piece as an Arrow table, under the columns' own names and types."""
        columns = [
            pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind)
            for column, kind in zip(piece.columns, self._output.types, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self._output)


def _reader(table: pa.Table, prefix: str) -> pa.RecordBatchReader:
    """The rows of a table without copies, under the names ``l0``, ``l1``… or ``r0``… and under storage types."""
    schema = pa.schema([(f"{prefix}{at}", _storage_type(kind)) for at, kind in enumerate(table.schema.types)])
    batches = (
        pa.RecordBatch.from_arrays(
            [column.view(kind) for column, kind in zip(batch.columns, schema.types, strict=True)], schema=schema
        )
        for batch in table.to_batches()
    )
    return pa.RecordBatchReader.from_batches(schema, batches)


def _storage_type(kind: pa.DataType) -> pa.DataType:
    """Integers for dates, times and durations, which DuckDB's own types would round or refuse; else the type itself."""
    if pa.types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return kind
