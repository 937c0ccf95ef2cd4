"""The tables that are merged: synthetic ones, real ones in Parquet files, and those of benchmarks, by name.

Here is what determines the synthetic tables and what is expected of their merge, which plans and drivers read without
numba; `synthetic.py` makes and checks the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pyarrow as pa

from merge_bench.merge.frame import Field

KEY = "key"


@dataclass(frozen=True)
class SyntheticSpec:
    """What determines both synthetic tables.

    `rows`: of each frame. `fraction`: of right rows that match. `zipf`: exponent of the skew, 0 for none.
    """

    rows: int
    fraction: float
    seed: int
    payload_columns: int = 1
    zipf: float = 0.0

    @property
    def matches(self) -> int:
        """Rows of an inner merge's result: the right rows that match."""
        return round(self.fraction * self.rows)

    @property
    def hottest(self) -> float:
        """The part of the matching right rows with the most frequent key: rank 1 of the law of `synthetic.py`."""
        if self.zipf == 0.0:
            return 1 / max(self.matches, 1)
        exponent = 1.0 - self.zipf
        if exponent == 0.0:
            return math.log(2.0) / math.log(self.rows + 1.0)
        return float((2.0**exponent - 1.0) / ((self.rows + 1.0) ** exponent - 1.0))

    def fields(self, side: str) -> tuple[Field, ...]:
        """Key and payload columns of ``left`` or ``right``: all int64."""
        names = [KEY] + [f"{side}_payload_{k}" for k in range(self.payload_columns)]
        return tuple(Field(name, pa.int64(), 8) for name in names)

    @property
    def bytes_per_row(self) -> int:
        return 8 * (1 + self.payload_columns)


@dataclass(frozen=True)
class Expectation:
    """A worker's part of the expected result, from its own right rows; to be added up over the workers."""

    rows: int
    checksum: int
