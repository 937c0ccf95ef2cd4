"""The join task of the db-benchmark: what each peer is given, how its result is checked, and the table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner

from benchmarks import h2o
from benchmarks.peer import tables
from benchmarks.peer.contenders import REFERENCE
from benchmarks.peer.inprocess import Joiner
from benchmarks.peer.libraries import DuckDB, Pandas, Polars
from benchmarks.peer.merge_bench_run import command
from benchmarks.peer.protocol import Job, Tables
from merge_bench.errors import RunFailed, UsageError, WrongResult
from merge_bench.merge.workload.h2o import H2O, h2o_tables
from tests.benchmarks.conftest import Launches
from tools.reference import measured

ROWS = 2000
LIBRARIES: dict[str, tuple[type[Joiner], dict[str, str]]] = {
    "polars": (Polars, {"engine": "streaming"}),
    "duckdb": (DuckDB, {"result": "arrow"}),
    "pandas": (Pandas, {}),
}
COLUMNS = {"q1": 9, "q2": 11, "q3": 11, "q4": 11, "q5": 13}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("h2o")


def made(name: str, folder: Path) -> Tables:
    question = H2O.find_question(name)
    return tables.of_question(question, *h2o_tables(ROWS, (question.left, question.right), folder))


def joined(library: str, of: Tables) -> pa.Table:
    kind, options = LIBRARIES[library]
    joiner = kind(Job(ROWS, 1, pl.thread_pool_size(), 1, 0, 0.9, 0, options, of))
    joiner.load(*(tables.chunk(of, 0, 1, side) for side in tables.SIDES))
    joiner.merge()
    return joiner.result()


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", COLUMNS)
def test_the_result_of_each_library_is_verified(name: str, library: str, folder: Path) -> None:
    of = made(name, folder)
    assert len(of.columns) == COLUMNS[name]
    assert tables.verify(of, joined(library, of)) == of.rows


@pytest.mark.slow
@pytest.mark.parametrize("column", ["id6", "id1_right", "v2"])
def test_a_wrong_value_in_any_column_is_found(column: str, folder: Path) -> None:
    of = made("q2", folder)
    right = joined("duckdb", of)
    at = right.column_names.index(column)
    swapped = pa.concat_arrays([right[column].combine_chunks()[1:2], right[column].combine_chunks()[:1]])
    assert pc.not_equal(swapped[0], swapped[1]).as_py()
    wrong = right.slice(0, 2).set_column(at, column, swapped)
    with pytest.raises(WrongResult, match="checksum"):
        tables.verify(of, pa.concat_tables([wrong, right.slice(2)]))
    with pytest.raises(WrongResult, match="rows instead of"):
        tables.verify(of, right.slice(1))


def test_chunks_of_workers_are_the_whole_table(folder: Path) -> None:
    of = made("q5", folder)
    parts = [tables.chunk(of, rank, 3, "right") for rank in range(3)]
    assert min(part.num_rows for part in parts) > ROWS // 4
    whole = tables.chunk(of, 0, 1, "right")
    assert pa.concat_tables(parts).sort_by("id3").equals(whole.sort_by("id3"))


def test_merge_bench_gets_the_files(folder: Path) -> None:
    of = made("q3", folder)
    words = command(Job(ROWS, 2, 2, 1, 1, 0.9, 0, {"exchange": "ucx"}, of), folder)
    assert words[words.index("--left") + 1] == of.left
    assert words[words.index("--how") + 1] == "left"
    assert words[words.index("--on") + 1] == "id2"
    assert "--how" not in command(Job(ROWS, 2, 2, 1, 1, 0.9, 0, {}, made("q1", folder)), folder)


def test_every_question_is_measured_beside_all_peers(
    tmp_path: Path, launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    walls = {REFERENCE: 0.5, "duckdb-table": 1.0, "duckdb-arrow": 2.0, "pandas": None}
    launches.wall = lambda launch: walls.get(launch.contender, 4.0)
    argv = ["--rows", "2e3", "--workers", "1", "--question", "5,1", "--blocks", "1", "--results", str(tmp_path)]
    done = CliRunner().invoke(h2o.h2o, [*argv, "--output", str(tmp_path / "out.json")])
    assert done.exit_code == RunFailed.exit_status, done.output  # pandas failed
    contenders = {REFERENCE, *(name for variants in h2o.FAMILIES.values() for name in variants)}
    assert sorted(launches.names()) == sorted(2 * [*contenders])
    jobs = [launch.job for launch in launches.all if launch.contender == REFERENCE]
    assert len({(launch.job.on, launch.job.tables) for launch in launches.all}) == 2
    assert [job.on for job in jobs] == [("id3",), ("id1",)]
    assert jobs[0].tables is not None
    assert jobs[0].data_bytes == jobs[0].tables.data_bytes > 2 * ROWS * 50
    document = json.loads((tmp_path / "out.json").read_text())
    assert {name: found["columns"] for name, found in document["questions"].items()} == {"q5": 13, "q1": 9}
    assert h2o.row(H2O.find_question("q5"), document["questions"]["q5"]) == [
        "q5: x ⋈ big on id3",
        "1,800 × 13",
        "500",
        "1,000, 2.00 (2.00–2.00)",
        "4,000, 8.00 (8.00–8.00)",
        "failed",
        "4,000, 8.00 (8.00–8.00)",
    ]


def test_the_page_has_a_table_for_each_processor() -> None:
    standings = [
        {"contender": name, "wall": wall, "ratio": {"median": wall / 0.5, "low": 1.5, "high": 2.5}}
        for name, wall in ((REFERENCE, 0.5), ("duckdb-table", 1.0), ("duckdb-arrow", 2.0))
    ]
    question = {"rows": 900, "columns": 9, "standings": standings, "versions": {"duckdb-table": "2.0"}}
    document = {
        "rows": 1000,
        "blocks": 3,
        "git": {"commit": "0123456789", "dirty": False},
        "load_average": [0.5, 1.0, 1.5],
        "questions": {"q1": question},
    }
    text = "\n".join(measured.questions({"intel-xeon-167": document}))
    assert "### Questions: Intel Xeon, model 167 (2 MiB of L2, 480 MiB of L3), 1,000 rows" in text
    assert "3 interleaved blocks, commit 0123456, load 0.5, 1.0, 1.5. duckdb 2.0." in text
    assert "| q1: x ⋈ small on id1 | 900 × 9 | 500 | 1,000, 2.00 (1.50–2.50) | - | - | - |" in text
    assert not list(measured.questions({}))


def test_a_question_that_peers_cannot_join_is_refused(folder: Path) -> None:
    question = replace(H2O.find_question("q1"), how="outer")
    with pytest.raises(UsageError, match="the peers do not join q1"):
        tables.of_question(question, folder, folder)
