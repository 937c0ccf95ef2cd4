"""The report: what stands where, in a pipe and on a terminal."""

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
from merge_bench.view.text import format_number
from tests.helpers.synthetic_campaigns import Script, launches, plan, write_campaign, write_head


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


def piped(folder: Path) -> str:
    file = io.StringIO()
    print_campaign_report(read_campaign(folder), file=file)
    return file.getvalue()


def section(text: str, heading: str) -> list[str]:
    """The lines of the section whose heading starts with `heading`."""
    blocks = [block.splitlines() for block in re.split(r"\n\n|^\n", text)]
    return next(block[1:] for block in blocks if block and block[0].startswith(heading))


def row(text: str, heading: str, first: str) -> list[str]:
    """The cells of the row that starts with `first`."""
    rows = (re.split(r"\s{2,}", line.strip()) for line in section(text, heading))
    return next(cells for cells in rows if cells[0] == first)


@pytest.fixture
def report(tmp_path: Path) -> str:
    return piped(write_campaign(tmp_path))


def test_the_header_says_what_ran(report: str) -> None:
    header = dict(re.split(r"\s{3,}", line) for line in section(report, "merge_bench ·")[:8])
    assert header == {
        "Workers": "2 on node0",
        "Rows per chunk": "1,000,000",
        "Engine": "polars",
        "Exchange": "ucx",
        "Protocol": "tcp",
        "Data processed per iteration (GiB)": "0.0596",  # 64e6 / 2**30
        "Iterations": "3 in 1 launch, after 1 warm-up",
        "Config": "optimized (configs/optimized.cfg)",
    }
    assert "  UCX_TLS=sm,tcp" in section(report, "merge_bench ·")


def test_totals_have_units_and_labels(report: str) -> None:
    assert section(report, "Totals")[0].split() == ["Median", "Quartiles", "Min–max"]
    assert row(report, "Totals", "Wall-clock (ms)")[1:] == ["110.00", "105.00–115.00", "100.00–120.00"]
    # 300 MB/s = 0.279 GiB/s; 64 MB in 0.11, 0.12 and 0.10 s = 0.542, 0.497 and 0.596 GiB/s.
    assert row(report, "Totals", "Bandwidth (GiB/s)")[1:] == ["0.279", *["0.279–0.279"] * 2]
    assert row(report, "Totals", "Throughput (GiB/s)")[1::2] == ["0.542", "0.497–0.596"]


def test_the_iteration_table_is_the_one_the_field_knows(report: str) -> None:
    heading, *lines = section(report, "Iterations")
    assert re.split(r"\s{2,}", heading) == ["Iteration", "Wall-clock (ms)", "Bandwidth (GiB/s)", "Throughput (GiB/s)"]
    assert [re.split(r"\s{2,}", line.strip()) for line in lines] == [
        ["0", "100.00", "0.279", "0.596"],
        ["1", "110.00", "0.279", "0.542"],
        ["2", "120.00", "0.279", "0.497"],
    ]


def test_columns_are_aligned_in_a_pipe(report: str) -> None:
    heading, *lines = section(report, "Iterations")
    ends = {match.end() for match in re.finditer(r"\S+( \S+)*", heading)}
    for line in lines:
        assert {match.end() for match in re.finditer(r"\S+", line)} == ends


def test_workers_have_bandwidth_phases_rows_and_memory(report: str) -> None:
    # 8 MB and 4 MB in 20 ms: 0.373 and 0.186 GiB/s; peak 200 MB = 0.186 GiB; 96 MB over 32 MB of input = 3.
    assert row(report, "Workers (", "0") == [
        "0",
        "node0",
        "0.373",
        "0.186",
        "0.279",
        "20.00",
        "30.00",
        "40.00",
        "2,000,000",
        "0.186",
        "0.0894",
        "3.00",
    ]


def test_pairs_link_lanes_and_verification(report: str) -> None:
    # 12 MB = 11.44 MiB in 30 ms = 0.373 GiB/s; link limit 480 MB/s = 0.447 GiB/s, of which 400 / 480.
    assert row(report, "Pairs: data sent", "0") == ["0", "·", "11.44"]
    assert row(report, "Pairs: bytes", "1") == ["1", "0.373", "·"]
    assert row(report, "Link", "Link limit of a worker (GiB/s)")[1] == (
        "0.447; not checked against ucx_perftest; use --check-link"
    )
    assert row(report, "Link", "Exchange speed (% of link limit)")[1] == "83"
    assert section(report, "Transports that") == [
        "configured: UCX_TLS=sm,tcp",
        "selected: sysv/memory, tcp/lo (all 2 pairs, same host)",
    ]
    (line, *_) = section(report, "Verification")
    assert line.startswith(
        "verified: 600,000 rows, checksum 0x00c0ffee; all 2 checks passed (count, every row, checksum"
    )


def test_a_broadcast_names_the_table_and_why(tmp_path: Path) -> None:
    options = {"distribution": "broadcast", "broadcast_side": "right", "distribution_reason": "it sends 1 B"}
    found = piped(write_campaign(tmp_path, Script(plan=plan(**options))))
    assert "Distribution                         broadcast: the right table goes whole to every worker" in found
    assert "(auto: it sends 1 B)" in found
    assert "exchange ucx with broadcast of the right table (auto)" in " ".join(found.split())
    assert "Distribution" not in piped(write_campaign(tmp_path, Script(plan=plan(distribution="shuffle"))))


def test_phases_at_once_are_told_with_what_limits_them(tmp_path: Path) -> None:
    # 12 MB at 480 MB/s need 25 ms; partition and join take 60 of 110 ms.
    found = piped(write_campaign(tmp_path, Script(plan={**plan(), "pipeline": True})))
    assert "ucx, overlapped with partition and join (--pipeline on)" in found
    assert row(found, "Link", "Wall-clock ÷ bytes at the link limit (×)")[1] == "4.40"
    assert "Phases (ms)   partition 20.00 (18%), exchange 30.00 (27%), join 40.00 (36%), overlapped" in found
    assert "Both frames are sent at the same time" in "\n".join(section(found, "Link"))


def test_protocols_by_message_size(report: str) -> None:
    found = section(report, "Protocols")
    assert [re.split(r"\s{2,}", line) for line in found[1:-1]] == [
        ["host", "0 to 8,191", "eager", "sysv/memory"],
        ["host", "8,192 and more", "rendezvous *", "tcp/lo"],
    ]
    assert found[-1].startswith("* Expected by the sender")


def test_what_devices_counted_stands_under_what_ranks_sent(report: str) -> None:
    # 2 ranks send 12 MB in each of 3 timed iterations: 72 MB = 68.66 MiB.
    assert [re.split(r"\s{2,}", line) for line in section(report, "Bytes sent")[1:-1]] == [
        ["node0", "sent by its ranks", "68.66"],
        ["node0", "counted by lo", "73.00"],
    ]


def test_it_ends_with_where_the_records_are(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path)
    assert piped(folder).splitlines()[-1] == f"Records: {folder / 'records.jsonl'}"


def test_a_pipe_gets_neither_colour_nor_lines_nor_trailing_spaces(report: str) -> None:
    assert "\x1b" not in report
    assert not re.search("[─│┃━|]", report)
    assert not [line for line in report.splitlines() if line != line.rstrip()]


def test_an_old_locale_gets_plain_characters(tmp_path: Path) -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    print_campaign_report(read_campaign(write_campaign(tmp_path)), file=file)
    assert b"merge_bench - 2" in raw.getvalue()


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_terminal_gets_colour_and_no_line_is_too_long(
    tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    file = Terminal()
    print_campaign_report(read_campaign(write_campaign(tmp_path, Script(plan=plan(8)))), file=file, width=width)
    assert "\x1b[1;36m" in file.getvalue()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())
    assert max(len(line) for line in plain.splitlines() if not line.startswith("Records: ")) <= width
    assert "2,000,000" in plain
    assert "Partition" in plain


def test_an_interval_says_its_ranks_and_coverage(tmp_path: Path) -> None:
    text = piped(write_campaign(tmp_path, *launches(6)))
    assert row(text, "Totals", "Wall-clock (ms)")[-1] == "110.00–160.00"
    assert "ranks 1 and 6 of 6 sorted launches; it contains the median with 96.9 % confidence" in text
    assert section(text, "Iterations")[0].split()[0] == "Launch"


def test_a_long_table_shows_its_ends(tmp_path: Path) -> None:
    walls = tuple(0.1 + 0.001 * (i % 7) for i in range(40))
    text = piped(write_campaign(tmp_path, Script(plan=plan(iterations=40), walls=walls)))
    first = [line.split()[0] for line in section(text, "Iterations")[1:12]]
    assert first == ["0", "1", "2", "3", "4", "…", "35", "36", "37", "38", "39"]
    assert "Shown: the first and last 5 of 40 iterations; the records contain all." in text


def test_a_table_of_20_is_shown_whole(tmp_path: Path) -> None:
    text = piped(write_campaign(tmp_path, Script(plan=plan(iterations=20), walls=(0.1,) * 20)))
    assert len(section(text, "Iterations")) == 21


def test_outliers_are_marked(tmp_path: Path) -> None:
    walls = (0.10, 0.11, 0.12, 0.11, 5.0)
    text = piped(write_campaign(tmp_path, Script(plan=plan(iterations=5), walls=walls)))
    assert row(text, "Iterations", "4")[-1] == "outlier"
    assert row(text, "Iterations", "3")[-1] != "outlier"


def test_slow_and_overloaded_workers_are_marked(tmp_path: Path) -> None:
    def heavy(worker: s.WorkerIteration) -> s.WorkerIteration:
        if worker.rank != 2:
            return worker
        return msgspec.structs.replace(
            worker,
            received_rows=s.FrameCounts(left=3_500_000, right=1_500_000),
            phases_seconds=s.PhaseSeconds(partition=0.02, exchange=0.03, join=0.09),
            flight_seconds=s.TransferSeconds(left=0.05, right=0.05, union=0.06),
        )

    text = piped(write_campaign(tmp_path, Script(plan=plan(4), worker=heavy)))
    assert row(text, "Workers (", "2")[-1] == "slowest, overloaded 2.50 ×, slow join"
    assert row(text, "Workers (", "1")[-1] == "3.00"
    assert "straggler: rank 2 (node0) is slow in join" in text
    assert "  → check the keys for skew" in text


def test_unverified_stands_beside_every_number(tmp_path: Path) -> None:
    text = piped(write_campaign(tmp_path, Script(plan=plan(verify="off"))))
    for heading in ("Totals", "Iterations", "Workers (", "Pairs: data sent", "Pairs: bytes", "Link"):
        lines = [line for line in section(text, heading) if re.search(r"\d\.\d", line)]
        assert lines
        assert [line for line in lines if not line.endswith("UNVERIFIED")] == []
    assert section(text, "Verification")[0].startswith("UNVERIFIED: the merge result was not checked (--verify off)")


def test_a_verified_run_says_unverified_nowhere(report: str) -> None:
    assert "UNVERIFIED" not in report
    assert "WRONG" not in report


def test_a_wrong_result_stands_beside_every_number(tmp_path: Path) -> None:
    def bad(check: s.VerificationLine) -> s.VerificationLine:
        return msgspec.structs.replace(check, ok=False, rows=599_999, message="1 row is missing")

    text = piped(write_campaign(tmp_path, Script(check=bad, end_status=4)))
    assert all(line.endswith("WRONG RESULT") for line in section(text, "Iterations")[1:])
    assert section(text, "Verification")[:2] == ["WRONG RESULT: 1 row is missing", "  rows 599,999, expected 600,000"]
    assert "wrong-result: 1 row is missing" in text.splitlines()


def test_absent_values_have_a_footnote(tmp_path: Path) -> None:
    text = piped(write_campaign(tmp_path, Script(plan=plan(exchange="dask"))))
    assert row(text, "Iterations", "0") == ["0", "100.00", "-", "0.596"]
    assert row(text, "Workers (", "0")[2:8] == ["-"] * 6
    assert "-  bandwidth, phases, received rows: not measured, because Dask's own shuffle" in text
    assert "-  link limit: not measured, because Dask's own shuffle" in text
    assert "-  95 % interval: needs at least 6 launches; this run has 1" in text


def test_one_worker_has_a_footnote_of_its_own(tmp_path: Path) -> None:
    text = piped(write_campaign(tmp_path, Script(plan=plan(1))))
    assert {"20.00", "2,000,000"} <= set(row(text, "Workers (", "0"))  # phases and received rows were measured
    assert "-  bandwidth: one worker sends nothing to others" in text
    assert "-  link, transports: one worker sends nothing to others" in text
    assert "Pairs" not in text
    assert "\nLink\n" not in text


def test_64_workers_have_rows_but_no_matrix(tmp_path: Path) -> None:
    text = piped(write_campaign(tmp_path, Script(plan=plan(64))))
    assert row(text, "Workers (", "63")[1] == "node15"
    assert "Pairs" not in text
    assert section(text, "Transports that")[-1] == "selected: sysv/memory, tcp/lo (all 4032 pairs, same host)"


def test_differing_lanes_are_grouped(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, Script(plan=plan(3)))
    pairs = [
        s.WorkerPairLanes(from_rank=a, to_rank=b, placement="between hosts", transports=["tcp/eth0"])
        if 2 in (a, b)
        else s.WorkerPairLanes(from_rank=a, to_rank=b, placement="same host", transports=["sysv/memory"])
        for a in range(3)
        for b in range(3)
        if a != b
    ]
    with (folder / "records.jsonl").open("ab") as stream:
        stream.write(msgspec.json.encode(s.LanesLine(launch=0, pairs=pairs)) + b"\n")
    lines = section(piped(folder), "Transports that")
    assert [re.split(r"\s{2,}", line) for line in lines[1:]] == [
        ["0→1, 1→0", "same host", "sysv/memory"],
        ["0→2, 1→2, 2→0, 2→1", "between hosts", "tcp/eth0"],
    ]


def test_a_launch_that_never_came_up_is_an_error_not_a_crash(tmp_path: Path) -> None:
    with CampaignWriter.create(tmp_path, "optimized") as writer:
        write_head(writer, [("optimized", 0)], [plan()])
        writer.write(s.FailureLine(launch=0, code="run-failed", message="no worker came", host="node0", rank=1))
        writer.write(s.LaunchEndLine(launch=0, status=3, seconds=30.0))
    text = piped(writer.folder)
    assert "run-failed: no worker came (rank 1, node0)" in text.splitlines()
    assert "Totals" not in text
    assert "UNVERIFIED" in text


def test_text_from_outside_is_printed_as_it_is(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path)
    line = s.WarningLine(code="x", message="[red]not markup[/red] :smile: [/]", remedy="[bold]")
    with (folder / "records.jsonl").open("ab") as stream:
        stream.write(msgspec.json.encode(line) + b"\n")
    assert "x: [red]not markup[/red] :smile: [/]" in piped(folder)


def test_a_small_sweep_has_reports_and_an_overview(tmp_path: Path) -> None:
    text = piped(write_campaign(tmp_path, Script(), Script(index=1, config="tuned", walls=(0.05, 0.06, 0.07))))
    assert text.count("merge_bench ·") == 2
    assert row(text, "All 2 runs", "tuned") == ["tuned", "60.00", "0.279", "0.993", "83", "join"]
    assert "All 2 runs, verified" in text
    assert text.count("\nRecords: ") == 1


def test_an_overview_has_the_distribution_without_its_reason(tmp_path: Path) -> None:
    reasons = [{"distribution": "shuffle", "distribution_reason": "few"}, {"distribution": "broadcast"}]
    scripts = [Script(index=at, plan_index=at, plan=plan(**each)) for at, each in enumerate(reasons)]
    heading, *_ = section(piped(write_campaign(tmp_path, *scripts)), "All 2 runs")
    assert "Distribution" in heading
    assert "reason" not in heading


def test_an_overview_shows_what_differs_between_the_plans(tmp_path: Path) -> None:
    plans = [plan(), plan(4, rows_per_chunk=25_000_000, iterations=2, error_handling=True)]
    scripts = [Script(index=k, plan_index=k, plan=each) for k, each in enumerate(plans)]
    heading, *lines = section(piped(write_campaign(tmp_path, *scripts)), "All 2 runs")
    assert re.split(r"\s{2,}", heading)[:4] == ["Config", "Rows per chunk", "Workers", "Error handling"]
    assert re.split(r"\s{2,}", lines[1])[:4] == ["optimized", "25,000,000", "4", "True"]


def test_tables_have_no_chunk_size(tmp_path: Path) -> None:
    tables = plan(rows_per_chunk=None, workload={"name": "tables"})
    folder = write_campaign(tmp_path)
    path = folder / "records.jsonl"
    head, *rest = path.read_bytes().splitlines(keepends=True)
    line = msgspec.json.decode(head) | {"plans": [tables]}
    path.write_bytes(msgspec.json.encode(line) + b"\n" + b"".join(rest))
    assert "as in the tables" in piped(folder)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (0.0, "0.00"), (12345.6, "12,346"), (12.374, "12.37"), (0.3714, "0.371"), (0.01234, "0.0123")],
)
def test_numbers_keep_three_digits(value: float | None, shown: str) -> None:
    assert format_number(value) == shown
