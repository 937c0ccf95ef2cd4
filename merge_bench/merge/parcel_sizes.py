"""The sizes of the parcels that a merge of the synthetic workload sends, without the rows.

They follow from the keys of a chunk, the hash that deals them out and the layout of a parcel, and are those of a real
merge of the same plan, byte by byte.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from merge_bench.merge.parcel_layout import Layout
from merge_bench.merge.workload import synthetic
from merge_bench.merge.workload.synthetic import SyntheticSpec

BLOCK_ROWS = 1 << 20
"""Rows whose keys are made at once, so that memory does not depend on the chunk."""


def parcel_bytes(spec: SyntheticSpec, rank: int, workers: int) -> tuple[list[int], list[int]]:
    """Bytes of this worker's parcels to each worker, by rank, itself included: of the left and of the right frame."""
    sides = zip(("left", "right"), _rows(spec, rank, workers), strict=True)
    left, right = (
        [Layout.of(spec.fields(side), np.array([[count]])).size for count in counts] for side, counts in sides
    )
    return left, right


def _rows(spec: SyntheticSpec, rank: int, workers: int) -> list[list[int]]:
    """Rows of a chunk of each side that go to each worker, by rank."""
    from merge_bench.merge import partition_loops as loops

    keys_only, parts = replace(spec, payload_columns=0), max(1, -(-spec.rows // workers // BLOCK_ROWS))
    found = np.zeros((2, loops.HISTOGRAMS, workers + 1), np.int64)
    ids = np.empty(BLOCK_ROWS + 1, np.uint16 if workers < 2**16 else np.uint32)
    for part in range(parts):  # chunk `rank` of `workers` has the rows of these chunks of `workers` × `parts`
        frames = synthetic.generate(keys_only, rank * parts + part, workers * parts)[:2]
        for frame, counts in zip(frames, found, strict=True):
            loops.assign_fixed(frame.columns[0].values, workers, ids[: frame.rows], counts)
    return [[int(count) for count in counts.sum(axis=0)[:workers]] for counts in found]
