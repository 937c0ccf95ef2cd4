"""The registry of workloads: what each says of itself, and one file more that is a workload."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import merge_bench
from merge_bench.campaign import add_registry_values, options_of_run
from merge_bench.config.options import BY_KEY
from merge_bench.errors import UsageError
from merge_bench.merge import workload
from merge_bench.merge.workload import Workload, import_benchmark, workloads
from merge_bench.testing import fake_cluster
from tests.helpers.members import add_member
from tests.helpers.plans import prepared

FIBONACCI = '''"""Keys that the golden ratio spreads over 64 bits, as in Fibonacci hashing. Half of them match."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from merge_bench.config.files import user_cache_folder
from merge_bench.config.options import TableOptions
from merge_bench.merge.workload import Workload
from merge_bench.merge.workload.benchmarks import Benchmark, BenchmarkQuestion, make_tables_once

WORKLOAD = Workload(
    name="fibonacci",
    help="keys spread by the golden ratio, with --rows",
    place=9,
    attribute="FIBONACCI",
    questions="half",
    default="half",
    rows=1_000_000,
)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def find_tables(options: TableOptions, names: Sequence[str]) -> Sequence[Path]:
    """The files of these tables, `left` and `right`; the right one begins at the middle of the left one."""
    rows = options.rows or WORKLOAD.rows

    def make(folder: Path, missing: Sequence[str]) -> None:
        for name in missing:
            numbers = np.arange(rows, dtype=np.uint64) + np.uint64(rows // 2 if name == "right" else 0)
            table = pa.table({"key": (numbers * GOLDEN).view(np.int64), f"{name}_number": numbers.view(np.int64)})
            pq.write_table(table, folder / f"{name}.parquet", row_group_size=max(1, rows // 128))

    target = user_cache_folder() / "fibonacci" / str(rows)
    return make_tables_once(f"fibonacci with {rows:,} rows", target, names, make, 32 * rows, "--rows")


FIBONACCI = Benchmark(
    "fibonacci", (BenchmarkQuestion("half", "left", "right", ("key",), ("key",)),), default=("half",), make=find_tables
)
'''


@pytest.fixture
def fibonacci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A workload in a folder of its own, which the registry has beside that of the package; its name."""
    add_member(monkeypatch, workload, tmp_path, "fibonacci", FIBONACCI)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options_of_run.cache_clear()
    yield "fibonacci"
    options_of_run.cache_clear()


def test_the_workloads_of_the_package() -> None:
    assert [each.name for each in workloads()] == ["synthetic", "tables", "tpch", "h2o"]
    assert add_registry_values(BY_KEY["workload"]).placeholder == "auto|synthetic|tables|tpch|h2o"
    assert add_registry_values(BY_KEY["workload"]).help == (
        "Tables to merge. synthetic: generated from --chunk and --seed; tables: the files of --left and --right; tpch:"
        " TPC-H at --scale; h2o: the join task of the db-benchmark, with --rows; auto: tables if --left and --right are"
        " given, else synthetic."
    )
    with pytest.raises(ValueError, match="'fibonacci' is not one of auto, synthetic, tables, tpch, h2o"):
        add_registry_values(BY_KEY["workload"]).parse("fibonacci")


@pytest.mark.parametrize("member", workloads(), ids=lambda member: member.name)
def test_what_a_workload_says_is_what_it_has(member: Workload) -> None:
    benchmark = import_benchmark(member.name)
    if benchmark is None:
        assert (member.attribute, member.questions, member.default, member.rows) == (None, "", "", 0)
        return
    assert benchmark.name == member.name
    names = [question.name for question in benchmark.questions]
    listed = [f"q{number}" for number in range(1, 6)] if member.questions == "1 to 5" else None
    assert (listed or member.questions.rpartition(": ")[2].split(", ")) == names
    assert benchmark.default == (tuple(names) if member.default == "all" else (member.default,))
    assert f"{member.name} ({member.questions})" in add_registry_values(BY_KEY["question"]).help
    assert (f"{member.name}: {member.rows:,}" in add_registry_values(BY_KEY["rows"]).help) == bool(member.rows)


def test_a_file_in_the_folder_is_a_workload(fibonacci: str) -> None:
    assert add_registry_values(BY_KEY["workload"]).parse(fibonacci) == fibonacci
    assert (
        "; fibonacci: keys spread by the golden ratio, with --rows; auto:"
        in add_registry_values(BY_KEY["workload"]).help
    )
    assert add_registry_values(BY_KEY["rows"]).help.startswith("Rows of the left table of --workload h2o or fibonacci.")
    assert "or fibonacci (half). Several values" in add_registry_values(BY_KEY["question"]).help
    with pytest.raises(UsageError, match="--rows needs --workload h2o or fibonacci;"):
        prepared(workload="tpch", rows=1000)
    with pytest.raises(UsageError, match="--workload fibonacci has no question 'third'; choose from half"):
        prepared(workload=fibonacci, question=("third",))


def test_one_file_more_is_all_that_a_run_needs(fibonacci: str, tmp_path: Path) -> None:
    with fake_cluster():
        result = merge_bench.run(workload=fibonacci, rows=1000, workers=2, iterations=2, results=tmp_path / "results")
    assert result.document["verified"]
    assert result.document["plan"]["workload"]["benchmark"] == fibonacci
    assert result.document["plan"]["workload"]["left"]["rows"] == 1000
