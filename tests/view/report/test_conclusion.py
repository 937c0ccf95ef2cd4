"""The conclusion, which a run prints by default: complete, short, and what to do next."""

from __future__ import annotations

import io
import re
from pathlib import Path

import msgspec
import pytest

from merge_bench.records import schema as s
from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import CampaignWriter
from merge_bench.report.run import print_campaign_report
from merge_bench.view.text import shorten_path
from tests.helpers.synthetic_campaigns import (
    Script,
    interleaved,
    launches,
    plan,
    write_campaign,
    write_head,
)
from tests.view.report.test_text import Terminal

CAMPAIGNS = Path(__file__).parents[2] / "data" / "campaigns"


def _slow_exchange(worker: s.WorkerIteration) -> s.WorkerIteration:
    return msgspec.structs.replace(
        worker,
        phases_seconds=s.PhaseSeconds(partition=0.02, exchange=0.06, join=0.03),
        flight_seconds=s.TransferSeconds(left=0.03, right=0.03, union=0.05),
    )


SLOW_EXCHANGE = Script(worker=_slow_exchange)
"""At half of the link limit."""


def conclusion(folder: Path) -> str:
    file = io.StringIO()
    print_campaign_report(read_campaign(folder), details=False, file=file)
    return file.getvalue()


def on_terminal(folder: Path, width: int = 80) -> list[str]:
    file = Terminal()
    print_campaign_report(read_campaign(folder), details=False, file=file, width=width)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue()).splitlines()
    return [part for line in lines for part in (broken_by_terminal(line, width) if is_copied(line) else [line])]


def is_copied(line: str) -> bool:
    """Whether a line is one command or path, which is not broken between words."""
    return line.startswith(("Records: ", "Next: ")) or re.match(r"\d+ more warnings? with ", line) is not None


def broken_by_terminal(line: str, width: int) -> list[str]:
    return [line[at : at + width] for at in range(0, len(line), width)]


def with_command(folder: Path, *words: str) -> Path:
    """The campaign as if `run` had been called with these words."""
    path = folder / "records.jsonl"
    head, *rest = path.read_bytes().splitlines(keepends=True)
    line = msgspec.json.decode(head) | {"argv": ["/opt/merge_bench/__main__.py", "run", *words]}
    path.write_bytes(msgspec.json.encode(line) + b"\n" + b"".join(rest))
    return folder


def next_of(folder: Path) -> str:
    lines = conclusion(folder).splitlines()
    return next(line.removeprefix("Next: ") for line in lines if line.startswith("Next: "))


def test_one_run_says_everything_that_matters_once(tmp_path: Path) -> None:
    folder = with_command(write_campaign(tmp_path), "--chunk", "1e6", "--config", "optimized.cfg")
    lines = conclusion(folder).splitlines()
    assert lines[0] == f"merge_bench · {folder.name}"
    assert lines[1] == (
        "1,000,000 rows per chunk; 2 workers on node0; engine polars, exchange ucx, config optimized; 3 iterations of"
        " 0.0596 GiB in 1 launch, after 1 warm-up"
    )
    assert lines[2] == "verified: 600,000 rows, all 2 checks passed"
    assert [re.split(r"\s{2,}", line.strip()) for line in lines[3:7]] == [
        ["Median", "Quartiles", "Min–max"],
        ["Wall-clock (ms)", "110.00", "105.00–115.00", "100.00–120.00"],
        ["Throughput (GiB/s)", "0.542", "0.519–0.569", "0.497–0.596"],
        ["Bandwidth (GiB/s)", "0.279", "0.279–0.279", "0.279–0.279"],
    ]
    assert [re.split(r"\s{2,}", line) for line in lines[7:11]] == [
        ["Phases (ms)", "partition 20.00 (18%), exchange 30.00 (27%), join 40.00 (36%); slowest worker of each phase"],
        ["Limited by", "join: the longest phase, 36% of the wall-clock time"],
        [
            "Link",
            "83% of the link limit of 0.447 GiB/s at this size, over sysv/memory, tcp/lo; all bytes together:"
            " 0.373 GiB/s, where Bandwidth is a mean over frames and workers",
        ],
        ["Peak memory", "0.186 GiB in a worker, 3.00 × its input above imports"],
    ]
    assert lines[11:] == [
        "Next: python -m merge_bench --chunk 1e6 --config optimized.cfg --engine native",
        "      (measures the same with the engine native)",
        f"Records: {folder / 'records.jsonl'}",
    ]


def test_a_link_limit_that_was_exceeded_has_no_share_of_more_than_all(tmp_path: Path) -> None:
    def fast(worker: s.WorkerIteration) -> s.WorkerIteration:
        flight = s.TransferSeconds(left=0.01, right=0.01, union=0.0125)  # 12 MB: 960 MB/s, twice the limit
        return msgspec.structs.replace(worker, flight_seconds=flight)

    text = conclusion(write_campaign(tmp_path, Script(worker=fast)))
    assert "disturbed: 0.447 GiB/s, exchanges ran 2.0 × as fast, over" in text


@pytest.mark.parametrize(
    ("name", "silent"),
    [
        ("one-sender", "; share and limit count rank 1, which sent nothing; Bandwidth does not"),
        ("tables", "; all bytes together: 0.0654 GiB/s, where Bandwidth is a mean over frames and workers"),
        ("run", ""),
    ],
)
def test_a_share_of_the_link_limit_that_does_not_follow_from_bandwidth_says_why(name: str, silent: str) -> None:
    (link,) = [line for line in conclusion(CAMPAIGNS / name).splitlines() if line.startswith("Link ")]
    assert re.search("over [a-z/, ]+(.*)", link).group(1) == silent


def test_details_stand_before_the_conclusion(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path)
    file = io.StringIO()
    print_campaign_report(read_campaign(folder), details=True, file=file)
    assert file.getvalue().endswith(conclusion(folder))
    assert "\nIterations\n" in file.getvalue()
    assert "\nIterations\n" not in conclusion(folder)


@pytest.mark.parametrize("name", ["run", "failed"])
def test_what_the_real_command_recorded_fits_a_terminal_of_24_lines_of_80_columns(name: str) -> None:
    lines = on_terminal(CAMPAIGNS / name)
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 23, "\n".join(lines)
    assert any(line.startswith("Limited by") for line in lines)
    assert any("more warning" in line for line in lines)


def test_a_run_that_was_interrupted_goes_on_with_the_same_command(tmp_path: Path) -> None:
    with CampaignWriter.create(tmp_path, "optimized") as writer:
        write_head(writer, [("optimized", 0)], [plan()])
        writer.write(s.FailureLine(launch=0, code="interrupted", message="stopped by Ctrl-C"))
        writer.write(s.LaunchEndLine(launch=0, status=3, seconds=3.0))
    folder = with_command(writer.folder, "--workers", "2", "--fresh", "--left", "a b.parquet", "--details")
    assert next_of(folder) == "python -m merge_bench --workers 2 --left 'a b.parquet'"
    assert "(measures again)" in conclusion(folder)  # only campaigns of several launches go on


def test_phases_of_different_workers_are_said_to_be(tmp_path: Path) -> None:
    def turns(worker: s.WorkerIteration) -> s.WorkerIteration:
        own = (
            s.PhaseSeconds(partition=0.07, exchange=0.01, join=0.03)
            if worker.rank
            else s.PhaseSeconds(partition=0.01, exchange=0.07, join=0.03)
        )
        return msgspec.structs.replace(worker, phases_seconds=own)

    (line,) = [
        line for line in conclusion(write_campaign(tmp_path, Script(worker=turns))).splitlines() if "Phases" in line
    ]
    assert line.endswith("(27%); slowest worker of each phase, so more than 100% in all")


def test_shares_that_add_up_to_100_are_not_said_to_exceed_it(tmp_path: Path) -> None:
    def hardly_more(worker: s.WorkerIteration) -> s.WorkerIteration:
        own = s.PhaseSeconds(partition=0.0401, exchange=0.03, join=0.03)
        return msgspec.structs.replace(worker, phases_seconds=own)

    found = conclusion(write_campaign(tmp_path, Script(walls=[0.1] * 3, worker=hardly_more)))
    (line,) = [line for line in found.splitlines() if "Phases" in line]
    assert line.endswith("40.10 (40%), exchange 30.00 (30%), join 30.00 (30%); slowest worker of each phase")


@pytest.mark.parametrize("width", [40, 45, 47, 49, 64])
def test_an_option_and_its_value_stay_on_one_line_of_a_terminal(tmp_path: Path, width: int) -> None:
    folder = write_campaign(tmp_path)
    with (folder / "records.jsonl").open("ab") as stream:
        line = s.WarningLine(code="w", message="it is small", remedy="merge more rows, for example with --chunk 25e6")
        stream.write(msgspec.json.encode(line) + b"\n")
    lines = on_terminal(folder, width)
    assert max(map(len, lines)) <= width
    assert any("--chunk 25e6" in line for line in lines)


def test_many_iterations_have_separators(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, Script(walls=[0.1] * 1000))
    assert "1,000 iterations" in conclusion(folder)


def test_several_configs_have_a_verdict_each(tmp_path: Path) -> None:
    scripts = interleaved({"slow": [0.20, 0.21, 0.20, 0.22, 0.20, 0.21], "fast": [0.10, 0.11, 0.10, 0.11, 0.10, 0.11]})
    folder = write_campaign(tmp_path, *scripts)
    lines = conclusion(folder).splitlines()
    (verdict,) = [line for line in lines if "FASTER" in line]
    assert verdict.startswith("  FASTER: ")
    assert lines[lines.index(verdict) - 1].startswith("fast against slow")
    assert "Iterations" not in lines
    assert next_of(folder) == f"python -m merge_bench report {folder}"


def test_few_blocks_give_no_verdict_and_the_next_command_measures_more(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, *interleaved({"one": [0.200, 0.202, 0.201], "two": [0.190, 0.194, 0.189]}))
    assert "INCONCLUSIVE" in conclusion(with_command(folder, "--configs", "one,two", "--blocks", "3"))
    command = next_of(folder).split()
    assert command[:5] == ["python", "-m", "merge_bench", "--configs", "one,two"]
    assert command[5] == "--launches"
    assert int(command[6]) > 3


@pytest.mark.parametrize("busy", [False, True])
def test_nobody_is_told_to_measure_hundreds_of_times(tmp_path: Path, busy: bool) -> None:
    values = [0.20, 0.60, 0.21, 0.55, 0.22, 0.50, 0.23]
    folder = write_campaign(tmp_path, *interleaved({"one": values, "two": values[::-1]}))
    if busy:
        with (folder / "records.jsonl").open("ab") as stream:
            stream.write(msgspec.json.encode(s.WarningLine(code="busy-host", message="…", remedy="wait")) + b"\n")
    assert "INCONCLUSIVE" in conclusion(with_command(folder, "--configs", "one,two", "--blocks", "7"))
    command = next_of(folder).removeprefix("python -m merge_bench ")
    assert command == f"report {folder}"


def test_a_sweep_of_sizes_is_a_table_with_what_limits_each(tmp_path: Path) -> None:
    plans = [plan(rows_per_chunk=10**k) for k in (5, 6, 7, 8)]
    scripts = [Script(index=k, plan_index=k, plan=each) for k, each in enumerate(plans)]
    text = conclusion(write_campaign(tmp_path, *scripts))
    rows = [re.split(r"\s{2,}", line) for line in text.splitlines() if line.startswith("optimized")]
    assert [(cells[1], cells[-1]) for cells in rows] == [(f"{10**k:,}", "join") for k in (5, 6, 7, 8)]
    assert "All 4 runs, verified" in text
    assert "verdict" not in text.lower()


def test_warnings_for_which_there_is_no_room_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = write_campaign(tmp_path)
    with (folder / "records.jsonl").open("ab") as stream:
        for number in range(9):
            line = s.WarningLine(code=f"w{number}", message=f"message {number}", remedy="do something")
            stream.write(msgspec.json.encode(line) + b"\n")
    lines = on_terminal(folder)
    assert 22 <= len(lines) <= 23  # each warning takes two
    shown = sum(line.startswith("w") for line in lines)
    assert 1 <= shown < 9
    assert f"{9 - shown} more warnings with `show {folder.name} --details`" in lines


def test_one_warning_is_shown_however_long_it_is(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path)
    with (folder / "records.jsonl").open("ab") as stream:
        for code in ("long", "second"):
            line = s.WarningLine(code=code, message="word " * 300, remedy="do something")
            stream.write(msgspec.json.encode(line) + b"\n")
    text = conclusion(folder)
    assert "long: word" in text
    assert f"1 more warning with `show {shorten_path(str(folder))} --details`\n" in text


def test_real_tables_are_named() -> None:
    named = "orders.parquet ⋈ lines.parquet on o_key = l_key (5,000 / 20,000 rows); 2 workers on vm; engine native"
    assert conclusion(CAMPAIGNS / "tables").splitlines()[1].startswith(named)


def test_six_launches_have_intervals(tmp_path: Path) -> None:
    text = conclusion(write_campaign(tmp_path, *launches(6)))
    (wall,) = [line for line in text.splitlines() if line.startswith("Wall-clock")]
    assert wall.split()[-1] == "110.00–160.00"


def test_the_table_of_runs_breaks_no_number_at_80_columns(tmp_path: Path) -> None:
    scripts = [
        Script(index=at, config="tuned-vm", plan_index=at, plan=plan(rows_per_chunk=rows))
        for at, rows in enumerate((1_000_000, 25_000_000))
    ]
    file = Terminal()
    print_campaign_report(read_campaign(write_campaign(tmp_path, *scripts)), details=False, file=file, width=80)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue()).splitlines()
    row = next(line for line in lines if line.startswith("tuned-vm  25,000,000 "))
    assert row.rstrip().endswith("join")
    assert "All 2 runs, verified" in lines
