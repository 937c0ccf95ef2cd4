"""The tables of the goals about string keys and two keys, and what the libraries' results of them are held against."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.goal import tables
from benchmarks.goal.bench import Bench
from benchmarks.peer.duckdb_join import DuckDBJoin
from benchmarks.peer.inprocess import Joiner, checksum, measure
from benchmarks.peer.merge_bench_run import command
from benchmarks.peer.polars_streaming import PolarsJoin
from benchmarks.peer.protocol import Job
from merge_bench.errors import WrongResult


@pytest.mark.parametrize("keys", [tables.STRINGS, tables.COLUMNS])
def test_tables_match_in_as_many_rows_as_they_should(
    tmp_path: Path, keys: tables.Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "GROUP_ROWS", 999)
    made = tables.make(tmp_path, keys, 5000, seed=3)
    left, right = pq.read_table(made.left), pq.read_table(made.right)
    assert left.num_rows == right.num_rows == 5000
    assert pq.ParquetFile(made.left).num_row_groups == 6
    joined = left.join(right, list(keys.on), join_type="inner")
    assert joined.num_rows == made.rows == 1500
    pairs = zip(joined["left_payload"].to_pylist(), joined["right_payload"].to_pylist(), strict=True)
    assert sum(one * other for one, other in pairs) % 2**64 == made.checksum
    assert left["left_payload"].to_pylist() == list(range(5000))


def test_string_keys_are_names_with_nine_digits() -> None:
    assert tables.STRINGS.columns(np.array([7, 123456789]))["key"].to_pylist() == [
        "customer-000000007",
        "customer-123456789",
    ]


def test_a_checksum_tells_other_pairs_of_the_same_rows() -> None:
    left, right = np.array([1, 2**40, 3]), np.array([5, 2**40, 7])
    assert checksum(left, right) == (5 + 2**80 + 21) % 2**64
    assert checksum(left[::-1], right[::-1]) == checksum(left, right)
    assert checksum(left, right[::-1]) != checksum(left, right)


@pytest.mark.parametrize("keys", [tables.STRINGS, tables.COLUMNS])
@pytest.mark.parametrize("library", ["polars", "duckdb"])
def test_libraries_join_the_tables_and_a_wrong_result_is_an_error(
    tmp_path: Path, keys: tables.Keys, library: str
) -> None:
    made = tables.make(tmp_path, keys, 2000, seed=3)
    job = Job(1000, 2, 2, 2, 1, 0.3, 3, tables=made)

    def joiner() -> Joiner:
        if library == "polars":
            return PolarsJoin("streaming", job.on)
        return DuckDBJoin(2, job.on, job.columns, to_arrow=False)

    outcome = measure(job, joiner())
    assert (outcome.rows, outcome.verified, len(outcome.wall_seconds)) == (600, True, 2)
    with pytest.raises(WrongResult, match="it has 600 rows, but 599 match"):
        measure(replace(job, tables=replace(made, rows=599)), joiner())
    with pytest.raises(WrongResult, match="the checksum of its rows"):
        measure(replace(job, tables=replace(made, checksum=1)), joiner())


def test_merge_bench_joins_the_same_tables(tmp_path: Path) -> None:
    made = tables.make(tmp_path, tables.COLUMNS, 2000, seed=3)
    argv = command(Job(1000, 2, 2, 2, 1, 0.3, 3, tables=made), "somewhere")
    assert argv[argv.index("--left") + 1] == made.left
    assert argv[argv.index("--on") + 1] == "place,number"
    assert not {"--chunk", "--frac-match"} & set(argv)


@pytest.mark.cluster
def test_both_libraries_are_compared_over_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ROWS", 1000)
    here = Bench(tmp_path, 200)
    found = tables.against_libraries(here, tables.STRINGS)
    assert found.keys() == {target.name for target in tables.TARGETS["strings"].values()}
    assert here.details["strings-polars"]["wall_seconds"].keys() == {"merge_bench", "polars-streaming"}
