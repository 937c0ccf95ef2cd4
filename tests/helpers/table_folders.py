"""Pairs of random tables: what the product makes of them, beside `pyarrow.dataset` and DuckDB reading the same folders.

python -m tests.helpers.table_folders --pairs 3000 --seed 1
"""

from __future__ import annotations

import random
import re
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from merge_bench.errors import RunFailed, UsageError
from merge_bench.merge import partition_loops
from merge_bench.merge.engines.base import JoinKind
from merge_bench.merge.frame import Frame
from merge_bench.merge.verification import duckdb_reference
from merge_bench.merge.workload.tables import TableSide, TableSpec, plan_tables
from tests.helpers.table_layouts import KEYS, PARTITIONS, Layout, make_table
from tests.merge.workload.parquet_samples import run_engine

HIDDEN = re.compile("/[._]")
LEFTOVERS = re.compile(r"(\.crc|\.txt|/README)$")


def check_pairs(pairs: Iterable[int], seed: int, folder: Path) -> Counter[str]:
    """How pairs of random tables ended, by outcome: ``equal``, ``refused`` or ``WRONG``, with words of each."""
    found: Counter[str] = Counter()
    for number in pairs:
        rng = random.Random(f"{seed} {number}")
        place = folder / f"pair{number}"
        key = rng.choice(list(KEYS))
        left, right = (make_table(rng, place / (side * rng.randint(1, 3)), key) for side in ("left", "right"))
        try:
            outcome = check_pair(left, right, rng)
        except Exception as error:
            traceback.print_exc()
            outcome = f"WRONG: seed {seed}, pair {number}, {left.program} and {right.program}: {error!r}"
        found[outcome] += 1
        shutil.rmtree(place)
    return found


def check_pair(left: Layout, right: Layout, rng: random.Random) -> str:
    """Plan, read, merge and prove in this process, and compare; in words how it ended."""
    how = rng.choice([JoinKind.INNER, JoinKind.INNER, JoinKind.LEFT, JoinKind.OUTER])
    refused = left.refused or right.refused
    try:
        spec = plan_tables(left.given, right.given, ["k"], ["k"], rng.randint(1, 3), "polars")
        counts = duckdb_reference.count_result_rows(spec, how)
        proved = duckdb_reference.compute_expected_result(spec, how)
        results = run_engine("polars", spec)  # reads every value
    except (UsageError, RunFailed) as refusal:
        words = str(refusal)
        if "\n" in words or not (refused or arrow_refuses(left) or arrow_refuses(right)):
            raise
        return f"refused: {without_names(words)}"
    assert not refused, "a table that cannot be read whole was read"
    tables = [read(layout, side) for layout, side in ((left, spec.left), (right, spec.right))]
    joined = join(spec, tables[0], tables[1], how)
    names = [field.name for field in how.output_fields(spec.left.fields, spec.right.fields, spec.keys)]
    right_answer = joined.num_rows, partition_loops.frame_checksum(Frame.from_arrow(joined), names)
    assert (spec.left.rows, spec.right.rows) == tuple(table.num_rows for table in tables)
    assert counts.rows == joined.num_rows
    assert list(counts.keyless.values()) == [_keyless(table["k"]) for table in tables]
    assert proved == right_answer
    if how is JoinKind.INNER:
        merged = sum(each.num_rows for each in results)
        checksum = sum(duckdb_reference.result_checksum(spec, each) for each in results) % 2**64
        assert (merged, checksum) == right_answer
        assert joined.num_rows == by_duckdb(left, right)
    return f"equal: {how.value}"


def _keyless(keys: pa.ChunkedArray) -> int:
    """Rows whose key is null or NaN."""
    return sum(key is None or key != key for key in keys.to_pylist())


def arrow_refuses(layout: Layout) -> bool:
    """Whether Arrow cannot read a file or bring the parts of a table to one schema, too."""
    try:
        whole(layout)
    except (pa.ArrowException, OSError):
        return True
    return False


def without_names(words: str) -> str:
    """A refusal without paths, names and numbers."""
    return re.sub(r"'[^']*'", "'…'", re.sub(r"(file://)?/[^\s:;,]*", "PATH", re.sub(r"\d[\d,]*", "N", words)))


def read(layout: Layout, side: TableSide) -> pa.Table:
    """The whole table under the merge's types and names."""
    table = whole(layout)
    assert {column.source for column in side.columns} == set(table.column_names)
    arrays = [table[column.source].cast(column.field.type) for column in side.columns]
    return pa.Table.from_arrays(arrays, names=[column.field.name for column in side.columns]).combine_chunks()


def whole(layout: Layout) -> pa.Table:
    """All rows as `pyarrow.dataset` reads them, fragment by fragment."""
    form = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")
    folder, some = str(layout.folder), {"format": form, "exclude_invalid_files": True}
    try:
        dataset = ds.dataset(folder, partitioning="hive", **some)
    except pa.ArrowInvalid:  # it finds no type where all values of a partition are null
        dataset = ds.dataset(folder, partitioning=ds.partitioning(PARTITIONS, flavor="hive"), **some)
    tables = []
    for fragment in dataset.get_fragments():
        table = fragment.to_table(schema=fragment.physical_schema)
        columns = dict(zip(table.column_names, map(plain, table.columns), strict=True))
        for name, value in ds.get_partition_keys(fragment.partition_expression).items():
            kind = dataset.schema.field(name).type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            columns[name] = pa.chunked_array([pa.array([value] * table.num_rows, kind)])
        tables.append(pa.table(columns))
    return pa.concat_tables(tables, promote_options="permissive")


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dictionaries as values, extension types as they are stored."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def join(spec: TableSpec, left: pa.Table, right: pa.Table, how: JoinKind) -> pa.Table:
    """The merge by Python's dictionaries of equal keys."""
    places: dict[Any, list[int]] = {}
    for row, key in enumerate(right["k"].to_pylist()):
        places.setdefault(key, []).append(row)
    pairs: list[tuple[int | None, int | None]] = []
    for row, key in enumerate(left["k"].to_pylist()):
        partners: list[int] = [] if key is None else places.get(key, [])
        pairs += [(row, partner) for partner in partners]
        if not partners and how.keeps_unmatched_left:
            pairs.append((row, None))
    if how.keeps_unmatched_right:
        matched = {partner for _, partner in pairs}
        pairs += [(None, row) for row in range(right.num_rows) if row not in matched]
    ours, theirs = (pa.array([pair[side] for pair in pairs], pa.int64()) for side in (0, 1))
    columns = {}
    for field in how.output_fields(spec.left.fields, spec.right.fields, spec.keys):
        if field.name == "k":
            columns["k"] = pc.coalesce(left["k"].take(ours), right["k"].take(theirs))
        elif field.name in left.column_names:
            columns[field.name] = left[field.name].take(ours)
        else:
            columns[field.name] = right[field.name].take(theirs)
    return pa.table(columns)


def by_duckdb(left: Layout, right: Layout) -> int:
    """Rows of the inner join as DuckDB finds and compares them, with its own reading of partitions and types."""
    with duckdb.connect(config={"threads": 1}) as connection:
        sides = []
        for layout in (left, right):
            files = [str(path) for path in layout.folder.rglob("*") if path.is_file()]
            shown = (file for file in files if not HIDDEN.search(file.removeprefix(str(layout.folder))))
            sides.append([file for file in shown if not LEFTOVERS.search(file)])
        selects = []
        for files in sides:
            source = "read_parquet(?, union_by_name = true)"
            kinds = connection.execute(f"SELECT typeof(k) FROM {source} LIMIT 1", [files]).fetchall()
            key = "encode(k)" if kinds == [("VARCHAR",)] else "k"  # Impala's text is bytes
            floating = kinds in ([("FLOAT",)], [("DOUBLE",)])
            matching = " WHERE k::VARCHAR <> 'nan'" if floating else ""  # isnan trusts statistics
            selects.append(f"SELECT {key} AS k FROM {source}{matching}")
        query = f"SELECT count(*) FROM ({selects[0]}) l JOIN ({selects[1]}) r ON l.k = r.k"
        row = connection.execute(query, sides).fetchone()
        assert row is not None
        return int(row[0])


def summary(found: Counter[str]) -> Iterator[str]:
    """Lines with how often each outcome was."""
    for name, count in found.most_common():
        yield f"{count:6,} {name}"


@click.command()
@click.option("--first", type=int, default=0)
@click.option("--pairs", type=int, default=100)
@click.option("--seed", type=int, default=1)
def main(first: int, pairs: int, seed: int) -> None:
    """Compare random pairs, and print how they ended."""
    duckdb_reference.THREADS = 1  # small tables: what threads hand over to each other takes longer than the work
    with tempfile.TemporaryDirectory() as folder:
        found = check_pairs(range(first, first + pairs), seed, Path(folder))
    for line in summary(found):
        click.echo(line)
    if any(name.startswith("WRONG") for name in found):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
