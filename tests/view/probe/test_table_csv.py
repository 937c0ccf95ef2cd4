"""The CSV of network measurements."""

from __future__ import annotations

import csv
import shlex
from pathlib import Path

import pytest
from msgspec import to_builtins

from merge_bench.config.files import check_writable, replacing
from merge_bench.probe.view import COLUMNS, write_rows_csv
from tests.probe.samples import EVIL, collective, latency, published

DOCS = Path(__file__).parents[3] / "docs" / "probe.md"


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_a_row_holds_every_value_in_si_units(tmp_path: Path) -> None:
    write_rows_csv([collective("mpi", 1024, 2.0)], tmp_path / "rows.csv")
    (row,) = read(tmp_path / "rows.csv")
    assert tuple(row) == COLUMNS
    assert row["size_bytes"] == "4096"
    assert row["count_elements"] == "1024"
    assert float(row["seconds"]) == pytest.approx(2e-6)
    assert float(row["seconds_min_of_launches"]) == pytest.approx(1.8e-6)
    assert float(row["seconds_max_of_ranks"]) == pytest.approx(4e-6)
    assert float(row["bandwidth_bytes_per_second"]) == pytest.approx(4096 / 2e-6 * 3 / 4)
    assert float(row["bandwidth_max_of_ranks_bytes_per_second"]) == pytest.approx(4096 / 2e-6 * 3 / 2)
    assert (row["ranks"], row["as_requested"], row["wrong_elements"]) == ("0 1 2 3", "true", "0")


def test_every_value_of_the_json_row_has_a_column(tmp_path: Path) -> None:
    known = {
        "seconds_mean": 1e-6,
        "bus_bandwidth": 1e9,
        "link_limit": 2e9,
        "link_limit_from": "ring",
        "link_share": 0.5,
    }
    row = collective("mpi", 1024, 2.0, messages_per_second=7.0, source="a report", note="a note", **known)
    write_rows_csv([row], tmp_path / "rows.csv")
    (cells,) = read(tmp_path / "rows.csv")
    flat = [
        part
        for name, value in to_builtins(row).items()
        for part in (value if name.endswith(("_range", "_over_ranks")) else [value])
    ]
    assert len(cells) == len(COLUMNS) == len(flat)
    assert all(cells.values())


def test_unknown_is_empty_and_not_zero(tmp_path: Path) -> None:
    write_rows_csv([published()], tmp_path / "rows.csv")
    (row,) = read(tmp_path / "rows.csv")
    unknown = ("as_requested", "bandwidth_bytes_per_second", "wrong_elements", "protocol", "ranks")
    assert [row[name] for name in unknown] == [""] * len(unknown)


def test_names_and_settings_survive_whatever_they_hold(tmp_path: Path) -> None:
    row = latency(EVIL + ',"\n', requested={"UCX_TLS": "rc,sm", "UCX_X": "a b;c"})
    write_rows_csv([row], tmp_path / "rows.csv")
    (found,) = read(tmp_path / "rows.csv")
    assert found["config"] == row.config
    assert shlex.split(found["requested_transports"]) == ["UCX_TLS=rc,sm", "UCX_X=a b;c"]


def test_the_page_documents_every_column() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert [name for name in COLUMNS if f"`{name}`" not in text] == []


def test_what_was_there_stays_when_writing_fails(tmp_path: Path) -> None:
    target = tmp_path / "rows.csv"
    target.write_text("before")
    with pytest.raises(OSError, match="full"):
        _fill_the_disk(target)
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


def _fill_the_disk(target: Path) -> None:
    with replacing(target) as stream:
        stream.write(b"half")
        raise OSError("full")


def test_a_link_is_replaced_and_a_device_stays(tmp_path: Path) -> None:
    link, real = tmp_path / "link.csv", tmp_path / "real.csv"
    real.write_text("another file")
    link.symlink_to(real)
    check_writable("--csv", link)
    write_rows_csv([latency()], link)
    assert real.read_text() == "another file"
    assert not link.is_symlink()
    assert len(read(link)) == 1
    check_writable("--csv", Path("/dev/null"))
    write_rows_csv([latency()], Path("/dev/null"))
    assert Path("/dev/null").is_char_device()
