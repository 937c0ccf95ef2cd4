"""No wrong number is let in: every kind of damage ends in one sentence that names the file and, mostly, the line."""

from __future__ import annotations

import re

import pytest

from merge_bench.campaign.importers.cudf_merge import read_report
from merge_bench.errors import UsageError
from tests.campaign.importing.texts import FILE, WALLS, read, text

COMMAND = "$ python cudf-merge.py --server --n-devs-on-net 16 --iter {} -c 1_000_000\n"
TRACEBACK = 'Traceback (most recent call last):\n  File "m.py", line 1, in <module>\nMemoryError: std::bad_alloc\n'
WHOLE = text()


def cut(lines: int) -> str:
    return "".join(WHOLE.splitlines(keepends=True)[:lines])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "merge.out is empty, but should contain the output of cudf-merge"),
        ("\n \n", "merge.out is empty"),
        ("hello\n", "merge.out is not output of cudf-merge: it has no line 'cuDF merge benchmark'"),
        (
            TRACEBACK,
            "it has no line 'cuDF merge benchmark'; the text contains a Python error: MemoryError: std::bad_alloc",
        ),
        (cut(1), "merge.out is incomplete: it ends at line 1, and has no line with 'Number of devices'"),
        (cut(4), "it ends at line 4, and has no line with 'Total data processed'"),
        (cut(4) + TRACEBACK, "'Total data processed'; the text contains a Python error: MemoryError: std::bad_alloc"),
        (cut(8), "it ends at line 8, and has no line with 'Bandwidth'"),
        (cut(11), "it ends at line 11, before the first iteration"),
        (cut(12), "it ends at line 12, before the first iteration"),
        (cut(14), "line 5 of merge.out: the total matches about 3 iterations, but the text has 2; it is"),
        (WHOLE + "3", "line 16 of merge.out: '3' is not a row of iteration"),
        (WHOLE + "3    | 1.00 s | 1.0", "line 16 of merge.out: '3    | 1.00 s | 1.0' is not a row of iteration"),
        (WHOLE[:-3], "line 15 of merge.out: '3.98 GiB' is not a rate"),
        (WHOLE + WHOLE, "line 16 of merge.out: a second report begins; put each report into its own file"),
        (COMMAND.format(4) + WHOLE, "line 6 of merge.out: the text has 3 iterations, but --iter requested 4; the text"),
        (WHOLE.replace("\n1 ", "\n7 "), "line 14 of merge.out: expected iteration 1, found 7"),
        (WHOLE.replace("49.16 ms", "49.16 m"), "line 13 of merge.out: '49.16 m' is not a time"),
        (WHOLE.replace("49.16 ms", "nan s"), "line 13 of merge.out: 'nan s' is not a time"),
        (WHOLE.replace("825.80 MiB", "825.80 Mib"), "line 15 of merge.out: '825.80 Mib' is not a rate"),
        (
            WHOLE.replace("| 1000000", "| 0"),
            "line 4 of merge.out: 'Rows per chunk' is '0', not a positive whole number",
        ),
        (WHOLE.replace("| 1000000", "| 1e6"), "line 4 of merge.out: 'Rows per chunk' is '1e6'"),
        (
            WHOLE.replace("| 16", "| 15"),
            "line 6 of merge.out: the data processed per iteration do not match 15 × 1,000,000",
        ),
        (
            WHOLE.replace("488.28", "488.92"),
            "line 6 of merge.out: the data processed per iteration do not match 16 × 1,000",
        ),
        (
            WHOLE.replace("Rows per chunk", "Chunks"),
            "merge.out is incomplete: it ends at line 15, and has no line with 'Ro",
        ),
        (cut(3) + WHOLE, "line 4 of merge.out: a second report begins"),
        (
            cut(3) + cut(15).replace("cuDF merge benchmark\n", ""),
            "line 5 of merge.out: 'Number of devices' appears a",
        ),
        (
            WHOLE.replace("| Bandwidth  ", "| Latency  "),
            "line 12 of merge.out: expected the columns Iteration, Wall-c",
        ),
        (WHOLE.replace("Rows per chunk", "Rows per chunk | a"), "line 4 of merge.out: 'Rows per chunk | a"),
        (
            text("ucxx").replace("[0,", "[a,"),
            "line 3 of merge.out: 'Device(s)' is '[a, 1, 2, 3, 4, 5, 6, 7]', not a list of devices",
        ),
        (
            text("ucxx").replace("| 0.3", "| 3"),
            "line 8 of merge.out: 'Row matching fraction' is '3', not a number from 0",
        ),
        (
            WHOLE + "3 |" + "x" * 2000,
            "line 16 of merge.out: the line has 2003 characters, more than cudf-merge prints in a line",
        ),
        (
            cut(4) + TRACEBACK.replace("std", "\x07std"),
            "the text contains a Python error: MemoryError: \ufffdstd::bad_all",
        ),
        (
            WHOLE + "Result verification for rank 3 failed in iteration 0, full results in x.log.",
            "line 16 of merge.out: cudf-merge reports a wrong result: Result verification for rank 3 failed",
        ),
    ],
)
def test_damage_is_named(content: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)) as error:
        read(content)
    assert "\n" not in str(error.value)


def test_bytes_that_are_no_text_are_named_by_line() -> None:
    with pytest.raises(UsageError, match=r"line 16 of merge\.out is not text"):
        read_report(FILE, WHOLE.encode() + b"\xff\xfe")


def test_a_bandwidth_in_the_wrong_unit_does_not_pass() -> None:
    with pytest.raises(
        UsageError, match=r"line 9 of merge\.out: the bandwidth of the run \(9\d\d\.\d\d GiB/s\) is not"
    ):
        read(re.sub(r"(Bandwidth +\| )[\d.]+ .iB/s", r"\g<1>987.65 GiB/s", WHOLE, count=1))


def test_a_throughput_that_is_not_data_by_time_does_not_pass() -> None:
    assert "9.70 GiB/s" in WHOLE
    with pytest.raises(
        UsageError, match=r"line 13 of merge\.out: the throughput of iteration 0 \(9\.17 GiB/s\) is not"
    ):
        read(WHOLE.replace("9.70 GiB/s", "9.17 GiB/s"))


def test_iterations_longer_than_the_whole_do_not_pass() -> None:
    lines = WHOLE.splitlines()
    assert lines[7].startswith("Wall-clock")
    lines[7] = "Wall-clock                | 200.00 ms"
    lines[9] = "Throughput                | 7.15 GiB/s"
    with pytest.raises(
        UsageError, match=r"line 8 of merge\.out: the iterations took 219\.\d\d ms, longer than the run"
    ):
        read("\n".join(lines))


def test_a_text_cut_anywhere_is_refused() -> None:
    for end in range(len(WHOLE) - 1):
        with pytest.raises(UsageError):
            read(WHOLE[:end])


def test_a_digit_changed_anywhere_is_refused_or_changes_next_to_nothing() -> None:
    accepted = 0
    for place, character in enumerate(WHOLE):
        if not character.isdigit():
            continue
        for other in "0379":
            try:
                report = read(WHOLE[:place] + other + WHOLE[place + 1 :])
            except UsageError:
                continue
            accepted += 1
            assert (report.workers, len(report.iterations)) == (16, 3)
            assert report.rows_per_chunk == pytest.approx(1_000_000, rel=1e-4)
            assert [i.wall.value for i in report.iterations] == pytest.approx(list(WALLS), rel=2e-3)
            assert report.wall.value == pytest.approx(sum(WALLS) + 0.001, rel=2e-3)
            assert report.bandwidth.value == pytest.approx(read(WHOLE).bandwidth.value, rel=2e-2)
    assert accepted > 0


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_mark_of_the_encoding_is_no_damage(encoding: str) -> None:
    """Notepad writes one, and PowerShell's > writes UTF-16."""
    plain = read_report(FILE, text().encode())
    assert read_report(FILE, text().replace("\n", "\r\n").encode(encoding)) == plain
