"""Compiles the loops of merges before the tests, whose processes side by side would each compile them at once.

    python -m tests.helpers.compiled_loops

numba keeps them beside their files, so there is nothing to compile the next time.
"""

from __future__ import annotations

from merge_bench.merge.engines.base import FilteringEngine, JoinKind
from merge_bench.merge.partition import LINES, PLAIN
from merge_bench.merge.workload import SyntheticSpec
from merge_bench.merge.workload.synthetic import check_result_rows, generate_chunks
from tests.helpers.merge_cases import CASES, canonical, chunks
from tests.merge.in_process import engines_of, simulate

STORES = ((PLAIN, 520), (LINES, 520))


def main() -> None:
    """Merge a few rows on two ranks: of each kind of join, of each type, and with a filter."""
    spec = SyntheticSpec(2000, 0.3, 0, payload_columns=2)
    for how in JoinKind:
        lefts, rights, _ = zip(*(generate_chunks(spec, rank, 2, how) for rank in range(2)), strict=True)
        for stores in STORES:
            table = simulate("native", lefts, rights, ("key",), threads=2, stores=stores, how=how)
            check_result_rows(spec, table, how)
    for name, (make, keys) in CASES.items():
        left, right = (chunks(canonical(table), 2) for table in make())
        for stores in STORES:
            simulate("native", left, right, keys, stores=stores)
        for how in JoinKind if name == "every type" else ():
            simulate("native", left, right, keys, threads=2, how=how)
        for engine in engines_of("native", left[:1], right[:1], keys):
            if isinstance(engine, FilteringEngine):
                engine.filter_rows(lambda bits: [bits])


if __name__ == "__main__":
    main()
