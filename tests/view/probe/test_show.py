"""Tables of network measurements: the right numbers in the right columns, and what is wrong is said."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from merge_bench.config.ucx_releases import PERFTEST_OVERSTATES
from merge_bench.probe.shared.stored_rows import sorted_campaign_rows
from merge_bench.probe.view.show import print_row_tables
from merge_bench.records.probe_rows import ProbeRow
from merge_bench.records.reader import read_campaign
from tests.probe.samples import collective, latency, ping_pong, published, rate, write_campaign

RECORDED_MPI = Path(__file__).parents[2] / "data" / "campaigns" / "mpi"


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


def piped(rows: Sequence[ProbeRow], **options: Any) -> str:
    file = io.StringIO()
    print_row_tables(rows, file=file, **options)
    return file.getvalue()


def drawn(rows: Sequence[ProbeRow], width: int, **options: Any) -> str:
    file = Terminal()
    print_row_tables(rows, file=file, width=width, **options)
    return re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())


def table(text: str, number: int = 0) -> dict[str, list[str]]:
    """The columns of one table of a pipe by heading; headings that stand there again get a number."""
    lines = text.splitlines()
    starts = [at for at, line in enumerate(lines) if re.match(r"\s*(Size \(|Count|Pair)", line)]
    heads = re.split(r"\s{2,}", lines[starts[number]].strip())
    rows = []
    for line in lines[starts[number] + 1 :]:
        cells = re.split(r"\s{2,}", line.strip())
        if len(cells) < len(heads) or not re.match(r"\d|rank", cells[0]):
            break
        rows.append(cells)
    names = [head if heads.index(head) == at else f"{head} #{at}" for at, head in enumerate(heads)]
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


@pytest.mark.parametrize(
    ("test", "method", "marked"),
    [
        ("tag_bw", "ucx_perftest of UCX 1.13.1 (system), window 32, median of 3 runs", True),
        ("bandwidth", "ucx_perftest of UCX 1.13.1", True),
        ("tag_lat", "ucx_perftest of UCX 1.13.1 (system), half the round trip", False),
        ("tag_bw", "ucx_perftest of UCX 1.19.0 (wheel), window 32", False),
        ("tag_bw", "ucx_perftest of UCX unknown (system), window 32", False),
    ],
)
def test_a_bandwidth_of_an_old_perftest_is_marked(tmp_path: Path, test: str, method: str, *, marked: bool) -> None:
    folder = write_campaign(tmp_path, ("default",), micros=(2.0,), test=test, method=method)
    rows = sorted_campaign_rows(read_campaign(folder))
    assert [row.note == PERFTEST_OVERSTATES for row in rows] == [marked]
    assert ("its bandwidth is too high" in " ".join(piped(rows).split())) is marked


def headings(text: str) -> list[str]:
    """The first line of each block but that of the conclusions, which are sentences."""
    firsts = [block.splitlines()[0] for block in text.strip().split("\n\n")]
    return firsts[firsts[0].endswith(".") :]


def test_the_conclusion_comes_first_with_the_ends_of_both_tests() -> None:
    lanes = ("sysv/memory", "cma/memory")
    rows = [
        latency("a", 8, 2.0, selected=lanes),
        latency("a", 64, 4.0),
        rate("a", 8, 500.0),
        rate("a", 1 << 20, 1500.0),
    ]
    lines = piped(rows).splitlines()
    assert lines[0] == "a, one host: 1,500 MB/s at 1 MiB, 2.00 µs one way at 8 B, over sysv/memory and cma/memory."
    lines = piped([*rows, latency("b", 8, 1.0, selected=("tcp/eth0",), placement="two-hosts")]).splitlines()
    assert lines[1] == "b, two hosts: 1.00 µs one way at 8 B, over tcp/eth0."


def test_other_measurements_published_rows_and_many_pairs_have_no_conclusion() -> None:
    many = [latency("a", 8, 2.0, ranks=(0, rank)) for rank in range(1, 9)]
    for rows in ([ping_pong("std", 1024, 5.0)], [published()], many):
        assert not piped(rows).partition("\n\n")[0].endswith(".")


def test_configs_stand_side_by_side_with_spread_and_speed_up() -> None:
    text = piped(
        [latency("default", 8, 2.0), latency("default", 64, 4.0), latency("tuned", 8, 1.0), latency("tuned", 64, 8.0)],
        baseline="default",
    )
    assert headings(text) == ["tag_lat, one host, rank 0 to 1: Latency, one way (µs)"]
    assert table(text) == {
        "Size (B)": ["8", "64"],
        "default (µs)": ["2.00", "4.00"],
        "min–max (µs)": ["1.80–2.20", "3.60–4.40"],
        "tuned (µs)": ["1.00", "8.00"],
        "min–max (µs) #4": ["0.900–1.10", "7.20–8.80"],
        "Speed-up over default": ["2.00", "0.500"],
    }


def test_measurements_of_one_rank_each_are_headed_by_it() -> None:
    text = piped([latency("a", ranks=(0,), hosts=("node0",)), latency("a", micros=4.0, ranks=(1,), hosts=("node0",))])
    assert {name: cells[0] for name, cells in table(text).items() if "rank" in name} == {
        "rank 0 (µs)": "2.00",
        "rank 1 (µs)": "4.00",
    }


def test_more_bandwidth_is_a_speed_up_above_one() -> None:
    text = piped([rate("default", 8, 500.0), rate("tuned", 8, 1500.0)], baseline="default")
    assert headings(text) == ["tag_bw, one host, rank 0 to 1: Bandwidth (MB/s; 1 MB = 10⁶ B, as OSU counts)"]
    assert table(text)["tuned (MB/s)"] == ["1,500"]
    assert table(text)["Speed-up over default"] == ["3.00"]


def test_placements_of_one_config_stand_side_by_side_without_a_speed_up() -> None:
    far = latency(size=8, micros=30.0, placement="two-hosts", ranks=(0, 2), hosts=("node0", "node1"))
    text = piped([latency(size=8), far])
    assert headings(text)[0] == "default, tag_lat: Latency, one way (µs)"
    assert table(text)["one host (µs)"] == ["2.00"]
    assert table(text)["two hosts (µs)"] == ["30.00"]
    assert "Speed-up" not in text
    assert "on node0 and node1" in text


def test_several_configs_get_a_table_for_each_placement() -> None:
    rows = [latency(config, placement=placement) for config in ("a", "b") for placement in ("one-host", "two-hosts")]
    assert headings(piped(rows, baseline="a")) == [
        "tag_lat, one host, rank 0 to 1: Latency, one way (µs)",
        "tag_lat, two hosts, rank 0 to 1: Latency, one way (µs)",
    ]


def test_one_launch_has_no_range() -> None:
    text = piped([latency(launches=1)])
    assert list(table(text)) == ["Size (B)", "default (µs)"]
    assert "default: one launch; ucx_perftest; on node0" in text


def test_a_size_that_one_config_lacks_is_a_dash() -> None:
    text = piped([latency("a", 8), latency("a", 16), latency("b", 8)], baseline="a")
    assert table(text)["b (µs)"] == ["2.00", "-"]
    assert table(text)["Speed-up over a"] == ["1.00", "-"]


def test_what_was_asked_for_selected_and_used_stands_below() -> None:
    text = piped([latency(size=8), latency(size=64), latency(size=8192, protocol="rendezvous")])
    assert text.splitlines()[-4:] == [
        "default: medians over 3 launches; ucx_perftest; on node0",
        "  requested: UCX_TLS=sm",
        "  selected: sysv/memory",
        "  protocols: 8 B to 64 B eager; 8 KiB rendezvous",
    ]


def test_a_row_on_other_transports_is_marked_and_explained() -> None:
    other = latency(size=64, selected=("tcp/lo",), as_requested=False)
    text = piped([latency(size=8), other])
    assert re.search(r"^\s*64  .*!$", text, re.M)
    assert not re.search(r"^\s*8  .*!", text, re.M)
    assert "  ! 64 B: UCX selected sysv/memory, tcp/lo although UCX_TLS=sm was requested" in text


def test_nothing_known_is_said_as_such() -> None:
    text = piped([latency(selected=(), protocol=None, as_requested=None)])
    assert "  selected: not known\n  protocols: not known" in text
    assert "unknown whether the requested transports were used" in text
    assert "unknown whether" not in piped([latency(requested={}, as_requested=None)])


def test_a_published_row_joins_the_table_of_its_test_with_its_source_and_note() -> None:
    text = piped([latency(), published(note="a doubt"), published("elsewhere", placement="two-hosts")])
    first, second = headings(text)
    assert first.startswith("tag_lat, one host, rank 0 to 1")
    assert "elsewhere, tag_lat, two hosts" in second
    assert table(text)["their cluster (published) (µs)"] == ["4.00"]
    assert "their cluster (published): a report; ucx_perftest\n  * a doubt" in text


def test_a_published_row_is_never_held_against_the_baseline() -> None:
    text = piped([latency("a"), latency("b"), published()], baseline="a")
    assert len([head for head in table(text) if head.startswith("Speed-up")]) == 1


def test_a_ping_pong_has_time_and_throughput_of_both_sends_in_kib_and_its_delay_in_bytes() -> None:
    rows = [
        ping_pong("std", 1, 0.5),
        ping_pong("buff", 1, 2.0),
        ping_pong("std", 2048, 4.0),
        ping_pong("buff", 2048, 8.0),
    ]
    text = piped(rows)
    assert table(text)["Size (B)"] == ["1"]
    big = table(text, 1)
    assert big["Size (KiB)"] == ["2"]
    assert (big["std (µs)"], big["std (MB/s)"]) == (["4.00"], ["512.00"])
    assert (big["buff (µs)"], big["buff (MB/s)"]) == (["8.00"], ["256.00"])


def test_a_test_without_rows_at_these_sizes_has_no_columns() -> None:
    text = piped(sorted_campaign_rows(read_campaign(RECORDED_MPI)))
    assert list(table(text)) == ["Size (B)", "std-delay (µs)", "buff-delay (µs)"]
    assert list(table(text, 1)) == ["Size (KiB)", "std (µs)", "std (MB/s)", "buff (µs)", "buff (MB/s)"]


def test_a_speed_up_stands_beside_the_time_that_it_belongs_to() -> None:
    rows = [row for row in sorted_campaign_rows(read_campaign(RECORDED_MPI)) if row.test == "std"]
    text = piped([*rows, *(replace(row, config="other") for row in rows)], baseline="default")
    columns = ["default (µs)", "default (MB/s)", "other (µs)", "Speed-up over default", "other (MB/s)"]
    assert list(table(text)) == ["Size (KiB)", *columns]


def test_many_sizes_are_thinned_on_a_terminal_and_whole_in_a_pipe() -> None:
    rows = [ping_pong("std", 1024 * size, 4.0) for size in range(1, 1001)]
    assert len(table(piped(rows))["Size (KiB)"]) == 1000
    text = drawn(rows, 120)
    sizes = [
        int(line.split()[0].replace(",", "")) for line in text.splitlines() if re.match(r"\s*[\d,]+\s+4\.00", line)
    ]
    assert (len(sizes), sizes[0], sizes[-1]) == (40, 1, 1000)
    assert "40 of 1000 sizes" in text


def test_reduce_scatter_is_told_as_by_its_perftest_with_its_formula_in_the_heading() -> None:
    text = piped([collective("mpi", 1024, 2.0), collective("reduces", 1024, 4.0, wrong=3)])
    heading = next(line for line in text.splitlines() if line.startswith("reduce-scatter, "))
    assert heading.endswith(
        ": mean time t (µs), bus bandwidth (S ÷ t) · (N − 1) ÷ N (GB/s; 1 GB = 10⁹ B), "
        "S: bytes of the whole source vector of each of N ranks"
    )
    assert table(text) == {
        "Count": ["1,024"],
        "Size of whole vector (B)": ["4,096"],
        "Time avg (µs)": ["2.00"],
        "min (µs)": ["1.00"],
        "max (µs)": ["4.00"],
        "Bus bandwidth avg (GB/s)": ["1.54"],  # 4096 B / 2 µs · 3/4
        "max (GB/s)": ["3.07"],
        "min (GB/s)": ["0.768"],
        "Wrong elements": ["0"],
    }
    second = table(text, 1)
    assert second["Speed-up over mpi"] == ["0.500"]
    assert list(second).index("Speed-up over mpi") == list(second).index("max (µs)") + 1  # it is a ratio of times
    assert "WRONG RESULT" in text


@pytest.mark.parametrize(("width", "parts"), [(80, 4), (120, 2)])
def test_a_collective_fits_the_terminal(width: int, parts: int) -> None:
    rows = [collective(test, count, 2.0) for test in ("mpi", "reduces") for count in (1024, 1 << 28)]
    lines = drawn(rows, width).splitlines()
    assert max(map(len, lines)) <= width
    of_large = [line for line in lines if line.startswith("268,435,456")]
    assert len(of_large) == parts  # of two tests
    assert all("1,073,741,824" in line for line in of_large)


def test_many_pairs_are_rows_at_a_few_sizes() -> None:
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    rows = [latency(size=size, micros=a + b, ranks=(a, b)) for a, b in pairs for size in (8, 16, 32, 64, 128)]
    found = table(piped(rows))
    assert found["Pair"] == [f"rank {a} to {b}" for a, b in pairs]
    assert [head for head in found if "(µs)" in head] == ["8 B (µs)", "16 B (µs)", "64 B (µs)", "128 B (µs)"]
    assert found["8 B (µs)"] == ["1.00", "2.00", "3.00", "3.00", "4.00", "5.00"]


@pytest.mark.parametrize("width", [60, 100])
def test_a_narrow_terminal_gets_more_tables_and_no_broken_cell(width: int) -> None:
    rows = [latency(config, 1048576, 1234.5) for config in ("base", "first", "second", "third")]
    text = drawn(rows, width, baseline="base")
    cells = re.findall(r"^1,048,576(?:\s+1,234\s+1,111–1,358(?:\s+1\.00)?)+$", text, re.M)
    assert len(cells) == text.count("1,048,576") > 1
    assert text.count("1,111–1,358") == (6 if width == 60 else 5)  # the baseline is in each table


def test_names_are_data_and_cannot_steer_the_terminal() -> None:
    text = drawn([latency("a\x1b[2Jb", note="[bold]x\x1b]0;t\x07")], 100)
    assert "\x1b" not in text
    assert "[bold]x" in text
