"""Which files a named table consists of."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from merge_bench.errors import RunFailed, UsageError
from merge_bench.merge.workload.parquet import HIDDEN, NO_DATA, SkippedFiles, find_table_files
from tests.merge.workload.parquet_samples import write


def part(path: Path, value: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write(path, pa.table({"id": [value]}))


def names(given: Path | str, folder: Path) -> list[str]:
    """The files found, relative to `folder`."""
    return [os.path.relpath(file.path, folder) for file in find_table_files(str(given)).files]


def refusal(given: Path | str) -> str:
    with pytest.raises(UsageError) as caught:
        find_table_files(str(given))
    return str(caught.value)


def test_a_folder_is_read_whole_and_what_is_hidden_is_left_out(tmp_path: Path) -> None:
    data = [
        "a.parquet",
        "b.PARQUET",
        "c.parq",
        "d.parquet.snappy",
        "e",
        "sub/f.pq",
        "2026.parquet/part-0.parquet",
        "g.md",
    ]
    hidden = [".h.parquet", "_h.parquet", "2026.parquet/_SUCCESS", "_temporary/x.parquet", ".dir/y.parquet"]
    for name in (*data, *hidden):
        part(tmp_path / name)
    (tmp_path / "README.md").write_text("# what this is")
    (tmp_path / "part.crc").write_bytes(b"crc\0")
    assert names(tmp_path, tmp_path) == sorted(data)
    assert sorted(names(tmp_path, tmp_path)) == sorted(
        os.path.relpath(file, tmp_path)
        for file in ds.dataset(str(tmp_path), format="parquet", exclude_invalid_files=True).files
    )
    assert find_table_files(str(tmp_path)).left_out == (
        SkippedFiles(HIDDEN, 5, (".dir", ".h.parquet", "2026.parquet/_SUCCESS", "_h.parquet", "_temporary")),
        SkippedFiles(NO_DATA, 2, ("README.md", "part.crc")),
    )


def test_only_the_first_names_of_what_was_left_out_are_kept(tmp_path: Path) -> None:
    part(tmp_path / "a")
    for number in range(30):
        (tmp_path / f"_{number:02}").touch()
    (found,) = find_table_files(str(tmp_path)).left_out
    assert (found.count, len(found.names)) == (30, 5)
    assert str(found) == "_00, _01, _02, _03, _04 and 25 more (hidden)"


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("*.parquet", ["2026.parquet/p", "a.parquet", "b.parquet"]),
        ("[ab].parquet", ["a.parquet", "b.parquet"]),
        ("?.parquet", ["a.parquet", "b.parquet"]),
        ("**/*.parquet", ["2026.parquet/p", "a.parquet", "b.parquet", "k=1/m=x/c.parquet", "k=2/m=y/c.parquet"]),
        ("*/*/*.parquet", ["k=1/m=x/c.parquet", "k=2/m=y/c.parquet"]),
        ("k=*", ["k=1/m=x/c.parquet", "k=2/m=y/c.parquet"]),
        ("**", ["2026.parquet/p", "a.parquet", "b.parquet", "k=1/m=x/c.parquet", "k=2/m=y/c.parquet"]),
        ("_*.parquet", ["_h.parquet"]),
        ("a.parquet", ["a.parquet"]),
        ("_h.parquet", ["_h.parquet"]),
        ("../*/a.parquet", ["a.parquet"]),
    ],
)
def test_patterns(tmp_path: Path, pattern: str, wanted: list[str]) -> None:
    folder = tmp_path / "t"
    for name in ("a.parquet", "b.parquet", "_h.parquet", "2026.parquet/p", "k=1/m=x/c.parquet", "k=2/m=y/c.parquet"):
        part(folder / name)
    assert [
        os.path.relpath(os.path.realpath(file.path), folder) for file in find_table_files(f"{folder}/{pattern}").files
    ] == wanted


def test_the_beginning_that_exists_is_no_pattern(tmp_path: Path) -> None:
    part(tmp_path / "run[1]" / "p[2].parquet")
    part(tmp_path / "run1" / "p2.parquet")
    for given in ("run[1]", "run[1]/*.parquet", "run[1]/p[2].parquet"):
        assert names(tmp_path / given, tmp_path) == ["run[1]/p[2].parquet"]
    assert names(tmp_path / "run[12]", tmp_path) == ["run1/p2.parquet"]


def test_partitions_are_the_folders_below_the_beginning_that_exists(tmp_path: Path) -> None:
    part(tmp_path / "t" / "region=eu" / "day=2026-01-01" / "p")
    part(tmp_path / "t" / "region=__HIVE_DEFAULT_PARTITION__" / "day=a%2Fb%20c=d" / "p")
    part(tmp_path / "t" / "=x" / "p")
    wanted = [(), (("region", None), ("day", "a/b c=d")), (("region", "eu"), ("day", "2026-01-01"))]
    assert [file.partitions for file in find_table_files(str(tmp_path / "t")).files] == wanted
    assert [file.partitions for file in find_table_files(f"{tmp_path}/t/*/**/p").files] == wanted
    assert find_table_files(f"{tmp_path}/t/region=eu/*/p").files[0].partitions == (("day", "2026-01-01"),)
    assert find_table_files(f"{tmp_path}/t/region=eu/day=2026-01-01/p").files[0].partitions == ()
    part(tmp_path / "t" / "region=eu" / "region=us" / "p")
    assert "two partitions called 'region'" in refusal(tmp_path / "t")


@pytest.mark.parametrize("name", ["k=%E9/p", "%E9=1/p", os.fsdecode(b"k=caf\xe9/p"), os.fsdecode(b"caf\xe9.parquet")])
def test_names_that_are_no_text_are_refused(tmp_path: Path, name: str) -> None:
    """Two of them would be one value, with a mark in place of what is no text."""
    path = part(tmp_path / "a.parquet")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    path.rename(tmp_path / name)
    assert "is not UTF-8" in refusal(tmp_path)


def test_addresses(tmp_path: Path) -> None:
    part(tmp_path / "100%" / "p q.parquet")
    for given in (f"file://{tmp_path}/100%25/p%20q.parquet", f"file://localhost{tmp_path}/100%/*.parquet"):
        assert names(given, tmp_path) == ["100%/p q.parquet"]
    for given in ("s3://bucket/x.parquet", "file://elsewhere/x", "hdfs://host:9/x"):
        assert refusal(given).startswith(f"{given} is not on a file system of this host")


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = part(tmp_path / "a.parquet")
    monkeypatch.chdir(tmp_path)
    assert [file.path for file in find_table_files("a.parquet").files] == [str(path)]


def test_links_are_followed(tmp_path: Path) -> None:
    part(tmp_path / "blobs" / "aa")
    part(tmp_path / "more" / "p.parquet")
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "a.parquet").symlink_to("../blobs/aa")
    (folder / "sub").symlink_to("../more")
    assert names(folder, folder) == ["a.parquet", "sub/p.parquet"]


def _socket(path: Path) -> None:
    os.chdir(path.parent)  # the address of a socket is short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


BAD: dict[str, Callable[[Path], object]] = {
    "dangling": lambda path: path.symlink_to("nothing"),
    "itself": lambda path: path.symlink_to(path.name),
    "circle": lambda path: path.symlink_to(path.parent),
    "pipe": os.mkfifo,
    "socket": _socket,
    "empty": lambda path: path.touch(),
    "lfs": lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
    "csv": lambda path: path.write_text("id\n1\n"),
    "cut": lambda path: path.write_bytes((path.parent / "a.parquet").read_bytes()[:-9]),
    "encrypted": lambda path: path.write_bytes(b"PARE" + bytes(40) + b"PARE"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("given", ["t", "t/*.parquet", "t/part-1.parquet"])
def test_what_cannot_be_read_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, given: str
) -> None:
    monkeypatch.chdir(tmp_path)
    part(tmp_path / "t" / "a.parquet")
    BAD[kind](tmp_path / "t" / "part-1.parquet")
    if kind == "circle" and given == "t/part-1.parquet":
        given += "/part-1.parquet"
    assert str(tmp_path / "t" / "part-1.parquet") in refusal(tmp_path / given)


def test_a_file_that_ends_like_parquet_and_does_not_begin_so_is_damaged(tmp_path: Path) -> None:
    path = part(tmp_path / "a.parquet")
    path.write_bytes(b"\0\0\0\0" + path.read_bytes()[4:])
    for given in (path, tmp_path):
        with pytest.raises(RunFailed, match=rf"^{path} is damaged"):
            find_table_files(str(given))


@pytest.mark.parametrize(
    ("log", "name"),
    [("_delta_log/0.json", "Delta"), (".hoodie/hoodie.properties", "Hudi"), ("metadata/v1.metadata.json", "Iceberg")],
)
def test_tables_with_a_log_are_refused_by_name(tmp_path: Path, log: str, name: str) -> None:
    table = tmp_path / "orders"
    file = part(table / "data" / "region=eu" / "p.parquet")
    (table / log).parent.mkdir()
    (table / log).write_text("{}")
    for given in ("orders", "orders/data", "orders/data/region=eu", "orders/data/*/*.parquet", "*"):
        said = refusal(tmp_path / given)
        assert f"a table of {name}" in said
        assert str((table / log).parent) in said
    assert names(file, tmp_path) == ["orders/data/region=eu/p.parquet"]


def test_nothing_there(tmp_path: Path) -> None:
    (tmp_path / "void").mkdir()
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "_x").touch()
    file = part(tmp_path / "f")
    assert refusal(tmp_path / "none.parquet") == f"no such file: {tmp_path / 'none.parquet'}"
    assert refusal(file / "x") == f"no such file: {file / 'x'}"
    assert refusal(tmp_path / "void") == f"folder {tmp_path / 'void'} has no Parquet file"
    assert refusal(tmp_path / "n*.parquet") == f"no file matches {tmp_path / 'n*.parquet'}"
    assert "no Parquet file; left out: _x (hidden)" in refusal(tmp_path / "hidden")
    assert "File name too long" in refusal(tmp_path / ("a" * 300))
    assert refusal("~nosuchuser/x").startswith("~nosuchuser/x: ")
