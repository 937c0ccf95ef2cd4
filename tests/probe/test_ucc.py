"""ucc_perftest's table, trace and command line."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from merge_bench.errors import LaunchFailed, UsageError
from merge_bench.probe import ucc
from tests.probe.ucc_samples import NEWER, SHARP_OFF, SHARP_ON, TRACE

OLD, NEW = (1, 3, 0), (1, 5, 0)


@pytest.mark.parametrize("table", [SHARP_ON, SHARP_OFF], ids=["sharp", "ucp"])
def test_published_tables_are_read_whole(table: str) -> None:
    found = ucc.parse_table(table)
    assert [each.count for each in found] == [16384 << n for n in range(14)]
    # They are of UCC before 1.5 and four ranks: each line's bandwidth is that of four times the printed size.
    assert [ucc.source_count(each, 4, OLD) for each in found] == [65536 << n for n in range(14)]
    for each in found:
        with pytest.raises(ValueError, match="is expected of"):
            ucc.source_count(each, 4, NEW)
        with pytest.raises(ValueError, match="is expected of"):
            ucc.source_count(each, 2, OLD)


def test_times_are_seconds_and_rates_bytes_per_second() -> None:
    first = ucc.parse_table(SHARP_ON)[0]
    assert first.seconds == pytest.approx((9.54e-6, 8.80e-6, 10.84e-6))
    assert first.bandwidth == pytest.approx((20.62e9, 22.33e9, 18.15e9))


def test_newer_tables_are_of_the_source_vector() -> None:
    found = ucc.parse_table(NEWER)
    assert [ucc.source_count(each, 2, NEW) for each in found] == [65536, 131072]
    with pytest.raises(ValueError, match="is expected of"):
        ucc.source_count(found[0], 2, OLD)


def test_a_line_that_was_cut_off_is_an_error() -> None:
    cut = SHARP_ON[: SHARP_ON.index("35.12")]
    with pytest.raises(ValueError, match="1048576 elements is not whole"):
        ucc.parse_table(cut)


@pytest.mark.parametrize("text", ["", "ucc_perftest: error: no such device\n", NEWER[: NEWER.index("Count")]])
def test_output_without_a_table_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="no table"):
        ucc.parse_table(text)


def test_a_size_that_is_not_of_float32_is_an_error() -> None:
    printed = ucc.parse_table(NEWER.replace("     262144 ", "     524288 "))[0]
    with pytest.raises(ValueError, match="float32"):
        ucc.source_count(printed, 2, NEW)


def test_the_trace_tells_what_carried_each_count_of_this_collective_only() -> None:
    assert ucc.carried_by(TRACE) == {65536: "TL_UCP", 131072: "TL_SHARP"}
    assert ucc.carried_by(NEWER) == {}


def test_ranks_that_did_not_find_each_other_are_noticed() -> None:
    ucc.check_one_job(NEWER, 2)
    with pytest.raises(LaunchFailed, match="its own mpirun"):
        ucc.check_one_job(NEWER + NEWER, 2)


def test_a_run_covers_counts_that_double_and_repeat_equally_often() -> None:
    counts = [16384 << n for n in range(14)]
    found = ucc.chains(counts, 4, None)
    assert [(each.blocks[0], each.blocks[-1], each.iterations, each.warm_up) for each in found] == [
        (4096, 16384, 1000, 100), (32768, 1 << 20, 200, 20), (2 << 20, 32 << 20, 20, 2),
    ]  # fmt: skip
    assert [block * 4 for each in found for block in each.blocks] == counts
    assert [each.blocks for each in ucc.chains([100, 200, 300, 301], 2, 5)] == [(50, 100), (150,), (151,)]


def test_the_command_measures_the_same_collective_with_and_without_the_trace() -> None:
    tool = ucc.Tool("/site/ucc_perftest", (1, 4, 4))
    chain = ucc.Chain((4096, 8192), 200, 20)
    common = "/site/ucc_perftest -c reduce_scatter -F -d float32 -o sum -m host -b 4096 -e 8192"
    assert " ".join(ucc.command(tool, chain, trace=False)) == f"{common} -n 200 -w 20"
    assert " ".join(ucc.command(tool, chain, trace=True)) == f"{common} -n 1 -w 0"


def test_releases() -> None:
    assert ucc.version("# UCC version=1.4.4 revision 0123abc\n") == (1, 4, 4)
    assert ucc.version("# UCC version=1.5 revision 0123abc\n") == (1, 5)
    assert ucc.version("ucc_info: not found") is None


def executable(path: Path, text: str) -> None:
    """A script at `path`."""
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_an_unknown_release_is_refused_because_its_counts_have_two_meanings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    with pytest.raises(UsageError, match="no ucc_perftest on PATH"):
        ucc.find_tool()
    executable(tmp_path / "ucc_perftest", "#!/bin/sh\nexit 0\n")
    with pytest.raises(UsageError, match="does not tell its release"):
        ucc.find_tool()
    executable(tmp_path / "ucc_info", "#!/bin/sh\necho '# UCC version=1.4.4 revision abc'\n")
    assert ucc.find_tool() == ucc.Tool(str(tmp_path / "ucc_perftest"), (1, 4, 4))
