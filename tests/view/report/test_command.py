"""What is said of a command that was measured: the conclusion, every table, lists, and what to do next."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from merge_bench.analysis.compare import compare_campaigns
from merge_bench.records import schema as s
from merge_bench.records.reader import read_campaign
from merge_bench.regressions.document import load_history
from merge_bench.regressions.view import history_charts, print_history
from merge_bench.report.campaign_figures import print_results_list
from merge_bench.report.run import COLUMNS, LINES, print_campaign_report
from merge_bench.view.comparison import print_comparison
from merge_bench.view.suggested_command import WHEN_QUIET
from tests.helpers.command_campaigns import BUSBW, HOW, WALL, command_plan, interleaved_runs, write_commands
from tests.view.command_samples import OF_MERGES, RATES, WALLS, one_config, one_failed, two_configs, with_options
from tests.view.report.test_text import Terminal

THEIRS = r"--metric 'busbw=re:busbw: ([\d.]+)'"
"""An option as it is typed again."""


def shown(folder: Path, *, details: bool = False) -> str:
    """What a pipe gets."""
    file = io.StringIO()
    print_campaign_report(read_campaign(folder), details=details, file=file)
    return file.getvalue()


def rows_of(text: str) -> dict[str, list[str]]:
    """The cells of the table of configs, by config."""
    return {line.split()[0]: line.split() for line in text.splitlines() if re.match(r"(base|tuned) +[\d-]", line)}


def next_of(folder: Path) -> str:
    """The next command and what it does, without the program, and without the path of the folder."""
    lines = shown(folder).splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("Next: "))
    text = " ".join(line.strip() for line in lines[at : at + 2])
    return text.removeprefix("Next: python -m merge_bench ").replace(str(folder), "FOLDER")


def test_one_config_says_what_ran_and_every_metric(tmp_path: Path) -> None:
    lines = shown(folder := one_config(tmp_path)).splitlines()
    assert lines[:3] == [
        f"merge_bench · {folder.name}",
        "./bench -n 2; config base; 8 launches on node0",
        f"verified: all 8 launches passed ({HOW})",
    ]
    rows = [line.split() for line in lines if line.startswith(("busbw", "wall"))]
    assert rows == [
        ["busbw", "(GB/s)", "13.50", "10.00–17.00", "11.75–15.25", "10.00–17.00"],
        ["wall", "(ms)", "1,350", "1,000–1,700", "1,175–1,525", "1,000–1,700"],
    ]


def test_two_configs_have_a_row_and_a_verdict_each(tmp_path: Path) -> None:
    text = shown(two_configs(tmp_path))
    assert "./bench -n 2; configs base and tuned; 8 launches of each on node0" in text
    assert text.count(f"verified: all 8 launches passed ({HOW})") == 1
    rows = rows_of(text)
    assert rows["base"][:5] == ["base", "13.50", "10.00–17.00", "1,350", "1,000–1,700"]
    assert rows["base"][-1] == "8"
    assert "Verdicts on busbw" in text
    assert "FASTER: 1.200 × as fast in busbw" in text
    assert "Failed" not in text


def test_a_failed_launch_is_counted_and_its_config_cannot_win(tmp_path: Path) -> None:
    text = shown(one_failed(tmp_path))
    assert f"base: verified: all 8 launches passed ({HOW})" in text
    assert f"tuned: 7 of 8 launches passed ({HOW}); 1 failed" in text
    rows = rows_of(text)
    assert (rows["base"][-2:], rows["tuned"][-2:]) == (["8", "0"], ["7", "1"])
    assert "FAILED: 1 of 8 launches failed" in text
    assert "FASTER" not in text
    assert "command-failed: the command ended with status 1 (node0)" in text


@pytest.mark.parametrize("make", [one_config, two_configs, one_failed], ids=lambda make: make.__name__)
@pytest.mark.parametrize("details", [False, True], ids=["conclusion", "details"])
def test_nothing_of_merges_is_said(tmp_path: Path, make: Any, details: bool) -> None:
    folder = make(tmp_path)
    text = shown(folder, details=details).replace(str(folder), "")
    assert [line for line in text.splitlines() if OF_MERGES.search(line)] == []


@pytest.mark.parametrize("make", [one_config, two_configs, one_failed], ids=lambda make: make.__name__)
def test_the_conclusion_fits_a_terminal(tmp_path: Path, make: Any) -> None:
    file = Terminal()
    print_campaign_report(read_campaign(make(tmp_path)), details=False, file=file, width=COLUMNS)
    copied = ("Records: ", "Next: ")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue()).splitlines()
    assert max(len(line) for line in lines if not line.startswith(copied)) <= COLUMNS
    assert len(lines) <= LINES


def test_details_have_every_launch_and_how_it_was_checked(tmp_path: Path) -> None:
    text = shown(one_failed(tmp_path), details=True)
    assert re.search(r"^Command +\./bench -n 2$", text, re.MULTILINE)
    assert re.search(r"^Checks +exit status 0; re:PASSED$", text, re.MULTILINE)
    assert re.search(r"^Metric busbw +more is better; re:busbw: \(\[\\d\.\]\+\)$", text, re.MULTILINE)
    assert "  UCX_TLS=tuned" in text
    ends = [line.split()[-1] for line in text.splitlines() if re.match(r"^ *\d+ +\d+ ", line)]
    assert (ends.count("passed"), ends.count("command-failed")) == (15, 1)


def test_a_unit_that_is_no_time_or_rate_is_good_and_not_fast(tmp_path: Path) -> None:
    score = BUSBW | {"name": "score", "unit": None}
    scores = {"base": RATES, "tuned": [9 * rate for rate in RATES]}
    runs = interleaved_runs({"base": WALLS, "tuned": WALLS}, {"score": scores})
    text = shown(with_options(write_commands(tmp_path, runs, plan=command_plan(8, (score, WALL)))))
    assert "FASTER: 9.000 × as good in score" in text
    assert "(None)" not in text
    assert "()" not in text


def test_tiny_and_huge_values_keep_their_digits(tmp_path: Path) -> None:
    tiny, huge = BUSBW | {"name": "tiny", "unit": "x"}, BUSBW | {"name": "huge", "unit": "y"}
    values = {"tiny": {"base": [1.234e-9] * 6}, "huge": {"base": [1.5e15] * 6}}
    runs = interleaved_runs({"base": WALLS[:6]}, values)
    text = shown(with_options(write_commands(tmp_path, runs, plan=command_plan(6, (tiny, huge, WALL)))))
    assert "1.23e-09" in text
    assert "1.5e+15" in text


def test_the_next_step_adds_launches_for_an_interval_or_a_verdict(tmp_path: Path) -> None:
    few = next_of(with_options(one_config(tmp_path / "few", 2), configs="base", launches="2"))
    assert few == (
        f"exec --configs base {THEIRS} --launches 6 --extend FOLDER -- ./bench -n 2 "
        "(adds 4 launches, as many as a 95 % interval needs)"
    )
    assert next_of(one_config(tmp_path / "enough")).startswith("report FOLDER ")
    pair = next_of(two_configs(tmp_path / "pair", 4))
    assert re.fullmatch(
        rf"exec --configs base,tuned {re.escape(THEIRS)} --launches \d+ --extend FOLDER -- ./bench -n 2 "
        r"\(adds \d+ blocks?, as many as a verdict needs\)",
        pair,
    )


def test_the_next_step_after_a_failure_runs_that_config_once(tmp_path: Path) -> None:
    assert next_of(one_failed(tmp_path)) == (
        f"exec {THEIRS} --launches 1 --configs tuned -- ./bench -n 2 (runs it once with tuned, to see why it fails)"
    )


@pytest.mark.parametrize("log_tail", [None, "No such file"])
def test_a_command_that_failed_is_repeated_without_waiting_for_a_quiet_host(
    tmp_path: Path, log_tail: str | None
) -> None:
    folder = one_failed(tmp_path)
    records = folder / "records.jsonl"
    lines = [msgspec.json.decode(line, type=s.Record) for line in records.read_bytes().splitlines()]
    busy = s.WarningLine(code="busy-host", message="…", remedy="wait")
    changed = [
        msgspec.structs.replace(line, log_tail=log_tail) if isinstance(line, s.FailureLine) else line for line in lines
    ]
    records.write_bytes(b"\n".join(map(msgspec.json.encode, [*changed, busy])) + b"\n")
    purpose = "why it fails" if log_tail is None else "whether it is mended"
    assert next_of(folder).endswith(f"(runs it once with tuned, to see {purpose})")
    assert WHEN_QUIET not in shown(folder)


def test_the_next_step_after_an_interruption_is_the_same_command(tmp_path: Path) -> None:
    folder = two_configs(tmp_path, end=130, failures={("tuned", 7): "interrupted"})
    assert next_of(folder).startswith("exec --configs base,tuned --launches 8 --metric ")
    assert next_of(folder).endswith("-- ./bench -n 2 (goes on where this was interrupted)")


def test_a_list_of_results_has_the_main_metric(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_configs(tmp_path)
    print_results_list(tmp_path)
    first, second, last, _ = capsys.readouterr().out.splitlines()
    assert re.search(r"verified +16\.20 GB/s ", first)
    assert second.strip() == "busbw of base and tuned: ./bench -n 2"
    assert last == "Times are in UTC; throughput, or the main metric of a command, is that of the fastest config."


def test_a_config_that_failed_is_not_the_fastest_of_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one_failed(tmp_path)
    print_results_list(tmp_path)
    assert re.search(r"failed +13\.50 GB/s ", capsys.readouterr().out)


def test_a_comparison_has_the_units_of_the_metrics(tmp_path: Path) -> None:
    folder, file = two_configs(tmp_path), io.StringIO()
    print_comparison(compare_campaigns([read_campaign(folder)]), metric="busbw", file=file)
    text = file.getvalue()
    assert re.search(r"^busbw \(GB/s\) +FASTER +1\.200 .* 13\.50 +16\.20 ", text, re.MULTILINE)
    assert re.search(r"^wall \(ms\) +FASTER +1\.200 .* 1,350 +1,125 ", text, re.MULTILINE)
    assert "FASTER: 1.200 × as fast in busbw" in text
    assert not OF_MERGES.search(text.replace(str(folder), ""))


def test_a_history_has_the_metric_and_the_command(tmp_path: Path) -> None:
    for _ in range(3):
        one_config(tmp_path)
    document, file = load_history([tmp_path]), io.StringIO()
    print_history(document, details=True, file=file)
    text = file.getvalue()
    assert "busbw of base: ./bench -n 2 over 3 results: level 13.50 GB/s since" in text
    assert "Value (GB/s)" in text
    assert not OF_MERGES.search(text)
    (chart,) = history_charts(document)
    assert chart.y.title == "busbw (GB/s)"


def test_no_launch_yet(tmp_path: Path) -> None:
    folder = one_config(tmp_path)
    path = folder / "records.jsonl"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    assert "no launch has ended yet" in shown(folder)


def test_every_launch_failed(tmp_path: Path) -> None:
    folder = one_config(tmp_path, 2, failures={("base", 0): "check-failed", ("base", 1): "check-failed"})
    text = shown(folder)
    assert "all 2 launches failed" in text
    assert "Median" not in text
    assert "check-failed: the command ended with status 1 (node0)" in text
