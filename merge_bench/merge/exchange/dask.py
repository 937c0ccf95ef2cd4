"""Dask's own merge, the baseline: its steps on a worker make dataframes of the chunks, and check the result.

With cuDF a worker submits the merge instead of the driver. Planning needs an empty frame of the engine's type (`meta`),
and an empty cuDF frame needs a GPU. Dask also plans in its scheduler, which therefore needs cuDF and a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import dask
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from distributed import Client, Future, get_client

from merge_bench.merge.engines import describe_engine
from merge_bench.merge.engines.base import JoinShape, Side
from merge_bench.merge.engines.join_columns import (
    LibraryColumnMapping,
    decimal_as_binary_type,
    library_key_names,
    make_unmatched_result,
    null_key_row_numbers,
)
from merge_bench.merge.exchange import DataPlane
from merge_bench.merge.frame import Field, Frame, as_integer_type, empty_table
from merge_bench.merge.memory import BufferPool
from merge_bench.merge.plan import Plan
from merge_bench.merge.verification import ResultCheck
from merge_bench.merge.worker import current_plugin

PLANE = DataPlane(
    name="dask",
    help="with Dask's shuffle",
    place=2,
    joins=(("inner", "inner"), ("left", "left"), ("right", "right"), ("outer", "outer"), ("semi", "leftsemi")),
    shuffles=(("tasks", 5.75), ("p2p", 8.5)),
)

NO_DISK = {"distributed.p2p.storage.disk": False}
Fields: TypeAlias = tuple[Sequence[Field], Sequence[Field]]
"""The fields of the left and of the right frame."""


def map_library_columns(fields: Fields, plan: Plan) -> LibraryColumnMapping:
    """Make the mapping from the columns of two frames to the names and types for pandas or cuDF below Dask."""
    return LibraryColumnMapping.for_join(
        *fields, plan.keys, plan.how, as_integer_type if _uses_cudf(plan) else decimal_as_binary_type
    )


def make_chunk_dataframe(side: str) -> Any:
    """Make a dataframe of this worker's ``left`` or ``right`` chunk for Dask's merge, without rows with null keys.

    pandas and cuDF match null with null; SQL, and every engine here, does not. `make_null_key_dataframe` has those
    rows.
    """
    plugin = current_plugin()
    state, frames = plugin.launch_state, plugin.frames
    frame = make_side_dataframe(frames, Side(side), state.plan)
    state.empty[side] = frame.iloc[:0].copy(deep=True)  # a view would keep the whole chunk
    return frame


def make_side_dataframe(chunks: tuple[Frame, Frame], side: Side, plan: Plan) -> Any:
    """Make a dataframe of the rows of one side's chunk that have no null or NaN key."""
    chunk, columns = chunks[side is Side.RIGHT], map_library_columns((chunks[0].fields, chunks[1].fields), plan)
    return _make_dataframe(columns.table_to_library(side, _rows_without_null_keys(chunk, plan.keys)), columns, plan)


def make_null_key_dataframe() -> Any:
    """Make a dataframe of this worker's result rows with null keys, for each side whose unmatched rows are kept."""
    plugin = current_plugin()
    return null_key_result_dataframe(*plugin.frames, plugin.launch_state.plan)


def _rows_without_null_keys(chunk: Frame, keys: Sequence[str]) -> pa.Table:
    """Return the rows of a chunk without a null or NaN key as a table, with -0.0 in keys replaced by 0.0.

    In pandas the hashes of both zeros differ.
    """
    table, lacking = chunk.to_arrow(), null_key_row_numbers(chunk, keys)
    for at, field in enumerate(chunk.fields):
        if field.name in keys and field.is_floating:
            table = table.set_column(at, field.name, pc.add(table.column(at), pa.scalar(0.0, field.type)))
    if not lacking.size:
        return table
    whole = np.ones(chunk.rows, np.bool_)
    whole[lacking] = False
    return table.filter(pa.array(whole))


def null_key_result_dataframe(left: Frame, right: Frame, plan: Plan) -> Any:
    """Make a dataframe of the result rows with null keys of two chunks, for each side whose unmatched rows are kept."""
    shape = JoinShape(left.fields, right.fields, plan.keys, 1, 0, 0, how=plan.how)
    out = BufferPool()
    tables = [empty_table(shape.output_fields)]
    for side, chunk in ((Side.LEFT, left), (Side.RIGHT, right)):
        if plan.how.keeps_unmatched(side):
            rows = null_key_row_numbers(chunk, plan.keys)
            tables.append(make_unmatched_result(shape, side, [(chunk, rows)], out).to_arrow())
    columns = map_library_columns((left.fields, right.fields), plan)
    return _make_dataframe(columns.result_to_library(pa.concat_tables(tables)), columns, plan)


def may_have_null_key_result(fields: Fields, plan: Plan) -> bool:
    """Whether the result of a merge of frames with these fields can have rows with null or NaN keys."""
    kept = (
        field for side, columns in zip(Side, fields, strict=True) if plan.how.keeps_unmatched(side) for field in columns
    )
    return any(field.name in plan.keys and (field.nullable or field.is_floating) for field in kept)


def empty_pandas_frames(fields: Fields, plan: Plan) -> list[Any]:
    """Return a pandas dataframe without rows for each side, with the column types of its `make_side_dataframe`."""
    columns = map_library_columns(fields, plan)
    return [_make_dataframe(empty_table(columns.sides[side]), columns, plan) for side in Side]


def _make_dataframe(table: pa.Table, columns: LibraryColumnMapping, plan: Plan) -> Any:
    """Convert a table to a dataframe of Dask's engine; in pandas, columns that can be null are Arrow-backed."""
    if _uses_cudf(plan):
        import cudf

        return cudf.DataFrame.from_arrow(table)
    from merge_bench.merge.engines.pandas import to_pandas

    fields = (*columns.output, *(field for side in columns.sides.values() for field in side))
    return to_pandas(table, nullable_columns={field.name for field in fields if field.nullable})


def plan_dask_join(
    partitions: Sequence[Sequence[Future]],
    empty_frames: Sequence[Any],
    plan: Plan,
    null_key_partitions: Sequence[Future] = (),
) -> Any:
    """Build Dask's join of a left and a right frame, without computing it.

    `partitions`: futures of both frames' partitions. `empty_frames`: a frame without rows and with the types of each;
    without it Dask fetches a partition at once, in a wait without limit. `null_key_partitions`: futures of result rows
    to append, made by `make_null_key_dataframe`.
    """
    import dask.dataframe as dd

    left, right = (
        dd.from_delayed(list(futures), meta=meta, verify_meta=False)
        for futures, meta in zip(partitions, empty_frames, strict=True)
    )
    sent = plan.distribution.sent
    if sent is Side.LEFT:  # Dask sends a frame of one partition to every worker
        left = left.repartition(npartitions=1)
    elif sent is Side.RIGHT:
        right = right.repartition(npartitions=1)
    how, keys = dict(PLANE.joins)[plan.how.value], list(library_key_names(len(plan.keys)))
    result = left.merge(right, on=keys, how=how, shuffle_method=plan.shuffle, broadcast=False)
    if null_key_partitions:
        result = dd.concat([result, dd.from_delayed(list(null_key_partitions), meta=result._meta, verify_meta=False)])
    return result


def start_dask_merge(
    left_keys: Sequence[Any], right_keys: Sequence[Any], worker_addresses: Sequence[str] | None, dataset_name: str
) -> None:
    """Submit Dask's merge from this worker, and publish the result's partitions as data set `dataset_name`.

    `left_keys`, `right_keys`: Dask's keys of the frames' partitions. `worker_addresses`: of the workers that merge;
    None: all.
    """
    state = current_plugin().launch_state
    client = get_client()
    parts = [[Future(key, client) for key in keys] for keys in (left_keys, right_keys)]
    empty = [state.empty[side.value] for side in Side]
    with client.as_current(), dask.config.set(NO_DISK):
        result = client.persist(plan_dask_join(parts, empty, state.plan), workers=worker_addresses)
    client.publish_dataset(partition_futures(client, result), name=dataset_name, override=True)


def partition_futures(client: Client, result: Any) -> list[Future]:
    """Return the futures of the partitions of a result that Dask computes."""
    return [future for future in client.futures_of(result) if isinstance(future, Future)]


def free_original_chunks() -> None:
    """Free this worker's chunks, once dataframes were made of both."""
    current_plugin().launch_state.frames = None


def check_result_partition(frame: Any, fields: Fields) -> ResultCheck:
    """Check one partition of the result of Dask's merge of frames with these fields."""
    plugin = current_plugin()
    return plugin.launch_state.check_result_part(
        _lazy_partition_tables(frame, fields, plugin.launch_state.plan), plugin.abort
    )


def write_and_check_result_partition(frame: Any, partition_number: int, fields: Fields) -> ResultCheck:
    """Write a partition of Dask's result to the file with its number, and check what can be read back."""
    plugin = current_plugin()
    tables = _lazy_partition_tables(frame, fields, plugin.launch_state.plan)
    return plugin.launch_state.write_and_check_result_part(tables, partition_number, fields, plugin.abort)


def _lazy_partition_tables(frame: Any, fields: Fields, plan: Plan) -> Iterator[pa.Table]:
    """Yield one partition as an Arrow table, converted only when it is read, while memory is not counted."""
    yield partition_to_arrow(frame, fields, plan)


def partition_to_arrow(frame: Any, fields: Fields, plan: Plan) -> pa.Table:
    """Convert one partition of Dask's result to an Arrow table with the users' names and types."""
    from merge_bench.merge.engines.pandas import from_pandas

    table = frame.to_arrow(preserve_index=False) if _uses_cudf(plan) else from_pandas(frame)
    return map_library_columns(fields, plan).result_from_library(table)


def _uses_cudf(plan: Plan) -> bool:
    return describe_engine(plan.engine).dask_backend == "cudf"
