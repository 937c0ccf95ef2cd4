"""The baseline's steps on a Dask worker: make dataframes of the chunks, and check the result.

With cuDF a worker submits the merge instead of the driver. Planning needs an empty frame of the engine's type (`meta`),
and an empty cuDF frame needs a GPU. Dask also plans in its scheduler, which therefore needs cuDF and a GPU.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import dask
import pyarrow as pa
from distributed import Client, Future, get_client

from merge_bench.merge.engines import describe
from merge_bench.merge.engines.base import Side
from merge_bench.merge.frame import Field, arrow_schema
from merge_bench.merge.verification.verify import Check
from merge_bench.merge.worker import current_plugin

NO_DISK = {"distributed.p2p.storage.disk": False}


def baseline_frame(side: str) -> Any:
    """This worker's chunk of ``left`` or ``right`` as a dataframe of Dask's engine, rows with null keys left out.

    pandas and cuDF match null with null; SQL, and every engine here, does not.
    """
    plugin = current_plugin()
    state, chunk = plugin.launch, plugin.frames[side == "right"]
    if describe(state.plan.engine).dask_backend == "cudf":
        import cudf

        frame = cudf.DataFrame.from_arrow(chunk.to_arrow())
    else:
        frame = _pandas(chunk.to_arrow(), chunk.fields)
    # Column by column: over rows cuDF would go through CuPy.
    whole = functools.reduce(operator.and_, (frame[key].notna() for key in state.plan.keys))
    frame = frame if bool(whole.all()) else frame[whole]
    state.empty[side] = frame.iloc[:0].copy(deep=True)  # a view would keep the whole chunk
    return frame


def empty_pandas(fields: Sequence[Field]) -> Any:
    """A pandas frame without rows, with the column types of `baseline_frame`."""
    return _pandas(arrow_schema(fields).empty_table(), fields)


def _pandas(table: pa.Table, fields: Sequence[Field]) -> Any:
    from merge_bench.merge.engines.pandas import to_pandas

    return to_pandas(table, nullable=[field.name for field in fields if field.nullable])


def merged(
    parts: Sequence[Sequence[Future]], empty: Sequence[Any], keys: Sequence[str], shuffle: str,
    sent: Side | None = None,
) -> Any:
    """Dask's inner join of a left and a right frame, not yet computed.

    Parameters
    ----------
    parts
        The left and the right frame's partitions.
    empty
        A frame without rows of the type of each. Without it Dask fetches a partition at once, in a wait without limit.
    sent
        The side to send whole to every worker. Dask does that with a frame of one partition.
    """
    import dask.dataframe as dd

    left, right = (
        dd.from_delayed(list(futures), meta=meta, verify_meta=False)
        for futures, meta in zip(parts, empty, strict=True)
    )  # fmt: skip
    if sent is Side.LEFT:
        left = left.repartition(npartitions=1)
    elif sent is Side.RIGHT:
        right = right.repartition(npartitions=1)
    return left.merge(right, on=list(keys), how="inner", shuffle_method=shuffle, broadcast=False)


def baseline_start(left: Sequence[Any], right: Sequence[Any], addresses: Sequence[str] | None, name: str) -> None:
    """Submit the merge from this worker; publishes the result's partitions under `name` for the driver.

    `left`, `right`: keys of the frames' partitions. `addresses`: of the workers that merge; None: all.
    """
    state = current_plugin().launch
    client = get_client()
    parts = [[Future(key, client) for key in keys] for keys in (left, right)]
    empty = [state.empty[side] for side in ("left", "right")]
    with client.as_current(), dask.config.set(NO_DISK):
        plan = state.plan
        merge = merged(parts, empty, plan.keys, plan.shuffle, plan.distribution.sent)
        result = client.persist(merge, workers=addresses)
    client.publish_dataset(futures_of(client, result), name=name, override=True)


def futures_of(client: Client, result: Any) -> list[Future]:
    """The partitions of a result that Dask computes."""
    return [future for future in client.futures_of(result) if isinstance(future, Future)]


def baseline_loaded() -> None:
    """Free the original chunks: both are dataframes now."""
    current_plugin().launch.frames = None


def baseline_check(frame: Any) -> Check:
    """Check one partition of Dask's result."""
    plugin = current_plugin()
    cudf = describe(plugin.launch.plan.engine).dask_backend == "cudf"
    convert = frame.to_arrow if cudf else functools.partial(pa.Table.from_pandas, frame)

    def tables() -> Iterator[pa.Table]:
        yield convert(preserve_index=False)  # only while memory is not counted

    return plugin.launch.verify(tables(), plugin.abort)
