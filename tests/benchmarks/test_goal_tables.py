"""The tables of the goals about string keys and two keys, and what the libraries' results of them are held against."""

from __future__ import annotations

import importlib.metadata
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from benchmarks.goal import tables
from benchmarks.goal.bench import Bench
from benchmarks.peer.inprocess import checksum
from benchmarks.peer.libraries import run
from benchmarks.peer.merge_bench_run import command
from benchmarks.peer.protocol import Job, PeerError
from merge_bench.cli import cli
from merge_bench.errors import WrongResult
from tests.benchmarks.conftest import Launches


@pytest.mark.parametrize("keys", [tables.STRINGS, tables.COLUMNS])
def test_tables_match_in_as_many_rows_as_they_should(tmp_path: Path, keys: tables.Keys) -> None:
    made = tables.make(tmp_path, keys, 5000, seed=3, group_rows=999)
    left, right = pq.read_table(made.left), pq.read_table(made.right)
    assert left.num_rows == right.num_rows == 5000
    assert pq.ParquetFile(made.left).num_row_groups == 6
    joined = left.join(right, list(keys.on), join_type="inner")
    assert joined.num_rows == made.rows == 1500
    pairs = zip(joined["left_payload"].to_pylist(), joined["right_payload"].to_pylist(), strict=True)
    assert sum(one * other for one, other in pairs) % 2**64 == made.checksum
    assert left["left_payload"].to_pylist() == list(range(5000))


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [1, 4])
def test_keys_that_repeat_multiply_the_rows(tmp_path: Path, repeats: int) -> None:
    made = tables.make(tmp_path, tables.Keys("integers", ("key",)), 2000, seed=3, repeats=repeats)
    left, right = pq.read_table(made.left), pq.read_table(made.right)
    assert set(np.unique(left["key"], return_counts=True)[1]) == {repeats}
    assert set(np.unique(right["key"], return_counts=True)[1]) == {repeats}
    outcome = run(Job(1000, 2, 2, 1, 0, 0.3, 3, {"result": "table"}, made))
    assert (outcome.rows, outcome.verified) == (600 * repeats, True)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "apart"), [("integers", True), ("spread", False)])
def test_keys_without_a_match_lie_apart_or_among_the_others(tmp_path: Path, name: str, apart: bool) -> None:
    """Where they lie apart, a filter by the least and greatest key of the other side finds them."""
    made = tables.make(tmp_path, tables.Keys(name, ("key",)), 2000, seed=3, fraction=0.01)
    left, right = (pq.read_table(path)["key"].to_numpy() for path in (made.left, made.right))
    assert made.rows == 20
    unmatched = np.setdiff1d(right, left)
    assert unmatched.size == 1980
    assert bool(np.all((unmatched < left.min()) | (unmatched > left.max()))) == apart
    outcome = run(Job(1000, 2, 2, 1, 0, 0.01, 3, {"result": "table"}, made))
    assert (outcome.rows, outcome.verified) == (20, True)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"engine": "streaming"}, {"result": "table"}])
def test_libraries_join_wide_and_skewed_rows(options: dict[str, str]) -> None:
    """The payload columns and the skew are those of the job: every row of the result is checked against them."""
    job = Job(1000, 2, pl.thread_pool_size(), 1, 0, 0.3, 3, options, payload_columns=3, zipf=1.2)
    assert run(job).rows == 600
    assert job.columns[1:] == tuple(f"{side}_payload_{number}" for side in ("left", "right") for number in range(3))
    argv = command(job, Path("results"))
    assert argv[argv.index("--payload-columns") + 1] == "3"
    assert argv[argv.index("--skew") + 1] == "zipf:1.2"


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


@pytest.mark.slow
@pytest.mark.parametrize("keys", [tables.STRINGS, tables.COLUMNS])
@pytest.mark.parametrize("options", [{"engine": "streaming"}, {"result": "table"}])
def test_libraries_join_the_tables(tmp_path: Path, keys: tables.Keys, options: dict[str, str]) -> None:
    made = tables.make(tmp_path, keys, 2000, seed=3)
    outcome = run(Job(1000, 2, pl.thread_pool_size(), 1, 0, 0.3, 3, options, made))
    assert (outcome.rows, outcome.verified, len(outcome.wall_seconds)) == (600, True, 1)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [({"rows": 599}, "it has 600 rows instead of 599"), ({"checksum": 1}, "the checksum of its rows")],
)
def test_a_wrong_result_is_an_error(tmp_path: Path, wrong: dict[str, int], sentence: str) -> None:
    made = replace(tables.make(tmp_path, tables.STRINGS, 2000, seed=3), **wrong)
    with pytest.raises(WrongResult, match=sentence):
        run(Job(1000, 2, 2, 1, 0, 0.3, 3, {"result": "table"}, made))


@pytest.mark.slow
@pytest.mark.parametrize(("options", "name"), [({"result": "arrow"}, "duckdb"), ({}, "pandas")])
def test_libraries_join_synthetic_rows_in_every_iteration(options: dict[str, str], name: str) -> None:
    outcome = run(Job(1000, 2, 2, 2, 1, 0.3, 3, options))
    assert (outcome.rows, outcome.verified, len(outcome.wall_seconds)) == (600, True, 2)
    assert (outcome.name, outcome.version) == (name, importlib.metadata.version(name))


def test_polars_must_have_the_threads_of_the_job() -> None:
    threads = pl.thread_pool_size()
    with pytest.raises(PeerError, match=f"Polars has {threads} threads instead of {threads + 1}"):
        run(Job(1000, 2, threads + 1, 1, 0, 0.3, 3, {"engine": "streaming"}))


@pytest.mark.parametrize("keys", [tables.STRINGS, tables.COLUMNS])
def test_merge_bench_joins_the_same_tables(tmp_path: Path, keys: tables.Keys) -> None:
    made = tables.make(tmp_path, keys, 2000, seed=3)
    argv = command(Job(1000, 2, 2, 2, 1, 0.3, 3, tables=made), tmp_path)
    assert argv[argv.index("--left") + 1] == made.left
    assert argv[argv.index("--on") + 1] == ",".join(keys.on)
    assert not {"--chunk", "--frac-match"} & set(argv)
    accepted = CliRunner().invoke(cli, ["run", *argv, "--dry-run"])
    assert accepted.exit_code == 0, accepted.output


def test_both_libraries_are_compared_over_tables(tmp_path: Path, launches: Launches) -> None:
    walls = {"merge_bench": 1.0, "polars-streaming": 2.0, "duckdb-table": 3.0}
    launches.wall = lambda launch: walls[launch.contender]
    here = Bench(tmp_path, 200)
    found = tables.against_libraries(here, tables.STRINGS, rows=1000)
    assert found == {"strings-polars": 2.0, "strings-duckdb": 3.0}
    assert here.details["strings-polars"]["wall_seconds"] == {"merge_bench": 1.0, "polars-streaming": 2.0}
    assert sorted(launches.names()) == sorted(walls)
    (made,) = {launch.job.tables for launch in launches.all}  # as the peers' processes read it
    assert made is not None
    assert (made.on, made.rows) == (("key",), 600)
