"""Row hashes over one or several columns: for choosing a bucket, and for the order-independent checksum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from merge_bench.merge.frame import Column, Field, Frame

BLOCK = 1 << 15  # rows hashed at a time: 256 KiB of hashes stay in the L2 cache


class RowHasher:
    """Hashes rows block by block with scratch memory of its own: one per thread.

    Equal values hash alike on every worker, engine and machine. Null takes a hash of its own and both zeros of a float
    are one value, as SQL compares them.
    """

    def __init__(self) -> None:
        self._hashes = np.empty(BLOCK, np.uint64)
        self._before = np.empty(BLOCK, np.uint64)
        self._missing = np.empty(BLOCK, np.uint8)

    def hash_rows(
        self, columns: Sequence[tuple[Field, Column]], start: int, rows: int
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]:
        """Hashes of rows start…start+rows-1, and 1 for each row with a null or NaN; valid until the next call."""
        from merge_bench.merge import partition_loops

        hashes, missing, before = self._hashes[:rows], self._missing[:rows], self._before[:rows]
        hashes[:] = partition_loops.SEED  # not 0, which the mixing leaves 0: rows of zeros must count in the checksum
        missing[:] = 0
        for field, column in columns:
            if column.valid is not None:
                before[:] = hashes
            values, hashed = column.values, slice(start, start + rows)
            if column.offsets is not None:
                partition_loops.hash_variable(values, column.offsets[start : start + rows + 1], hashes)
            elif field.width == 16:
                partition_loops.hash_wide(column.words[hashed], hashes)
            elif field.floating:
                floats = values.view(np.float32 if field.width == 4 else np.float64)
                partition_loops.hash_float(floats[hashed], hashes, missing)
            else:
                partition_loops.hash_fixed(values[hashed], hashes)
            if column.valid is not None:
                partition_loops.fold_nulls(column.valid[hashed], before, hashes, missing)
        return hashes, missing


def is_plain_key(field: Field, column: Column) -> bool:
    """Whether equal values of a key column have equal bytes, 8 at most, and none is null: `start_hashes` suffices."""
    return 0 < field.width <= 8 and not field.floating and column.valid is None


def checksum(frame: Frame, names: Sequence[str]) -> int:
    """Sum of all rows' hashes over the named columns, modulo 2**64; the order of rows does not matter."""
    from merge_bench.merge import partition_loops

    columns = [frame.column(name) for name in names]
    hasher, total = RowHasher(), 0
    for start in range(0, frame.rows, BLOCK):
        hashes, _ = hasher.hash_rows(columns, start, min(BLOCK, frame.rows - start))
        total += int(partition_loops.sum_hashes(hashes))
    return total % 2**64
