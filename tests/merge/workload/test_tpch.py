"""TPC-H tables: made once, whole or not at all."""

from __future__ import annotations

import functools
import os
import stat
import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from merge_bench.config.files import user_cache_folder
from merge_bench.errors import RunFailed, UsageError
from merge_bench.merge.verification import duckdb_reference
from merge_bench.merge.workload import benchmarks, tpch
from tests.merge.workload.parquet_samples import plan, run_engine, write

ORDERS, LINEITEM = 15_000, 60_175  # rows at scale 0.01

KEYS = "o_orderkey", "l_orderkey"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that the tests of this file share, with every table that they look at at scale 0.01."""
    made = tmp_path_factory.mktemp("tpch")
    names = {name for question in tpch.TPCH.questions for name in (question.left, question.right)}
    tpch.tpch_tables(0.01, sorted(names), made)
    return made


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two tables of few rows."""
    folder = tmp_path_factory.mktemp("small")
    write(folder / "orders.parquet", pa.table({"o_orderkey": range(10)}))
    write(folder / "lineitem.parquet", pa.table({"l_orderkey": [row // 4 for row in range(40)]}))
    return folder


def program(folder: Path, command: str) -> str:
    """A generator of version 0 that runs a shell command."""
    made = folder / "tpchgen-cli"
    made.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "tpchgen-cli 0" && exit\n{command}\n')
    made.chmod(made.stat().st_mode | stat.S_IXUSR)
    return str(made)


@pytest.fixture
def copier(small: Path, tmp_path: Path) -> str:
    """A generator that copies the small tables, and says so in a file ``made``."""
    folder = tmp_path / "program"
    folder.mkdir()
    copy = f'for word; do case $word in --output-dir=*) cp {small}/*.parquet "${{word#*=}}";; esac; done'
    return program(folder, f"echo made >>{folder}/made\n{copy}")


def times_made(copier: str) -> int:
    """How often this generator has made tables."""
    return len(Path(copier).with_name("made").read_text().split())


expected = functools.cache(duckdb_reference.compute_expected_result)


@pytest.mark.slow
def test_counts_at_scale_001(folder: Path) -> None:
    orders, lineitem = tpch.tpch_tables(0.01, folder=folder)
    assert orders.parent == lineitem.parent
    assert orders.parent.name.startswith("sf0.01-")
    spec = plan(orders, lineitem, *KEYS, workers=16)
    assert (spec.left.rows, spec.right.rows) == (ORDERS, LINEITEM)
    assert spec.warnings == ()
    assert min(spec.left.chunk_rows) > 0.8 * ORDERS / 16
    assert min(spec.right.chunk_rows) > 0.8 * LINEITEM / 16
    assert duckdb_reference.count_result_rows(spec).rows == LINEITEM


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("orders-lineitem", LINEITEM),
        ("customer-orders", ORDERS),
        ("supplier-lineitem", LINEITEM),
        ("nation-supplier", 100),
        ("nation-customer", 1500),
        ("region-nation", 25),
    ],
)
def test_each_row_of_the_right_table_of_a_question_has_one_match(folder: Path, name: str, rows: int) -> None:
    question = tpch.TPCH.find_question(name)
    left, right = tpch.tpch_tables(0.01, (question.left, question.right), folder)
    spec = plan(left, right, question.left_on, question.right_on)
    assert duckdb_reference.count_result_rows(spec).rows == spec.right.rows == rows


def test_each_question_is_tested() -> None:
    tested = test_each_row_of_the_right_table_of_a_question_has_one_match.pytestmark[0].args[1]
    assert [name for name, _ in tested] == [question.name for question in tpch.TPCH.questions]


@pytest.mark.parametrize("engine", ["native", "polars", "pandas", "duckdb"])
def test_every_engine_gives_the_same_checksum(folder: Path, engine: str) -> None:
    orders, lineitem = tpch.tpch_tables(0.01, folder=folder)
    spec = plan(orders, lineitem, *KEYS, workers=3, engine=engine)
    results = run_engine(engine, spec)
    found = sum(t.num_rows for t in results), sum(duckdb_reference.result_checksum(spec, t) for t in results) % 2**64
    assert found == expected(spec)
    assert found[0] == LINEITEM


def test_made_once_until_one_is_taken_away(copier: str, tmp_path: Path) -> None:
    first = tpch.tpch_tables(0.001, folder=tmp_path, program=copier)
    assert tpch.tpch_tables(0.001, folder=tmp_path, program=copier) == first
    assert times_made(copier) == 1
    first[0].unlink()
    assert tpch.tpch_tables(0.001, folder=tmp_path, program=copier) == first
    assert first[0].is_file()
    assert times_made(copier) == 2


def test_default_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert user_cache_folder() == Path("/somewhere/merge_bench")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert user_cache_folder() == Path("/home/someone/.cache/merge_bench")


def test_an_interrupted_generation_is_done_again(small: Path, tmp_path: Path) -> None:
    """Of any benchmark; also where one was killed, whose folder is still there."""
    stale = tmp_path / ".sf1.tmp-99999"
    stale.mkdir()
    (stale / "orders.parquet").write_bytes(b"half")

    def make(temporary: Path, names: Sequence[str], whole: bool = True) -> None:
        for name in names:
            content = (small / f"{name}.parquet").read_bytes()
            (temporary / f"{name}.parquet").write_bytes(content if whole else content[:100])
            if not whole:
                raise KeyboardInterrupt

    def tables(make: benchmarks.Make) -> Sequence[Path]:
        return tpch.make_tables_once("TPC-H", tmp_path / "sf1", ("orders", "lineitem"), make, 1000, "--scale")

    with pytest.raises(KeyboardInterrupt):
        tables(functools.partial(make, whole=False))
    assert not list(tmp_path.rglob("*.parquet"))
    assert plan(*tables(make), *KEYS).right.rows == 40
    assert {path.name for path in tmp_path.iterdir()} == {"sf1", ".sf1.lock"}


@pytest.mark.slow
def test_two_at_once(copier: str, tmp_path: Path) -> None:
    found: list[tuple[Path, ...]] = []
    barrier = threading.Barrier(3)

    def ask() -> None:
        barrier.wait()
        found.append(tpch.tpch_tables(0.001, folder=tmp_path, program=copier))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert times_made(copier) == 1
    assert len(found) == 3
    assert len(set(found)) == 1
    assert found[0][1].is_file()


def test_a_disk_too_small(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        tpch.tpch_tables(1e9, folder=tmp_path)
    message = str(caught.value)
    assert message.startswith("TPC-H at scale 1e+09 needs about 319")
    assert message.endswith("free; use a smaller --scale, or set XDG_CACHE_HOME to another folder")


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf"), 0.0001])
def test_scales_that_are_none(tmp_path: Path, scale: float) -> None:
    with pytest.raises(UsageError, match=r"^--scale must be finite and at least 0\.001, not \S+$"):
        tpch.tpch_tables(scale, folder=tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"^cannot write the tables of TPC-H at scale 0.001 to .*: Not a directory$"):
        tpch.tpch_tables(0.001, folder=tmp_path / "file" / "below")


def test_a_generator_that_fails(tmp_path: Path) -> None:
    failing = program(tmp_path, 'echo "no more ink" >&2; exit 7')
    cache = tmp_path / "cache"
    with pytest.raises(RunFailed, match=r"^tpchgen-cli failed with status 7: no more ink$"):
        tpch.tpch_tables(1, folder=cache, program=failing)
    assert [p.name for p in cache.iterdir()] == [".sf1-0.lock"]


def test_no_generator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    with pytest.raises(UsageError, match="needs the package tpchgen-cli, which is not installed; run: pip install"):
        tpch.find_tpch_generator([tmp_path])
