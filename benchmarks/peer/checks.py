"""What is wrong with a result."""

from __future__ import annotations

from merge_bench.errors import WrongResult
from merge_bench.merge.workload import ExpectedWorkerResult


def judge(expected: ExpectedWorkerResult, rows: int, checksum: int, bad: int) -> int:
    """Check the number of rows, their checksum, and that none is bad; gives the number.

    Raises
    ------
    WrongResult
        Saying what differs.
    """
    if bad:
        raise WrongResult(f"the result is wrong: {bad} of its {rows} rows do not match on the key")
    if rows != expected.rows:
        raise WrongResult(f"the result is wrong: it has {rows} rows instead of {expected.rows}")
    if checksum != expected.checksum:
        raise WrongResult("the result is wrong: the checksum of its rows differs from the expected checksum")
    return rows
