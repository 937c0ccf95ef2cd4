"""Decides from the options and the sizes of the tables whether a merge shuffles both or sends the smaller one whole."""

from __future__ import annotations

from merge_bench.config.options import RunOptions
from merge_bench.errors import UsageError
from merge_bench.merge import distribution
from merge_bench.merge.distribution import Distribution
from merge_bench.merge.engines.base import How, Side
from merge_bench.merge.plan import sent_row_bytes
from merge_bench.merge.workload.synthetic import SyntheticSpec
from merge_bench.merge.workload.tables import TableSpec


def check(options: RunOptions) -> None:
    """Refuse options that never work with ``--distribution broadcast``.

    Raises
    ------
    UsageError
        One sentence naming the option that is wrong.
    """
    if options.distribution != distribution.BROADCAST:
        return
    distribution.check(How(options.how))
    without = _without_broadcast(options)
    if without is not None:
        raise UsageError(f"{without} cannot be used with --distribution broadcast; omit it, or use a shuffle")


def choose(options: RunOptions, workload: SyntheticSpec | TableSpec, workers: int) -> Distribution:
    """The distribution of the plan. Of tables with strings, one row group of each is read."""
    asked = options.distribution
    if asked == distribution.SHUFFLE:
        return Distribution()
    how, without = How(options.how), _without_broadcast(options)
    return distribution.choose(asked, how, workers, side_bytes(workload, how), without=without)


def side_bytes(workload: SyntheticSpec | TableSpec, how: How = How.INNER) -> dict[Side, float]:
    """Bytes of each table over all workers; those of strings are an estimate.

    Of the right table, semi and anti joins send the keys only.
    """
    if isinstance(workload, SyntheticSpec):
        each = sent_row_bytes(how, workload.payload_columns)
        return {side: float(each[side] * workload.rows) for side in Side}
    from merge_bench.merge.workload.tables import row_bytes

    names = {Side.LEFT: None, Side.RIGHT: None if how.pairs else workload.keys}
    return {side: row_bytes(workload.side(side), names[side]) * workload.side(side).rows for side in Side}


def _without_broadcast(options: RunOptions) -> str | None:
    """The option that is given and needs a shuffle.

    A broadcast has hardly anything to overlap: no row can be joined before all of the small table has arrived. A
    runtime filter saves the partition and exchange of rows, and a broadcast has neither for the large table.
    """
    given = {"--pipeline on": options.pipeline, "--runtime-filter on": options.runtime_filter}
    return next((option for option, value in given.items() if value == "on"), None)
