"""The ping-pong's CSV files read again: those of this program and of the one that they come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from merge_bench.analysis.published import network_rows
from merge_bench.cli import cli
from merge_bench.errors import UsageError
from merge_bench.probe.shared import stored_rows
from merge_bench.probe.view.show import print_row_tables
from tests.probe.test_mpi_rules import line_of

HEADING = "type,msgsize,time,throughput\n"
FIRST = "std,1024,44984.188000,1092.650600\n"
STD = HEADING + FIRST + "std,65536,426337.406000,3817.140906\n"


def written(tmp_path: Path, text: str, name: str = "throughput-std-two-hosts.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode("latin-1"))
    return path


def test_time_one_way_and_rate_follow_from_a_row(tmp_path: Path) -> None:
    one, two = stored_rows.read_ping_pong_csv(written(tmp_path, STD))
    assert (one.test, one.size, one.placement, one.config) == ("std", 1024, "two-hosts", "throughput-std-two-hosts")
    assert one.seconds is not None
    assert one.bandwidth is not None
    assert one.seconds.median == pytest.approx(44984.188e-6 / 6000)  # 3000 there and back
    assert one.bandwidth.median == pytest.approx(1092.6506e6 / 8)
    assert two.size == 65536


def test_what_is_written_is_read(tmp_path: Path) -> None:
    for size, loops, elapsed in ((1, 3000, 0.0021), (1000, 20, 1.5), (1_024_000, 57, 0.09871234)):
        stored_rows.append_ping_pong_csv_row(tmp_path, "one-host", line_of("buff", size, loops, elapsed))
    stored_rows.append_ping_pong_csv_row(tmp_path, "one-host", line_of("buff-delay", 1, 10_000, 0.137))
    files = sorted(tmp_path.glob("*.csv"))
    delay, *rows = [row for file in files for row in stored_rows.read_ping_pong_csv(file)]
    assert [row.size for row in rows] == [1, 1000, 1_024_000]
    assert [row.seconds.median for row in rows if row.seconds] == pytest.approx(
        [0.0021 / 6000, 1.5 / 40, 0.09871234 / 114]
    )
    assert (delay.test, delay.size, delay.bandwidth) == ("buff-delay", 1, None)
    assert delay.seconds is not None
    assert delay.seconds.median == pytest.approx(6.85e-6)


def test_the_published_delays_in_the_program_s_own_files(tmp_path: Path) -> None:
    published = {(row.test, row.placement): row.seconds for row in network_rows("krakow-mpi-delay")}
    assert len(published) == 4
    for words, place in (("single-node", "one-host"), ("two-nodes", "two-hosts")):
        values = {kind: published[f"{kind}-delay", place] for kind in ("std", "buff")}
        lines = [f"{kind},{value.median * 1e6:.6f}\n" for kind, value in values.items() if value]
        rows = stored_rows.read_ping_pong_csv(
            written(tmp_path, "type,time\n" + "".join(lines), f"delay-{words}-all.csv")
        )
        assert [(row.test, row.placement) for row in rows] == [("std-delay", place), ("buff-delay", place)]
        assert [row.seconds.median for row in rows if row.seconds] == pytest.approx(
            [value.median for value in values.values() if value]
        )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "its first line is neither"),
        ("type,size\nstd,1\n", "its first line is neither"),
        (HEADING, "it has no row"),
        (HEADING[:-1], "truncated"),
        (STD[:-1], "its last line has no newline"),
        (STD[:-4], "its last line has no newline"),
        (STD[:-4] + "\n", ":3: expected a row with the columns"),
        (STD + "std,131072\n", ":4: expected a row with the columns"),
        (STD + "\n", ":4: expected a row with the columns"),
        (STD + HEADING, ":4: expected a row with the columns"),
        (STD + FIRST, ":4: there is already a row of std with messages of 1024 bytes"),
        (STD.replace("44984", "44994"), ":2: size, throughput and time of this row contradict"),
        (STD.replace("3817.14", "3871.14"), ":3: size, throughput and time of this row contradict"),
        (STD.replace("65536", "65563"), ":3: size, throughput and time of this row contradict"),
        (STD.replace("44984.188000", "-4984.188000"), ":2: expected a row with the columns"),
        (STD.replace("44984.188000", "0.000000"), ":2: expected a row with the columns"),
        (STD.replace("44984.188000", "inf"), ":2: expected a row with the columns"),
        (STD.replace("std,1024", "rma,1024"), ":2: expected a row with the columns"),
        (STD.replace("\n", "\r\n"), "its first line is neither"),
        (STD + "\xff", "it is not text"),
        ("type,time\nstd,6.871503\nstd,6.9\n", ":3: expected a row with the columns"),
        ("type,time\nstd,0.000000\n", ":2: expected a row with the columns"),
        ("type,time\nstd,6.871503\nstd,6.871503\n", ":3: there is already a row of std-delay"),
    ],
)
def test_what_is_damaged_is_an_error_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        stored_rows.read_ping_pong_csv(written(tmp_path, text))
    assert words in str(error.value)


def test_a_line_cut_anywhere_is_never_a_number(tmp_path: Path) -> None:
    for length in range(len(HEADING) + len(FIRST) + 1, len(STD) - 1):
        for end in ("", "\n"):
            with pytest.raises(UsageError):
                stored_rows.read_ping_pong_csv(written(tmp_path, STD[:length] + end))


@pytest.mark.parametrize("name", ["throughput-std.csv", "one-host-and-two-hosts.csv"])
def test_a_name_that_tells_no_place_or_two_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"must contain exactly one of .*; rename the file"):
        stored_rows.read_ping_pong_csv(written(tmp_path, STD, name))


def test_show_takes_such_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, STD)
    done = CliRunner().invoke(cli, ["probe", "show", str(file), "--json"])
    assert done.exit_code == 0
    rows = json.loads(done.stdout)["rows"]
    assert [(row["size"], row["source"]) for row in rows] == [(1024, f"file {file.name}"), (65536, f"file {file.name}")]
    print_row_tables(stored_rows.read_ping_pong_csv(file))
    text = capsys.readouterr().out
    assert "throughput-std-two-hosts (file)" in text
    assert f"file {file.name}; ping-pong over MPI" in text
    refused = CliRunner().invoke(cli, ["probe", "show", str(tmp_path / "one-host.csv")])
    assert (refused.exit_code, "cannot read" in refused.stderr) == (2, True)
