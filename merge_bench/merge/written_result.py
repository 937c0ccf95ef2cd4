"""The merged table as Parquet files, a part for each worker, for those who want to look at it (``--write-result``)."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from merge_bench.errors import RunFailed, UsageError, first_line
from merge_bench.merge.frame import Field, arrow_schema
from merge_bench.merge.plan import Plan
from merge_bench.merge.workload.tables import TableSpec, with_stored_types

BATCH_ROWS = 1 << 17


def make_folder(folder: str) -> None:
    """Make this folder on this host, or accept an empty one.

    Raises
    ------
    UsageError
        If it holds something, or cannot be made.
    """
    path, on_host = Path(folder), f"on {socket.gethostname()}"
    try:
        path.mkdir(parents=True, exist_ok=True)
        filled = any(path.iterdir())
    except OSError as error:
        raise UsageError(f"--write-result: the folder {folder} cannot be used {on_host}: {first_line(error)}") from None
    if filled:
        raise UsageError(f"--write-result: the folder {folder} is not empty {on_host}; name a new one")


def as_stored(plan: Plan, piece: pa.Table) -> pa.Table:
    """Rows of the result under the types that their columns have in the files of the tables that were merged."""
    return with_stored_types(plan.workload, piece) if isinstance(plan.workload, TableSpec) else piece


def write_part(plan: Plan, number: int, pieces: Iterable[pa.Table], fields: Sequence[Field]) -> Path:
    """Write a part of the result, whose columns have these fields, to a file of its own, which is new.

    Raises
    ------
    RunFailed
        With what the operating system says; the file is not there then.
    """
    assert plan.write_result is not None
    path, names = Path(plan.write_result) / f"part-{number:05}.parquet", [field.name for field in fields]
    schema = as_stored(plan, arrow_schema(fields).empty_table()).schema
    try:
        with path.open("xb") as file, pq.ParquetWriter(file, schema) as writer:
            for piece in pieces:
                for start in range(0, piece.num_rows, BATCH_ROWS):
                    writer.write_table(as_stored(plan, piece.select(names).slice(start, BATCH_ROWS)))
    except FileExistsError:
        raise RunFailed(f"{path} was there already on {socket.gethostname()}, although its folder was empty") from None
    except OSError as error:
        path.unlink(missing_ok=True)
        raise RunFailed(
            f"the merged table could not be written to {path} on {socket.gethostname()}: {first_line(error)}"
        ) from error
    return path


def read_part(path: Path, fields: Sequence[Field]) -> Iterator[pa.Table]:
    """The rows of a part, piece by piece, under the types under which its columns travelled."""
    schema = arrow_schema(fields)
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(BATCH_ROWS):
            columns = (batch.column(name) for name in schema.names)
            arrays = [_plain_values(column).cast(kind) for column, kind in zip(columns, schema.types, strict=True)]
            yield pa.Table.from_arrays(arrays, schema=schema)


def _plain_values(column: pa.Array) -> pa.Array:
    """The column without an extension type or a dictionary around its values."""
    if isinstance(column.type, pa.BaseExtensionType):
        return column.cast(column.type.storage_type)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
