"""What workers do for the baseline (`dask.py`): make dataframes of their chunks, and check its results."""

from __future__ import annotations

import functools
import operator
from typing import Any

import pyarrow as pa

from merge_bench.errors import RunFailed
from merge_bench.verify import Check, ResultCheck
from merge_bench.worker import here


def baseline_frame(side: str) -> Any:
    """This worker's chunk of ``left`` or ``right`` as a dataframe of Dask's engine, rows with null keys left out.

    pandas and cuDF match null with null; SQL, and every engine here, does not.
    """
    state = here().state
    if state is None or state.frames is None:
        raise RunFailed("the merge was not set up on this worker")
    table = state.frames[side == "right"].to_arrow()
    if state.plan.engine == "cudf":
        import cudf

        frame = cudf.DataFrame.from_arrow(table)
    else:
        from merge_bench.engines.pandas import to_pandas

        frame = to_pandas(table)
    # Column by column: over rows cuDF would go through CuPy.
    whole = functools.reduce(operator.and_, (frame[key].notna() for key in state.plan.keys))
    return frame if bool(whole.all()) else frame[whole]


def baseline_loaded() -> None:
    """Both chunks are dataframes now: let go of the originals."""
    state = here().state
    if state is not None:
        state.frames = None


def baseline_check(frame: Any) -> Check:
    """Check one partition of Dask's result."""
    plugin = here()
    state = plugin.state
    assert state is not None
    state.meter.pause()
    try:
        cudf = state.plan.engine == "cudf"
        convert = frame.to_arrow if cudf else functools.partial(pa.Table.from_pandas, frame)
        table = convert(preserve_index=False)
        return ResultCheck(state.plan.workload, full=state.plan.verify == "full").run([table], plugin.abort)
    finally:
        state.meter.restart()
