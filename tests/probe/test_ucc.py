"""ucc_perftest's table, trace and command line."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from merge_bench.errors import LaunchFailed, UsageError
from merge_bench.probe.ranks import ucc
from tests.probe.ucc_samples import SHARP_OFF, SHARP_ON, TRACE

OLD, NEW = (1, 3, 0), (1, 10, 0)
DATA = Path(__file__).parents[1] / "data/ucc"
RECORDED = [
    (release, ranks, what) for release in ("1.3.0", "1.10.0") for ranks, what in ((2, "2-ranks"), (3, "3-ranks-long"))
]
RELEASES = {"1.3.0": OLD, "1.10.0": NEW}


def recorded(kind: str, release: str, what: str) -> str:
    """What the real tool printed; `tests/data/README.md` says how."""
    return (DATA / f"{kind}-{release}-{what}.txt").read_text()


def table(text: str) -> list[ucc.UccPerftestRow]:
    """All lines of a table that is whole."""
    found, damaged = ucc.parse_ucc_perftest_table(text)
    assert not damaged
    return found


@pytest.mark.parametrize(("release", "ranks", "what"), RECORDED)
def test_recorded_tables_are_read_whole_and_no_line_is_refused(release: str, ranks: int, what: str) -> None:
    found = table(recorded("table", release, what))
    factor = ucc.whole_vector_count_factor(found, {}, ranks, RELEASES[release])
    sources = [each.count * factor for each in found]
    first = ranks if what == "2-ranks" else ranks << 18
    assert sources == [first << n for n in range(len(found))]
    assert len(found) == (16 if what == "2-ranks" else 3)
    assert {ucc.bandwidth_contradiction_text(each, factor, ranks) for each in found} == {None}


@pytest.mark.parametrize(("release", "ranks", "what"), RECORDED)
def test_bandwidths_tell_the_convention_whatever_the_release_is_said_to_be(release: str, ranks: int, what: str) -> None:
    found = table(recorded("table", release, what))
    told = {ucc.whole_vector_count_factor(found, {}, ranks, claimed) for claimed in (OLD, NEW)}
    assert told == {ranks if release == "1.3.0" else 1}


@pytest.mark.parametrize("release", ["1.3.0", "1.10.0"])
def test_where_all_bandwidths_are_rounded_to_nothing_the_release_decides(release: str) -> None:
    found = table(recorded("table", release, "3-ranks-short"))
    assert {each.bandwidth for each in found} == {(0.0, 0.0, 0.0)}
    assert ucc.whole_vector_count_factor(found, {}, 3, OLD) == 3
    assert ucc.whole_vector_count_factor(found, {}, 3, NEW) == 1
    assert {ucc.bandwidth_contradiction_text(each, factor, 3) for each in found for factor in (1, 3)} == {None}


@pytest.mark.parametrize("release", ["1.3.0", "1.10.0"])
def test_the_trace_tells_the_convention_before_anything_else(release: str) -> None:
    text = recorded("trace", release, "2-ranks")
    found, traced = table(text), ucc.parse_transport_layers(text)
    assert traced == {2: "TL_UCP", 4: "TL_UCP", 8: "TL_UCP"}
    told = {ucc.whole_vector_count_factor(found, traced, 2, claimed) for claimed in (OLD, NEW)}
    assert told == {2 if release == "1.3.0" else 1}


def test_a_rate_that_its_time_cannot_give_is_told_and_the_others_are_kept() -> None:
    text = recorded("table", "1.10.0", "2-ranks").replace(
        "4.15        4.23        4.08", "9.15        9.23        9.08"
    )
    found = table(text)
    wrong = [(each.count, ucc.bandwidth_contradiction_text(each, 1, 2)) for each in found]
    assert [count for count, why in wrong if why] == [16384]
    (why,) = [why for _, why in wrong if why]
    assert "9.15 / 9.23 / 9.08 GB/s" in why
    assert "16384 elements" in why


@pytest.mark.parametrize(("rate", "fits"), [(4.13, False), (4.15, True), (4.17, False)])
def test_the_slack_is_that_of_the_last_digit_and_no_more(rate: float, fits: bool) -> None:
    (printed,) = [each for each in table(recorded("table", "1.10.0", "2-ranks")) if each.count == 16384]
    assert printed.seconds[0] == pytest.approx(7.89e-6)  # 65536 bytes in it are 4.153 GB/s
    other = replace(printed, bandwidth=(rate * 1e9, *printed.bandwidth[1:]))
    assert (ucc.bandwidth_contradiction_text(other, 1, 2) is None) == fits


@pytest.mark.parametrize(
    ("numbers", "fits"),
    [
        ("7.89 7.75 8.04 4.2 4.2 4.1", True),
        ("7.89 7.75 8.04 4.153 4.228 4.076", True),
        ("7.89 7.75 8.04 4.149 4.228 4.076", False),  # with two decimals it would fit
        ("7.89 7.75 8.04 4 4 4", True),
        ("7.89 7.75 8.04 5 4 4", False),
        ("7.9 7.8 8.0 4.17 4.23 4.08", True),
        ("7.9 7.8 8.0 4.19 4.23 4.08", False),
        ("7.890 7.750 8.040 4.15 4.23 4.08", True),
    ],
)
def test_numbers_may_have_any_number_of_decimals_and_the_slack_follows(numbers: str, fits: bool) -> None:
    heading = recorded("table", "1.10.0", "2-ranks").partition("           2 ")[0]
    (printed,) = table(f"{heading} 16384 65536 {numbers}\n")
    assert printed.seconds == pytest.approx([float(word) * 1e-6 for word in numbers.split()[:3]])
    assert (ucc.bandwidth_contradiction_text(printed, 1, 2) is None) == fits


@pytest.mark.parametrize("text", [SHARP_ON, SHARP_OFF], ids=["sharp", "ucp"])
def test_published_tables_are_of_the_older_convention(text: str) -> None:
    found = table(text)
    assert [each.count for each in found] == [16384 << n for n in range(14)]
    # They are of UCC before 1.5 and four ranks: each line's bandwidth is that of four times the printed size.
    for claimed in (OLD, NEW):
        assert ucc.whole_vector_count_factor(found, {}, 4, claimed) == 4
    for each in found:
        assert ucc.bandwidth_contradiction_text(each, 4, 4) is None
        assert ucc.bandwidth_contradiction_text(each, 1, 4) is not None
        assert ucc.bandwidth_contradiction_text(each, 2, 2) is not None


def test_times_are_seconds_and_rates_bytes_per_second() -> None:
    first = table(SHARP_ON)[0]
    assert first.seconds == pytest.approx((9.54e-6, 8.80e-6, 10.84e-6))
    assert first.bandwidth == pytest.approx((20.62e9, 22.33e9, 18.15e9))


@pytest.mark.parametrize("length", range(5))
def test_a_line_that_was_cut_off_is_told_and_those_before_it_are_kept(length: int) -> None:
    """Before its last number, or in it."""
    found, damaged = ucc.parse_ucc_perftest_table(SHARP_ON[: SHARP_ON.index("34.86") + length])
    assert [each.count for each in found] == [16384 << n for n in range(6)]
    assert len(damaged) == 1
    assert "1048576 elements is incomplete" in damaged[0]


@pytest.mark.parametrize("text", ["", "ucc_perftest: error: no such device\n", SHARP_ON[: SHARP_ON.index("Count")]])
def test_output_without_a_table_is_told(text: str) -> None:
    assert ucc.parse_ucc_perftest_table(text) == ([], ["its output has no table of times and bandwidths"])


def test_a_size_that_is_not_of_float32_is_told() -> None:
    text = recorded("table", "1.10.0", "2-ranks").replace("  262144 ", "  524288 ")
    found, damaged = ucc.parse_ucc_perftest_table(text)
    assert len(found) == 15
    assert damaged == ["its line for 65536 elements has a wrong size: 524288 bytes"]


def test_the_trace_tells_what_carried_each_count_of_this_collective_only() -> None:
    assert ucc.parse_transport_layers(TRACE) == {65536: "TL_UCP", 131072: "TL_SHARP"}
    assert ucc.parse_transport_layers(SHARP_ON) == {}


@pytest.mark.parametrize("release", ["1.3.0", "1.10.0"])
def test_that_sharp_is_missing_is_told_in_ucc_s_words(release: str) -> None:
    assert ucc.sharp_not_used_reason(recorded("trace", release, "2-ranks")) == "UCC reports “tl sharp is not available”"
    assert ucc.sharp_not_used_reason(TRACE) == "UCC reports no reason"


def test_ranks_that_did_not_find_each_other_are_noticed() -> None:
    text = recorded("table", "1.10.0", "2-ranks")
    ucc.check_ranks_are_one_job(text, 2)
    with pytest.raises(LaunchFailed, match="--mpirun"):
        ucc.check_ranks_are_one_job(text + text, 2)


def test_a_run_covers_counts_that_double_and_repeat_equally_often() -> None:
    counts = [16384 << n for n in range(14)]
    found = ucc.plan_ucc_perftest_runs(counts, 4, None)
    assert [(each.blocks[0], each.blocks[-1], each.iterations, each.warm_up) for each in found] == [
        (4096, 16384, 1000, 100),
        (32768, 1 << 20, 200, 20),
        (2 << 20, 32 << 20, 20, 2),
    ]
    assert [block * 4 for each in found for block in each.blocks] == counts
    assert [each.blocks for each in ucc.plan_ucc_perftest_runs([100, 200, 300, 301], 2, 5)] == [
        (50, 100),
        (150,),
        (151,),
    ]


def test_the_command_measures_the_same_collective_with_and_without_the_trace() -> None:
    tool = ucc.UccPerftestTool("/site/ucc_perftest", (1, 4, 4))
    chain = ucc.UccPerftestRun((4096, 8192), 200, 20)
    common = "/site/ucc_perftest -c reduce_scatter -F -d float32 -o sum -m host -b 4096 -e 8192"
    assert " ".join(ucc.ucc_perftest_command(tool, chain, trace=False)) == f"{common} -n 200 -w 20"
    assert " ".join(ucc.ucc_perftest_command(tool, chain, trace=True)) == f"{common} -n 1 -w 0"


def test_releases() -> None:
    assert ucc.parse_ucc_version("# UCC version=1.4.4 revision 0123abc\n") == (1, 4, 4)
    assert ucc.parse_ucc_version("# UCC version=1.5 revision 0123abc\n") == (1, 5)
    assert ucc.parse_ucc_version("ucc_info: not found") is None


def test_the_mpi_that_it_loads() -> None:
    listed = """\tlinux-vdso.so.1 (0x00007f5d0850c000)
\tlibmpi_cxx.so.40 => /lib/x86_64-linux-gnu/libmpi_cxx.so.40 (0x00007f5d08476000)
\tlibmpi.so.40 => /lib/x86_64-linux-gnu/libmpi.so.40 (0x00007f5d08337000)
"""
    assert ucc.parse_libmpi_path(listed) == "/lib/x86_64-linux-gnu/libmpi.so.40"
    assert ucc.parse_libmpi_path("\tlibmpi.so.40 => not found\n") is None
    assert ucc.parse_libmpi_path("\tnot a dynamic executable\n") is None


def executable(path: Path, text: str) -> None:
    """A script at `path`."""
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_an_unknown_release_is_refused_because_its_counts_have_two_meanings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    with pytest.raises(UsageError, match="ucc_perftest is not on PATH"):
        ucc.find_ucc_perftest()
    executable(tmp_path / "ucc_perftest", "#!/bin/sh\nexit 0\n")
    for script, problem in (
        (None, "cannot be started (No such file or directory)"),
        ("exit 3", "failed with status 3"),
        ("echo 'UCC of the site'", "printed no version"),
    ):
        if script is not None:
            executable(tmp_path / "ucc_info", f"#!/bin/sh\n{script}\n")
        with pytest.raises(
            UsageError, match=f"the UCC version of .* is unknown: `.*ucc_info -v` {re.escape(problem)}; repair this"
        ):
            ucc.find_ucc_perftest()
    executable(tmp_path / "ucc_info", "#!/bin/sh\necho '# UCC version=1.4.4 revision abc'\n")
    assert ucc.find_ucc_perftest() == ucc.UccPerftestTool(str(tmp_path / "ucc_perftest"), (1, 4, 4))
