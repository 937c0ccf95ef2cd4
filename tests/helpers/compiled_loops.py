"""Compiles the loops of merges before the tests, whose processes side by side would each compile them at once.

    python -m tests.helpers.compiled_loops

numba keeps them beside their files, so there is nothing to compile the next time.
"""

from __future__ import annotations

from merge_bench.merge.engines.base import JoinKind
from merge_bench.merge.partition import LINES, PLAIN
from merge_bench.merge.workload import SyntheticSpec
from merge_bench.merge.workload.synthetic import check_result_rows, generate_chunks
from tests.helpers.merge_cases import CASES, canonical, chunks
from tests.merge.in_process import simulate


def main() -> None:
    """Merge a few rows on two ranks."""
    spec = SyntheticSpec(2000, 0.3, 0)
    lefts, rights, _ = zip(*(generate_chunks(spec, rank, 2) for rank in range(2)), strict=True)
    for way in (PLAIN, LINES):
        check_result_rows(spec, simulate("native", lefts, rights, ("key",), threads=2, stores=(way, 520)))
    make, keys = CASES["every type"]
    left, right = (chunks(canonical(table), 2) for table in make())
    for how in JoinKind:
        simulate("native", left, right, keys, threads=2, how=how)


if __name__ == "__main__":
    main()
