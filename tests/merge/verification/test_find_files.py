"""The files of a table as the proof finds them, rule by rule."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from merge_bench.errors import RunFailed, UsageError
from merge_bench.merge.verification.find_files import find_table_files

DATA = b"PAR1 rows and a footer PAR1"


def make(folder: Path, *names: str, data: bytes = DATA) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def found(given: object, folder: Path) -> list[str]:
    return [os.path.relpath(file.path, folder) for file in find_table_files(str(given))]


def test_a_folder_is_read_with_all_that_is_below_it_whatever_its_name(tmp_path: Path) -> None:
    names = ["000000_0", "a.PARQUET", "b.parq", "c.parquet.snappy", "d.parquet/part-0.parquet", "e/f/g.pq"]
    assert found(make(tmp_path, *names), tmp_path) == names


def test_hidden_names_and_leftovers_are_left_out(tmp_path: Path) -> None:
    make(tmp_path, "part-0", ".part-1.parquet", "_part-2.parquet", "_temporary/0/part-3.parquet", "_x=1/part-4")
    make(tmp_path, "_SUCCESS", ".part-0.crc", data=b"")
    make(tmp_path, "part-0.crc", "notes.TXT", "README", "run.yml", data=b"no rows")
    assert found(tmp_path, tmp_path) == ["part-0"]


def test_a_pattern_matches_component_by_component(tmp_path: Path) -> None:
    make(tmp_path, "a/x.parquet", "a/y.parq", "b.parquet/part-0", "b.parquet/_part-1", "c/d/z.parquet", "_h.parquet")
    assert found(tmp_path / "*.parquet", tmp_path) == ["b.parquet/part-0"]
    assert found(tmp_path / "*" / "*.parquet", tmp_path) == ["a/x.parquet"]
    assert found(tmp_path / "**" / "*.parquet", tmp_path) == ["a/x.parquet", "b.parquet/part-0", "c/d/z.parquet"]
    assert found(tmp_path / "_*.parquet", tmp_path) == ["_h.parquet"]
    assert found(tmp_path / "[ac]", tmp_path) == ["a/x.parquet", "a/y.parq", "c/d/z.parquet"]
    assert found(tmp_path / "_h.parquet", tmp_path) == ["_h.parquet"]


def test_what_exists_as_it_stands_is_no_pattern(tmp_path: Path) -> None:
    make(tmp_path, "run[1]/a", "run1/b", "x'%y*/c")
    assert found(tmp_path / "run[1]", tmp_path) == ["run[1]/a"]
    assert found(tmp_path / "x'%y*", tmp_path) == ["x'%y*/c"]


def test_addresses(tmp_path: Path) -> None:
    make(tmp_path, "a b/part-0")
    assert found(f"file://{tmp_path}/a%20b", tmp_path) == ["a b/part-0"]
    assert found(f"file://localhost{tmp_path}/a%20*", tmp_path) == ["a b/part-0"]
    with pytest.raises(UsageError):
        find_table_files("s3://bucket/table")


def test_partitions_are_those_below_the_table(tmp_path: Path) -> None:
    make(tmp_path, "y=1/r=%C3%BC/a", "y=1/r=__HIVE_DEFAULT_PARTITION__/b", "y=2/c=d=e/=/f", "g")
    of = {os.path.relpath(file.path, tmp_path): file.partitions for file in find_table_files(str(tmp_path))}
    assert of == {
        "g": (),
        "y=1/r=%C3%BC/a": (("y", "1"), ("r", "ü")),
        "y=1/r=__HIVE_DEFAULT_PARTITION__/b": (("y", "1"), ("r", None)),
        "y=2/c=d=e/=/f": (("y", "2"), ("c", "d=e")),
    }
    assert {file.partitions for file in find_table_files(str(tmp_path / "y=2"))} == {(("c", "d=e"),)}
    assert {file.partitions for file in find_table_files(str(tmp_path / "y=*" / "r=*"))} == {
        (("y", "1"), ("r", "ü")),
        (("y", "1"), ("r", None)),
    }
    assert {file.partitions for file in find_table_files(str(tmp_path / "y=1" / "r=*"))} == {
        (("r", "ü"),),
        (("r", None),),
    }


@pytest.mark.parametrize("name", ["r=%E9", "%FF=1"])
def test_partitions_that_are_no_text_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="not UTF-8"):
        find_table_files(str(make(tmp_path, f"{name}/a")))


def test_links_are_followed(tmp_path: Path) -> None:
    make(tmp_path, "blobs/aa", "other/part-1")
    table = make(tmp_path / "table", "part-0").resolve()
    (table / "linked").symlink_to("../blobs/aa")
    (table / "folder").symlink_to("../other")
    assert found(table, table) == ["folder/part-1", "linked", "part-0"]


def dangling(folder: Path) -> None:
    (folder / "part-1").symlink_to("nothing")


def itself(folder: Path) -> None:
    (folder / "part-1").symlink_to("part-1")


def circle(folder: Path) -> None:
    (folder / "up").symlink_to("..")


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "part-1.parquet")


def delta(folder: Path) -> None:
    make(folder, "_delta_log/0.json", data=b"{}")


def hudi(folder: Path) -> None:
    make(folder, ".hoodie/hoodie.properties", data=b"")


def iceberg(folder: Path) -> None:
    make(folder, "metadata/v1.metadata.json", data=b"{}")


def above(folder: Path) -> None:
    make(folder.parent, "_delta_log/0.json", data=b"{}")


@pytest.mark.parametrize(
    "spoil",
    [
        dangling,
        itself,
        circle,
        pipe,
        delta,
        hudi,
        iceberg,
        above,
        lambda folder: make(folder, "part-1", data=b""),
        lambda folder: make(folder, "part-1", data=b"PAR1 cut"),
        lambda folder: make(folder, "part-1.csv", data=b"a,b"),
        lambda folder: make(folder, "part-1", data=b"version https://git-lfs.github.com/spec/v1"),
        lambda folder: make(folder, "a=1/a=2/part-1"),
        lambda folder: make(folder, "part-1", data=DATA[:-4] + b"PARE"),
    ],
)
def test_what_cannot_be_read_whole_is_refused(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    folder = make(tmp_path / "table", "part-0")
    spoil(folder)
    for given in (folder, folder / "*"):
        with pytest.raises(UsageError, match=r"^[^\n]*$"):
            find_table_files(str(given))


def test_a_file_without_its_beginning_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="part-0 is damaged"):
        find_table_files(str(make(tmp_path, "part-0", data=b"\0" * 4 + DATA[4:])))


@pytest.mark.parametrize("given", ["nothing", "nothing/*.parquet", "table/*.orc", "empty", "table/part-0/x"])
def test_a_table_without_files(tmp_path: Path, given: str) -> None:
    make(tmp_path / "table", "part-0")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"^[^\n]*$"):
        find_table_files(str(tmp_path / given))


def test_the_names_of_files_may_be_bytes_that_are_no_text(tmp_path: Path) -> None:
    make(tmp_path, os.fsdecode(b"caf\xe9=1/part-\xff"))
    assert [os.fsencode(file.path)[-6:] for file in find_table_files(str(tmp_path))] == [b"part-\xff"]
