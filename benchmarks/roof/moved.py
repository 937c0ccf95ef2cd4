"""Bytes that each phase of a merge has to move through memory: engine `native`, synthetic frames, phases apart.

A frame's row is a key and k payload columns of 8 bytes each: C = 1 + k columns, w = 8 C bytes. i is the width of a
row's bucket number, 2 bytes below 65,536 buckets of all workers together and else 4. Counted are bytes that loops
read and write in arrays too large for the caches, each once:

- **partition**, a row of either frame: the histogram reads the key and writes the bucket number, 8 + i; the scatter
  takes some columns at a time (`partition.py`: up to five with full lines, two with plain stores into few buckets, else
  one), and for each n of them reads the numbers again, ⌈C/n⌉ i; it reads the columns and writes the parcels, 2 w.
  With one payload column: 10 + 2 + 32 = 44 bytes.
- **exchange**, a byte sent to another worker: cma copies once, out of the sender's parcel into the receiver's, so the
  byte is read and written: 2. A worker's own share is not sent.
- **join**, a row of either frame: read once, w. A row of the result: written once, the key and the payloads of both
  sides, 8 (1 + 2 k). What is reached at random (chain heads, links, left keys and left payloads of one bucket) is in
  cache by design: it counts as accesses, not as bytes. A left row enters its chain and a right row looks its head up,
  one access each; a row of the result is an entry of a chain and k left values, 1 + k.

Not counted: headers, indices of a bucket's matches, the scatter's positions, and the line that an ordinary store to
memory has to fetch before it writes it; a copy by `memcpy` is spared that, which is why a loop's limit is measured too.
"""

from __future__ import annotations

from dataclasses import dataclass

from merge_bench.merge.engines.cpu_base import buckets_per_worker, choose_bucket_rows
from merge_bench.merge.engines.native import NativeEngine, hash_table_bits
from merge_bench.merge.partition import PLAIN, make_parcel_writer, most_total_buckets

VALUE = 8
LINK, HEAD = 4, 4


@dataclass(frozen=True)
class Shape:
    """Frames of a run: rows of one chunk, workers, int64 columns besides the key, and how parcels are written."""

    chunk: int
    workers: int
    payloads: int = 1
    stores: str = PLAIN
    l2_bytes: int | None = None

    @property
    def columns(self) -> int:
        """Columns of a frame, the key among them."""
        return 1 + self.payloads

    @property
    def row_bytes(self) -> int:
        """Bytes of a frame's row."""
        return VALUE * self.columns

    @property
    def result_row_bytes(self) -> int:
        """Bytes of a row of the merged table."""
        return VALUE * (1 + 2 * self.payloads)

    @property
    def rows(self) -> int:
        """Rows of both frames over all workers."""
        return 2 * self.chunk * self.workers

    @property
    def buckets(self) -> int:
        """Buckets of one worker."""
        rows = choose_bucket_rows(NativeEngine.join_rows, self.l2_bytes)
        return buckets_per_worker(self.rows, self.workers, rows, most_total_buckets([self.stores]))

    @property
    def number_bytes(self) -> int:
        """Bytes of a row's bucket number."""
        return 2 if self.workers * self.buckets < 1 << 16 else 4

    @property
    def bucket_bytes(self) -> int:
        """Bytes that a join reaches at random in one bucket: heads, links, keys and payloads of its left rows."""
        left = max(1, self.chunk // self.buckets)
        heads = 1 << hash_table_bits(left)
        return HEAD * heads + left * (LINK + self.row_bytes)


@dataclass(frozen=True)
class Counts:
    """What one iteration dealt with, over all workers, as its record has it."""

    sent_bytes: int
    left_rows: int
    right_rows: int
    result_rows: int


def histogram_row(shape: Shape) -> int:
    """Bytes moved to find and count the bucket of one row of a frame."""
    return VALUE + shape.number_bytes


def partition_row(shape: Shape) -> int:
    """Bytes moved to partition one row of a frame."""
    passes = -(-shape.columns // make_parcel_writer(shape.stores, shape.workers * shape.buckets).most_columns)
    scatter = passes * shape.number_bytes + 2 * shape.row_bytes
    return histogram_row(shape) + scatter


def phase_bytes(shape: Shape, counts: Counts) -> dict[str, int]:
    """Bytes that all workers together move in each phase."""
    joined = (counts.left_rows + counts.right_rows) * shape.row_bytes
    return {
        "partition": shape.rows * partition_row(shape),
        "exchange": 2 * counts.sent_bytes,
        "join": joined + counts.result_rows * shape.result_row_bytes,
    }


def read_bytes(shape: Shape, counts: Counts) -> dict[str, int]:
    """Of these bytes, those of loops that read far more than they write."""
    return {
        "partition": shape.rows * histogram_row(shape),
        "join": (counts.left_rows + counts.right_rows) * shape.row_bytes,
    }


def join_accesses(shape: Shape, counts: Counts) -> int:
    """Accesses at random of all workers' joins, within buckets."""
    return counts.left_rows + counts.right_rows + counts.result_rows * (1 + shape.payloads)
