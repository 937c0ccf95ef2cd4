"""libcudf's `inner_join` alone: the right table built or the left one, without and with skewed keys.

`inner_join` builds its hash table of its second argument where both have as many rows. Left keys are unique; under a
skew the right ones repeat. Each figure is of the join of the keys, which gives row numbers; ``gather`` adds the columns
of the result.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from benchmarks.on_gpu.programs.rows import SKEW, Problem, absent, report, run, timed
from merge_bench.merge.engines.gpu_memory import (
    load_rapids,
    process_cuda_stream,
    set_up_memory_pool,
    synchronize_stream,
)
from merge_bench.merge.frame import Frame

NAMES = ("key", "left_payload_0", "right_payload_0")


def on_device(frame: Frame) -> Any:
    """The columns in device memory, as a table of libcudf."""
    plc, _ = load_rapids()
    table = plc.Table.from_arrow(frame.to_arrow(), stream=process_cuda_stream())
    synchronize_stream()
    return table


def keys_of(table: Any) -> Any:
    """The first column, as a table."""
    plc, _ = load_rapids()
    return plc.Table([table.columns()[0]])


def join(left: Any, right: Any, *, swapped: bool) -> tuple[Any, Any]:
    """The numbers of matching rows, of the left and of the right table."""
    plc, _ = load_rapids()
    unequal = plc.types.NullEquality.UNEQUAL
    if swapped:
        right_map, left_map = plc.join.inner_join(right, left, unequal, stream=process_cuda_stream())
    else:
        left_map, right_map = plc.join.inner_join(left, right, unequal, stream=process_cuda_stream())
    return left_map, right_map


def gather(left: Any, right: Any, left_map: Any, right_map: Any) -> Any:
    """The result: the left columns and the right payload of these rows."""
    plc, _ = load_rapids()
    copying, policy = plc.copying, plc.copying.OutOfBoundsPolicy.DONT_CHECK
    ours = copying.gather(left, left_map, policy, stream=process_cuda_stream())
    theirs = copying.gather(plc.Table([right.columns()[1]]), right_map, policy, stream=process_cuda_stream())
    return plc.Table([*ours.columns(), *theirs.columns()])


def to_host(table: Any) -> pa.Table:
    """The result in host memory."""
    columns: pa.Table = table.to_arrow(list(NAMES), stream=process_cuda_stream())
    return columns


def measure(rows: int) -> None:
    """One size, without and with a skew."""
    for skew in (0.0, SKEW):
        problem = Problem.of(rows, skew)
        left, right = on_device(problem.left), on_device(problem.right)
        left_keys, right_keys = keys_of(left), keys_of(right)
        for swapped in (False, True):

            def match(swapped: bool = swapped, ours: Any = left_keys, theirs: Any = right_keys) -> tuple[Any, Any]:
                return join(ours, theirs, swapped=swapped)

            def merge(swapped: bool = swapped, ours: Any = left, theirs: Any = right) -> Any:
                return gather(ours, theirs, *join(keys_of(ours), keys_of(theirs), swapped=swapped))

            built = "left" if swapped else "right"
            name = f"inner_join, {built} table built, {'skew zipf:' + format(skew, 'g') if skew else 'no skew'}"
            of_keys, whole = timed(match, synchronize_stream), timed(merge, synchronize_stream)
            problem.verify([to_host(merge())])
            more = {"built": built, "zipf": skew, "result_rows": problem.rows, "verified": True}
            report(name, rows, of_keys, **more)
            report(f"{name}, gather", rows, whole, **more)
    plc, _ = load_rapids()
    found = [name for name in dir(plc.join) if "distinct" in name.lower()]
    if not found:
        absent("distinct_hash_join", "the installed pylibcudf does not have it")
    else:
        absent("distinct_hash_join", f"the installed pylibcudf has {', '.join(found)}, which is not measured yet")


if __name__ == "__main__":
    run(measure, set_up_memory_pool)
