"""The plan of a run: frozen, picklable, and checked against the available memory before anything is started."""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from merge_bench.config.options import WorkerOptions
from merge_bench.errors import UsageError
from merge_bench.merge.distribution import SHUFFLED, RowDistribution, sent_row_bytes
from merge_bench.merge.engines import describe_engine
from merge_bench.merge.engines.base import JoinKind, Side
from merge_bench.merge.exchange import DataPlane, find_data_plane
from merge_bench.merge.frame import SLACK
from merge_bench.merge.workload import SyntheticSpec
from merge_bench.merge.workload.tables import TableSpec
from merge_bench.units import count_with_noun, format_bytes, format_count

PROCESS_BYTES = 400 << 20  # a Python worker with its libraries, before any data
BUCKET_MAP_BYTES = 2  # per row: its bucket; one side after the other uses the same memory
FILTER_BYTES = 3  # per row, in the same memory: a mark, and for at most half of the rows their numbers of 4 bytes


@dataclass(frozen=True)
class Plan(WorkerOptions):
    """All options that the workers of a launch have to agree on, together with those of `WorkerOptions`.

    `message_bytes`: longest message of the data plane, 0 for no limit. `how`: which rows the result has.
    `distribution`: whether both frames are shuffled, or one is sent whole. `pipeline`: whether partition and join run
    beside the exchange. `stores`: ``plain``, ``lines`` (`partition.py`), or ``auto`` for what is faster on each host.
    `runtime_filter`: whether rows without a match are left out before they are partitioned (`runtime_filter.py`).
    `timeout`: seconds. `verify`: ``ends`` (after the warm-up and the last iteration), ``every``, ``full`` or ``off``.
    `timeline`: ``on``, ``off``, or ``auto`` for where it costs little. `write_result`: absolute path of the folder for
    the merged table; None: it is not kept. `ucx`: the UCX to load, as ``--ucx`` names it, if that is a release or a
    folder, or one of several; else None.
    """

    workload: SyntheticSpec | TableSpec
    workers: int
    iterations: int
    warmup: int
    launches: int
    engine: str
    exchange: str
    protocol: str
    verify: str
    timeout: float
    seed: int
    error_handling: bool = False
    message_bytes: int = 32 << 20
    how: JoinKind = JoinKind.INNER
    distribution: RowDistribution = SHUFFLED
    pipeline: bool = False
    stores: str = "auto"
    runtime_filter: bool = False
    link_rounds: int = 5
    check_link: bool = False
    threads: int = 1
    require_transport: tuple[str, ...] = ()
    timeline: str = "auto"
    write_result: str | None = None
    ucx: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The plan as plain data, for the records."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "workload"}
        if self.ucx is None:
            del plain["ucx"]
        plain |= {"rows_per_chunk": self.rows_per_chunk, "how": self.how.value, **self.distribution.to_json()}
        if isinstance(self.workload, SyntheticSpec):
            plain["workload"] = {"name": "synthetic", **dataclasses.asdict(self.workload)}
        else:
            plain["workload"] = {"name": "tables", **self.workload.to_json()}
        return plain

    @property
    def rows_per_chunk(self) -> int | None:
        """The rows of each worker's chunk of each frame; None for real tables."""
        return self.workload.rows // self.workers if isinstance(self.workload, SyntheticSpec) else None

    @property
    def device_memory(self) -> bool:
        return describe_engine(self.engine).device_memory

    @property
    def data_plane(self) -> DataPlane:
        return find_data_plane(self.exchange)

    @property
    def sent_rows(self) -> int:
        """The number of rows of the side that a broadcast sends whole to every worker; 0 with a shuffle."""
        if self.distribution.sent is None:
            return 0
        if isinstance(self.workload, SyntheticSpec):
            return self.workload.rows
        return self.workload.side(self.distribution.sent).rows

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the key columns in the frames that workers exchange."""
        return ("key",) if isinstance(self.workload, SyntheticSpec) else self.workload.keys


def synthetic_worker_bytes(plan: Plan) -> int:
    """Estimated peak host memory of the worker that needs most in a synthetic merge, bytes.

    For each row of a chunk, with r the bytes of a row, R those of a row's share of the result, W workers:

    - 2 r for the two chunks, and 2 for the number of a row's bucket, or 3 with a runtime filter (it copies at
      most half of each chunk, and the parcels are smaller by as much);
    - (l + s) (1 + 1 ÷ `SLACK`) for the parcels made from them, with l and s the bytes of a left and a right row that
      are sent (`sent_row_bytes`): r, or 8 for a right row of a semi or anti join;
    - l (W - 1) ÷ W and s (W - 1) ÷ W for the parcels received. Where phases do not overlap the right ones lie where
      the left ones lay that were sent, if they are no larger;
    - R for the result (`how` says which rows and columns it has), times the engine's `result_copies`, and its
      `kept_bytes` by payload column. One that `reuses_sent` writes it, with phases apart, where the right parcels lay
      that were sent, and adds what goes beyond.

    With a broadcast, l or s times W - 1 for its rows of all other workers, and nothing lies where
    parcels lay that were sent, because a worker joins what it sends, too.

    With a skew, one worker gets all rows with the most frequent key (`SyntheticSpec.hottest_key_share`), in
    addition to its share of the others. Dask's merge keeps the frames and splits of both: `DataPlane.shuffles` times
    both.
    """
    spec, workers, how, sent = plan.workload, plan.workers, plan.how, plan.distribution.sent
    assert isinstance(spec, SyntheticSpec)
    rows_per_chunk, payload_columns, fraction = spec.rows // workers, spec.payload_columns, spec.fraction
    hottest_key_share = spec.hottest_key_share if spec.zipf else 0.0
    row, burden = (
        8 * (1 + payload_columns),
        1 + hottest_key_share * (workers - 1),
    )  # times an even share of the matching rows
    burden = 1 if sent is Side.LEFT else burden  # then right rows stay, whose keys are as frequent on every worker
    pairs, alone, result_row = _result_per_chunk_row(how, fraction, payload_columns, skewed=hottest_key_share > 0)
    result = (pairs * burden + alone) * result_row
    shuffles = dict(plan.data_plane.shuffles)
    if shuffles:
        everywhere = row * workers if sent is not None else 0
        return PROCESS_BYTES + int(rows_per_chunk * (shuffles[plan.shuffle] * 2 * row + everywhere + result))
    right = 1 + fraction * (burden - 1)  # times an even share of the right rows
    sends = sent_row_bytes(how, payload_columns)
    ours, theirs = sends[Side.LEFT], sends[Side.RIGHT]
    left_received, right_received = (size * (workers - 1) / workers for size in (ours, theirs * right))
    joins = describe_engine(plan.engine)
    again = sent is None and not plan.pipeline and not joins.device_memory
    received = left_received if again and theirs * right <= ours * (1 + 1 / SLACK) else left_received + right_received
    if sent is not None:
        received = sends[sent] * (workers - 1)
    result = joins.result_copies * result + joins.kept_bytes * payload_columns
    if again and joins.reuses_sent:
        result = max(0.0, result - theirs * (1 - right / workers))
    chunks = 2 * row + (FILTER_BYTES if plan.runtime_filter else BUCKET_MAP_BYTES)
    parcels = (ours + theirs) * (1 + 1 / SLACK)
    return PROCESS_BYTES + int(rows_per_chunk * (chunks + parcels + received + result))


def _result_per_chunk_row(
    how: JoinKind, fraction: float, payload_columns: int, *, skewed: bool
) -> tuple[float, float, int]:
    """Return how many result rows there are per row of a chunk (pairs; rows of one side), and the bytes of each.

    The bytes are values, and a validity byte for each column that can be null. With a skew, the left rows without a
    match cannot be counted beforehand: this is the most that there can be.
    """
    left = fraction if how is JoinKind.SEMI else how.keeps_unmatched_left * (1.0 if skewed else 1.0 - fraction)
    nullable = how.has_right_columns * (how.keeps_unmatched_left + how.keeps_unmatched_right)
    row = 8 * (1 + (1 + how.has_right_columns) * payload_columns) + nullable * payload_columns
    return how.has_right_columns * fraction, left + how.keeps_unmatched_right * (1.0 - fraction), row


def check_memory_fits(plan: Plan, available_bytes: int, workers_here: int, host: str) -> None:
    """Raise an error if a plan's `workers_here` workers need more than the `available_bytes` bytes on host `host`.

    Of tables only the processes count here; `check_tables_fit_in_memory` counts the rows.

    Raises `UsageError`, with the largest chunk that would fit, or if none would, with the largest number of workers.
    """

    def bytes_per_worker(thousand_rows: int, local_workers: int) -> int:
        """Bytes that a worker needs for ``1000 * thousand_rows`` rows per chunk, with `local_workers` on this host."""
        spec, workers = plan.workload, plan.workers - workers_here + local_workers
        if not isinstance(spec, SyntheticSpec):
            return PROCESS_BYTES
        table = dataclasses.replace(spec, rows=1000 * thousand_rows * workers)
        return synthetic_worker_bytes(dataclasses.replace(plan, workload=table, workers=workers))

    def workers_that_fit(thousand_rows: int) -> int:
        """The largest number of workers on this host that fit with ``1000 * thousand_rows`` rows per chunk."""
        return (
            bisect_right(
                range(workers_here),
                available_bytes,
                lo=1,
                key=lambda here: here * bytes_per_worker(thousand_rows, here),
            )
            - 1
        )

    share, rows = available_bytes // workers_here, plan.rows_per_chunk
    wanted = -(-(rows or 0) // 1000)
    if bytes_per_worker(wanted, workers_here) <= share:
        return
    largest = (
        bisect_right(range(wanted), share, lo=1, key=lambda thousands: bytes_per_worker(thousands, workers_here)) - 1
    )
    if largest > 0:
        remedy = f"the largest --chunk that fits is {1000 * largest:_}"
    elif (most := workers_that_fit(wanted) or workers_that_fit(1)) > 0:
        fewer = f"use --workers {most}{' or fewer' * (most > 1)}"
        remedy = fewer if workers_here == plan.workers else f"at most {count_with_noun(most, 'worker')} would fit there"
    else:
        remedy = "not even one worker fits"
    what = "the merge" if rows is None else f"--chunk {format_count(rows)}"
    many = f"{workers_here} workers on {host} have" if workers_here > 1 else f"worker on {host} has"
    raise UsageError(
        f"{what} needs about {format_bytes(bytes_per_worker(wanted, workers_here))} per worker, but the {many}"
        f" {format_bytes(share)}{' each' * (workers_here > 1)}; {remedy}"
    )
