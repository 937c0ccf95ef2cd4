"""Tables of odd types and names merged on a running cluster; the merged table is written, read, and compared."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merge_bench.merge.engines import engine_descriptions
from merge_bench.merge.engines.base import JoinKind
from merge_bench.merge.exchange import find_data_plane
from merge_bench.records.schema import VerificationLine
from tests.helpers.clusters import dask_cluster
from tests.helpers.merge_cases import Tables, canonical
from tests.helpers.odd_tables import NAMED, NAMES, VALUES, by_python, every_value, found_rows, of_names, of_values
from tests.helpers.runs import Finished, command

JOINS = tuple(how for how in JoinKind if find_data_plane("dask").supports_join(how.value))

ONCE = ("--iterations", "1", "--warmup", "0", "--link-rounds", "0", "--workers", "2")
WAYS = [
    *(
        ("--engine", each.name, "--pipeline", pipeline)
        for each in engine_descriptions()
        if not each.device_memory
        for pipeline in ("on", "off")
    ),
    *(("--exchange", "dask", "--shuffle", shuffle) for shuffle in ("p2p", "tasks")),
]
"""Options of each engine and exchange."""


@pytest.fixture(scope="module")
def scheduler_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with dask_cluster(tmp_path_factory.mktemp("cluster"), 2) as file:
        yield file


CONVERTED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "uuid": (pa.uuid(), [UUID(int=7).bytes, None, b"\xff" * 16]),
    "half": (pa.float16(), [1.5, None, -0.25]),
    "decimal256": (pa.decimal256(38, 2), [Decimal("1.25"), None]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["x", None, "y"]),
    "zone": (pa.timestamp("us", "Asia/Tokyo"), [datetime(2026, 1, 1, tzinfo=UTC), None]),
}
"""Types that travel as another one, which come back in the merged table."""


def odd_tables() -> Tables:
    """Every type that Parquet holds (no timestamps in seconds), under names of libraries."""
    kept = [name for name in VALUES if not name.startswith("timestamp[s")]
    names = ("_merge", "_partitions", "id_right", "id", "__hash_partition", "_left_indicator", "index", "hash", "a.b")
    left, right = (
        table.select(["key", *(f"{side} {name}" for name in kept)])
        for side, table in zip(("left", "right"), every_value(), strict=True)
    )
    left = left.rename_columns(["_shuffle", *names[:5], *left.column_names[6:]])
    right = right.rename_columns(["_shuffle", *names[5:], *right.column_names[5:]])
    for name, (kind, values) in CONVERTED.items():
        taken = [values[row % len(values)] for row in range(left.num_rows)]
        left = left.append_column(name, pa.array(taken).cast(kind))
        right = right.append_column(f"{name} right", left[name][: right.num_rows])
    return left, right


def as_travels(table: pa.Table) -> pa.Table:
    """The table with the values that extension types hold."""
    for at, column in enumerate(table.columns):
        if isinstance(column.type, pa.BaseExtensionType):
            table = table.set_column(at, table.column_names[at], column.cast(column.type.storage_type))
    return canonical(table)


def check_written(folder: Path, scheduler_file: Path, tables: Tables, how: JoinKind, *options: str) -> Finished:
    """Merge on the running cluster, and compare what was written with a join in plain Python."""
    key, written = tables[0].column_names[0], folder / "written"
    files = [folder / "left.parquet", folder / "right.parquet"]
    folder.mkdir(exist_ok=True, parents=True)
    for file, table in zip(files, tables, strict=True):
        pq.write_table(table, file, row_group_size=7)
    finished = command(
        folder,
        "--scheduler-file",
        scheduler_file,
        "--left",
        files[0],
        "--right",
        files[1],
        "--left-on",
        key,
        "--right-on",
        key,
        "--how",
        how.value,
        *ONCE,
        *options,
        "--write-result",
        written,
    )
    finished.check_ended(0)
    parts = [pq.read_table(part) for part in sorted(written.iterdir())]
    given = [pq.read_table(file) for file in files]  # with the types that Parquet has
    stored = {field.name: field.type for table in given for field in table.schema if field.name in CONVERTED}
    for part in parts:
        assert {name: part.schema.field(name).type for name in stored} == stored
    tables = as_travels(given[0]), as_travels(given[1])
    assert found_rows([as_travels(part) for part in parts], *tables, (key,), how) == by_python(*tables, (key,), how), (
        options
    )
    return finished


@pytest.mark.cluster
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--engine", "polars", "--pipeline", "on"), marks=pytest.mark.soak),
        pytest.param(("--exchange", "dask"), marks=pytest.mark.soak),
        pytest.param(("--engine", "pandas"), marks=pytest.mark.soak),
    ],
)
def test_the_merged_table_is_written(tmp_path: Path, scheduler_file: Path, options: tuple[str, ...]) -> None:
    finished = check_written(tmp_path, scheduler_file, odd_tables(), JoinKind.OUTER, *options)
    in_memory, read_back = finished.of(VerificationLine)
    assert (in_memory.folder, read_back.folder) == (None, str(tmp_path / "written"))
    assert (in_memory.rows, in_memory.checksum) == (read_back.rows, read_back.checksum)
    assert read_back.ok
    assert finished.document["verified"] is True


@pytest.mark.cluster
@pytest.mark.parametrize("exchange", ["ucx", pytest.param("dask", marks=pytest.mark.soak)])
def test_the_merged_synthetic_table_is_written(tmp_path: Path, scheduler_file: Path, exchange: str) -> None:
    written = tmp_path / "new" / "written"
    options = ("--chunk", "2e3", "--how", "right", "--exchange", exchange, *ONCE, "--write-result", written)
    finished = command(tmp_path, "--scheduler-file", scheduler_file, *options).check_ended(0)
    table = pq.read_table(written)
    assert table.num_rows == finished.document["result_rows"] == 4000
    assert table["right_payload_0"].combine_chunks().sort().equals(pa.array(range(4000)))


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ((), "is not empty"),
        (("--write-result", "FOLDER/file"), "is not a folder"),
        (("--verify", "off"), "omit --verify off"),
        (("--write-result", "new", "--launches", "2"), "one launch"),
        (("--write-result", "new", "--chunk", "1e3,2e3"), "one launch"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path: Path, options: tuple[str, ...], part: str) -> None:
    (tmp_path / "file").touch()
    given = [option.replace("FOLDER", str(tmp_path)) for option in options]
    command(tmp_path / "run", "--workers", "2", "--write-result", tmp_path, *given).check_refused(
        "--write-result", part
    )


@pytest.mark.soak
@pytest.mark.cluster
@pytest.mark.parametrize("options", WAYS, ids=" ".join)
def test_every_way_on_one_cluster(tmp_path: Path, scheduler_file: Path, options: tuple[str, ...]) -> None:
    every = [odd_tables(), *(of_names(first) for first in NAMED if NAMES[first].isidentifier())]
    every += [of_values(make()) for name, make in VALUES.items() if not name.startswith("timestamp[s")]
    hows = itertools.cycle(JOINS if "dask" in options else JoinKind)
    for number, (tables, how) in enumerate(zip(every, hows, strict=False)):
        check_written(tmp_path / str(number), scheduler_file, tables, how, *options)
