"""The merged table as Parquet files, a part for each worker, for those who want to look at it (``--write-result``)."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from merge_bench.errors import RunFailed, UsageError, first_line
from merge_bench.merge.engines.base import Side
from merge_bench.merge.frame import Field, arrow_schema, canonical_type
from merge_bench.merge.plan import Plan
from merge_bench.merge.workload.tables import TableSpec

BATCH_ROWS = 1 << 17


def make_folder(folder: str) -> None:
    """Make this folder on this host, or accept an empty one.

    Raises
    ------
    UsageError
        If it holds something, or cannot be made.
    """
    path, there = Path(folder), f"on {socket.gethostname()}"
    try:
        path.mkdir(parents=True, exist_ok=True)
        filled = any(path.iterdir())
    except OSError as error:
        raise UsageError(f"--write-result: the folder {folder} cannot be used {there}: {first_line(error)}") from None
    if filled:
        raise UsageError(f"--write-result: the folder {folder} is not empty {there}; name a new one")


def stored_schema(plan: Plan, fields: tuple[Sequence[Field], Sequence[Field]]) -> pa.Schema:
    """The result's columns under the types that they have in the files of the tables.

    A key that was cast to a type that both sides' values fit keeps it, and strings and binaries their 64-bit offsets.
    """
    output = plan.how.output(*fields, plan.keys)
    if not isinstance(plan.workload, TableSpec):
        return arrow_schema(output)
    sides = (plan.workload.side(side).columns for side in (Side.RIGHT, Side.LEFT))  # a key has its left type
    stored = {column.field.name: column.stored for columns in sides for column in columns}
    return pa.schema([(field.name, _stored_type(stored.get(field.name), field.type)) for field in output])


def _stored_type(stored: pa.DataType | None, travels_as: pa.DataType) -> pa.DataType:
    if stored is None or pa.types.is_null(stored) or canonical_type(stored, "") != travels_as:
        return travels_as
    if pa.types.is_dictionary(stored):
        return pa.dictionary(pa.int32(), travels_as)
    plain = pa.types.is_large_string(travels_as) or pa.types.is_large_binary(travels_as)
    fixed = pa.types.is_fixed_size_binary(stored) or isinstance(stored, pa.BaseExtensionType)
    return travels_as if plain and not fixed else stored


def write_part(folder: str, number: int, pieces: Iterable[pa.Table], schema: pa.Schema) -> Path:
    """Write a part of the result to a file of its own, which is new.

    Raises
    ------
    RunFailed
        With what the operating system says; the file is not there then.
    """
    path = Path(folder) / f"part-{number:05}.parquet"
    try:
        with path.open("xb") as file, pq.ParquetWriter(file, schema) as writer:
            for piece in pieces:
                columns = [
                    _under(piece.column(name), kind) for name, kind in zip(schema.names, schema.types, strict=True)
                ]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=BATCH_ROWS)
    except FileExistsError:
        raise RunFailed(f"{path} was there already on {socket.gethostname()}, although its folder was empty") from None
    except OSError as error:
        path.unlink(missing_ok=True)
        raise RunFailed(
            f"the merged table could not be written to {path} on {socket.gethostname()}: {first_line(error)}"
        ) from error
    return path


def read_part(path: Path, fields: Sequence[Field]) -> Iterator[pa.Table]:
    """What a part holds, piece by piece, under the types under which its columns travelled."""
    schema = arrow_schema(fields)
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(BATCH_ROWS):
            table = pa.Table.from_batches([batch])
            columns = (table.column(name) for name in schema.names)
            yield pa.Table.from_arrays(
                [_under(column, kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema
            )


def _under(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The same values under a type, over those that extension types and dictionaries hold."""
    if column.type == kind:
        return column
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.cast(column.type.storage_type)
    if pa.types.is_dictionary(kind):
        return column.dictionary_encode()
    if isinstance(kind, pa.BaseExtensionType):
        column = _under(column, kind.storage_type)
    return column.cast(kind)
