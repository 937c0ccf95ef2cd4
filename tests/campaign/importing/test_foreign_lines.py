"""Text of other programs around and within a report never changes its figures, and damage is never read as a figure."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from merge_bench.campaign.importers.cudf_merge import CudfMergeReport
from merge_bench.campaign.importing import import_file
from merge_bench.errors import UsageError
from merge_bench.records.reader import read_campaign
from merge_bench.report.run import print_campaign_report
from tests.campaign.importing.texts import LAYOUTS, read, text

PLAIN = text("ucxx").splitlines()
HEADINGS = next(number for number, line in enumerate(PLAIN) if line.startswith("Run"))
LOG = "[1729696581.284731] [node1:4242:0]"
INFO = f"{LOG}     ucp_context.c:2190 UCX  INFO  Version 1.17.0 (loaded from /opt/ucx/lib/libucp.so.0)"
UCX_TABLE = [
    f"{LOG}   +---------------------------+-----------------------------------------------+",
    f"{LOG}   | ucp_context_0 intra-node cfg#2 | tagged message by ucp_tag_send* from cuda/GPU0 |",
    f"{LOG}   |                   0..8191 | eager short                  | cuda_copy/cuda |",
    f"{LOG}     proto_debug.c:406  UCX  INFO  |  8192..inf | zero-copy read from remote   | cuda_ipc/cuda  |",
    "|                 8192..inf | zero-copy read from remote   | cuda_ipc/cuda  |",
]
SMI = [
    "+-----------------------------------------+",
    "| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15 |",
    "|=========================================+========================|",
    "|   0  N/A  N/A   4242      C   python   512MiB |",
    "0, Tesla V100-SXM2-32GB, 512 MiB",
    "    0     43     35     -     0     0",
    "[0] Tesla V100-SXM2-32GB | 35°C,  12 % |   512 / 32510 MB |",
]
NOISE = [
    "/opt/env/lib/python3.11/site-packages/cudf/utils/gpu_utils.py:62: UserWarning: No NVIDIA GPU found | code=100",
    "  warnings.warn(",
    "srun: job 4242 has been allocated resources",
    "1: srun: error: node2: task 1: Exited with exit code 1",
    "12: connected | 3 of 4",
    "slurmstepd: error: *** STEP 42.0 ON node1 CANCELLED ***",
    "Progress mode             | polling",
    "1073741824 bytes (1.1 GB, 1.0 GiB) copied, 0.51 s, 2.1 GB/s",
    "```",
    "On Tue, 3 Nov 2026, somebody wrote about the cuDF merge benchmark:",
    "Run finished",
    "Bandwidth was good",
    "real\t0m4.21s",
]
FOREIGN = [INFO, *UCX_TABLE, *SMI, *NOISE]


def figures(value: object) -> Any:
    """What a report says, without the places in its text."""
    if dataclasses.is_dataclass(value):
        skipped = ("line", "left_out", "first_left_out", "command", "traceback")
        return {
            each.name: figures(getattr(value, each.name))
            for each in dataclasses.fields(value)
            if each.name not in skipped
        }
    return [figures(each) for each in value] if isinstance(value, tuple) else value


def records(folder: Path, content: str) -> list[dict[str, Any]]:
    """The lines that the import writes, from the launch on, but for its cautions."""
    folder.mkdir()
    (folder / "merge.out").write_text(content)
    campaign = read_campaign(import_file(folder / "merge.out", folder / "results"))
    lines = [json.loads(line) for line in campaign.records.read_text().splitlines()]
    return [{**line, "time": None} for line in lines[1:] if line["kind"] != "warning"]


def labelled(label: str) -> list[str]:
    return [label + line for line in PLAIN]


def several_ranks(own: str, other: str) -> list[str]:
    ranks = labelled(own)
    for place in (0, 1, 5, HEADINGS + 2, len(PLAIN) + 4):
        ranks.insert(place, f"{other}{INFO}")
    return ranks


VARIANTS: dict[str, tuple[list[str], int]] = {
    "UCX's log before": ([INFO, *PLAIN], 1),
    "UCX's log between": ([*PLAIN[:5], INFO, *PLAIN[5 : HEADINGS + 2], INFO, *PLAIN[HEADINGS + 2 :]], 2),
    "UCX's table before": ([*UCX_TABLE, *PLAIN], 5),
    "UCX's table after the title": ([*PLAIN[:1], *UCX_TABLE, *PLAIN[1:]], 5),
    "UCX's table between iterations": ([*PLAIN[: HEADINGS + 2], *UCX_TABLE, *PLAIN[HEADINGS + 2 :]], 5),
    "UCX's table after": ([*PLAIN, *UCX_TABLE], 5),
    "nvidia-smi before": ([*SMI, *PLAIN], 7),
    "nvidia-smi after": ([*PLAIN, *SMI], 7),
    "an exit status after": ([*PLAIN, "0"], 1),
    "warnings between": ([*PLAIN[:8], *NOISE[:2], *PLAIN[8:]], 2),
    "a warning longer than a line of the report": ([*PLAIN[:8], "x | " * 1000, *PLAIN[8:]], 1),
    "srun --label": (labelled("0: "), 0),
    "srun --label, many ranks": (several_ranks("00: ", "17: "), 5),
    "srun --label, the title only": (["0: " + PLAIN[0], *PLAIN[1:]], 0),
    "mpirun --tag-output": (labelled("[1,0]<stdout>:"), 0),
    "quoted mail": (["Somebody wrote:", *labelled("> "), "> ", "Thanks"], 2),
    "quoted twice": (labelled("> > "), 0),
    "quoted, of srun": (labelled("> 0: "), 0),
    "fences and a prompt": (["```", "$ python -m ucxx.benchmarks.cudf_merge --iter 3", *PLAIN, "```"], 2),
    "coloured": ([f"\x1b[1m{PLAIN[0]}\x1b[0m", *(f"\x1b[38;5;12m{line}\x1b[m" for line in PLAIN[1:])], 0),
    "coloured label": (labelled("\x1b[32m0:\x1b[0m "), 0),
    "non-breaking blanks": ([line.replace(" ", "\u00a0") for line in PLAIN], 0),
    "tabs for runs of blanks": ([re.sub(" {3,}", "\t", line) for line in PLAIN], 0),
    "CRLF": ([line + "\r" for line in PLAIN], 0),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_reports_as_they_are_kept_have_the_figures_of_the_plain_one(name: str, tmp_path: Path) -> None:
    lines, left_out = VARIANTS[name]
    content = "\n".join(lines)
    report = read(content)
    assert figures(report) == figures(read("\n".join(PLAIN)))
    assert len(report.left_out) == left_out
    assert records(tmp_path / "kept", content) == records(tmp_path / "plain", "\n".join(PLAIN))


def test_lines_left_out_are_counted_and_the_first_is_shown(tmp_path: Path) -> None:
    (tmp_path / "merge.out").write_text("\n".join([*PLAIN[:2], *UCX_TABLE[2:], *PLAIN[2:], "\x1b]0;title\x07"]))
    campaign = read_campaign(import_file(tmp_path / "merge.out", tmp_path / "results"))
    (message,) = (warning.message for warning in campaign.warnings if warning.code == "imported-lines")
    assert message.startswith("4 lines are not part of the report")
    assert message.endswith(f"line 3: {UCX_TABLE[2]}")
    page = io.StringIO()
    print_campaign_report(campaign, file=page, details=False)
    assert "imported-lines: 4 lines" in page.getvalue()


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([*PLAIN, *PLAIN], "line 18 of merge.out: a second report begins; put each report into its own file"),
        ([*labelled("0: "), *labelled("1: ")], "a second report begins"),
        ([*PLAIN[:9], "1: " + PLAIN[9], *PLAIN[10:]], "line 10 of merge.out: the line begins with '1:', but the title"),
        ([*labelled("0: ")[:-1], "1: " + PLAIN[-1]], "line 17 of merge.out: the line begins with '1:', but the title"),
        ([re.sub(r" +\| ", "\t", line) for line in PLAIN], "line 3 of merge.out: 'Device(s)"),
        ([*PLAIN[:-1], re.sub(r" +\| ", "\t", PLAIN[-1])], "line 17 of merge.out: '2\\t"),
        ([*PLAIN[:-1], PLAIN[-1].replace("2", "l", 1)], "line 17 of merge.out: 'l "),
        ([*PLAIN[:9], PLAIN[9] + LOG, *PLAIN[10:]], "line 10 of merge.out: "),
        ([*PLAIN[:9], PLAIN[9] + UCX_TABLE[2], *PLAIN[10:]], "is not a line of the form 'name | value'"),
        ([*PLAIN[:9], LOG + PLAIN[9], *PLAIN[10:]], "merge.out is incomplete"),
        ([*PLAIN[:15], *PLAIN[16:]], "line 16 of merge.out: expected iteration 1, found 2"),
        ([*PLAIN[:14], PLAIN[15], PLAIN[14], PLAIN[16]], "line 15 of merge.out: expected iteration 0, found 1"),
        ([*PLAIN, PLAIN[HEADINGS]], "line 18 of merge.out: expected no second line of headings"),
        ([*PLAIN, PLAIN[9]], "line 18 of merge.out: 'Wall-clock' appears a second time"),
        (["Result verification for rank 0 failed", *PLAIN], "line 1 of merge.out: cudf-merge reports a wrong result"),
        (["Merge benchmark", "-" * 80, "Rows-per-chunk            | 100000000"], "is not output of cudf-merge"),
        (["# OSU MPI Latency Test v7.3", "1                       1.34"], "is not output of cudf-merge"),
        (["#       size         count      type", "   8   2   float   0.00"], "is not output of cudf-merge"),
    ],
)
def test_what_only_looks_like_a_whole_report_is_refused(lines: list[str], sentence: str) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)) as error:
        read("\n".join(lines))
    assert "\n" not in str(error.value)


FOREIGN_LINES = st.lists(st.tuples(st.integers(0, 40), st.sampled_from(FOREIGN)), max_size=30)


@given(layout=st.sampled_from(LAYOUTS), label=st.sampled_from(["", "0: ", "00: ", "> ", "> 3: "]), lines=FOREIGN_LINES)
def test_foreign_lines_anywhere_change_no_figure(layout: str, label: str, lines: list[tuple[int, str]]) -> None:
    plain = text(layout).splitlines()
    noisy = [label + line for line in plain]
    for place, line in lines:
        noisy.insert(place, line)
    report = read("\n".join(noisy))
    assert figures(report) == figures(read("\n".join(plain)))
    assert len(report.left_out) == len(lines)


MARKS = ["", " ", "|", "\t", ":", "0", "7", ".", "x", "1: ", "\n"]
Damage = Callable[[list[str], int, int, str], None]


def _character(lines: list[str], at: int, place: int, new: str) -> None:
    lines[at] = lines[at][:place] + new + lines[at][place + 1 :]


def _inserted(lines: list[str], at: int, place: int, new: str) -> None:
    lines[at] = lines[at][:place] + new + lines[at][place:]


def _lost(lines: list[str], at: int, place: int, new: str) -> None:
    del lines[at]


def _twice(lines: list[str], at: int, place: int, new: str) -> None:
    lines.insert(place % len(lines), lines[at])


def _moved(lines: list[str], at: int, place: int, new: str) -> None:
    lines.insert(place % len(lines), lines.pop(at))


def _cut(lines: list[str], at: int, place: int, new: str) -> None:
    lines[at] = lines[at][:place]


def _joined(lines: list[str], at: int, place: int, new: str) -> None:
    lines[at : at + 2] = [new.join(lines[at : at + 2])]


@given(
    layout=st.sampled_from(LAYOUTS),
    damage=st.lists(
        st.tuples(
            st.sampled_from([_character, _inserted, _lost, _twice, _moved, _cut, _joined]),
            st.integers(0, 16),
            st.integers(0, 110),
            st.sampled_from(MARKS),
        ),
        min_size=1,
        max_size=3,
    ),
)
@example(layout="ucxx", damage=[(_cut, 7, 9, "")])
def test_damage_is_refused_or_changes_no_figure(layout: str, damage: list[tuple[Damage, int, int, str]]) -> None:
    lines = text(layout).splitlines()
    plain = read("\n".join(lines))
    for change, at, place, new in damage:
        change(lines, at % len(lines), place, new)
    with contextlib.suppress(UsageError):
        assert_same(read("\n".join(lines)), plain)


def assert_same(report: CudfMergeReport, plain: CudfMergeReport) -> None:
    """Equal but for last digits, which the printed figures cannot tell."""
    assert len(report.iterations) == len(plain.iterations)
    assert report.data_bytes == pytest.approx(plain.data_bytes, rel=1e-4)
    if report.workers == report.workers_printed:  # other hosts' workers are deduced, with a warning
        assert report.workers == plain.workers
    for found, meant in zip((report, *report.iterations), (plain, *plain.iterations), strict=True):
        assert found.wall.value == pytest.approx(meant.wall.value, rel=2e-3)
        assert found.throughput.value == pytest.approx(meant.throughput.value, rel=5e-3)
    assert report.bandwidth.value == pytest.approx(plain.bandwidth.value, rel=2e-2)
