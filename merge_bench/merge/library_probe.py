"""A program that does what a worker does first with its libraries, to see whether its environment lets it."""

from __future__ import annotations

import numba
import numpy as np
import polars as pl


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def _total(values: np.ndarray) -> int:
    total = 0
    for value in values:
        total += value
    return total


def main() -> None:
    """Compile a loop with numba and join two frames with polars."""
    frame = pl.DataFrame({"key": np.arange(9)})
    assert _total(frame.join(frame, on="key")["key"].to_numpy()) == 36


if __name__ == "__main__":
    main()
