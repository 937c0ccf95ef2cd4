"""`benchmarks/width.py`: sizes, what is made of records that are made up, the table, and wrong options."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import width as command
from benchmarks.width import (
    BURST_BYTES,
    PAYLOAD,
    ROW_BYTES,
    Size,
    Wide,
    dropped_share,
    exchanged,
    judge,
    number,
    size,
    table,
)
from merge_bench.errors import RunFailed
from merge_bench.records import schema as s
from tests.helpers.benchmark_commands import refusal
from tests.hosts import make_hosts

ROOT = Path(__file__).resolve().parents[2]
MADE = Size(workers=2, rate=8_000_000, chunk=1000)  # 1 MB/s


@pytest.mark.parametrize("workers", [2, 8, 32])
def test_all_links_together_get_the_budget_and_each_is_busy_for_the_seconds_asked_for(workers: int) -> None:
    made = size(workers, budget=1.6e9, seconds=0.5)
    assert made.rate * workers == pytest.approx(1.6e9 * 8)
    sent = made.chunk * ROW_BYTES * (workers - 1) / workers
    assert sent / (made.rate / 8) == pytest.approx(0.5, rel=1e-5)
    assert made.link == pytest.approx(1.6e9 / workers * 1448 / 1514)


def test_memory_grows_with_data_and_with_processes() -> None:
    assert size(32, 1e9, 1.0).memory_bytes - size(2, 1e9, 1.0).memory_bytes > 0  # the data shrink, processes do not
    assert Size(2, 1, 10**6).memory_bytes > Size(2, 1, 10**5).memory_bytes


def test_the_burst_is_the_one_that_hosts_are_made_with() -> None:
    assert f"{BURST_BYTES >> 20}mb" == make_hosts.BURST


def test_widths_are_taken_the_least_first_and_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[int] = []

    def measure(_: Any, made: Size, iterations: int) -> Wide:
        measured.append(made.workers)
        return replace(SEEN, workers=made.workers)

    for name, made in (("need_hosts", lambda: None), ("measure", measure)):
        monkeypatch.setattr(command, name, made)
    command.width.main(["--workers", "16,2, 4,2", "--budget", "1"], standalone_mode=False)
    assert measured == [2, 4, 16]
    assert len(capsys.readouterr().out.splitlines()) == 2 + 3


@pytest.mark.parametrize("text", ["", "two", "1", "1000", "2.5"])
def test_widths_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number from 2 to 200"):
        number(text)


def worker(rank: int, sent: int, union: float, exchange: float, **changes: Any) -> s.WorkerIteration:
    told: dict[str, Any] = {
        "rank": rank,
        "seconds": 2 * exchange,
        "phases_seconds": s.PhaseSeconds(partition=0.1, exchange=exchange, join=0.1),
        "sent_bytes": s.FrameCounts(left=sent, right=0),
        "flight_seconds": s.TransferSeconds(left=union, right=0.0, union=union),
    }
    return s.WorkerIteration(**told | changes)


def iteration(index: int, workers: list[s.WorkerIteration], seconds: float = 3.0) -> s.IterationLine:
    """Rank 0 sends rank 1 three times a burst, and gets two bursts; both arrive within `seconds`."""
    pairs = [
        s.PairTraffic(from_rank=0, to_rank=1, bytes=3 * BURST_BYTES, seconds=seconds),
        s.PairTraffic(from_rank=1, to_rank=0, bytes=2 * BURST_BYTES, seconds=seconds),
    ]
    return s.IterationLine(launch=0, index=index, wall_seconds=9.0, workers=workers, pairs=pairs)


WORKERS = [worker(0, 3 * BURST_BYTES, 4.0, 4.5), worker(1, 2 * BURST_BYTES, 6.0, 6.5)]


def launch(lines: list[s.IterationLine], *, lanes: str = "tcp/eth0") -> Any:
    pairs = [s.WorkerPairLanes(from_rank=a, to_rank=1 - a, transports=[lanes]) for a in (0, 1)]
    memory = [s.WorkerMemory(rank=a, peak_above_imports_bytes=300 + a, input_bytes=100) for a in (0, 1)]
    return SimpleNamespace(
        lanes=s.LanesLine(launch=0, pairs=pairs),
        memory=s.MemoryLine(launch=0, workers=memory),
        line=SimpleNamespace(startup_seconds=7.0),
        timed_iterations=tuple(lines),
    )


def test_the_least_time_is_that_of_the_busier_direction_without_the_burst() -> None:
    seen = exchanged(iteration(0, WORKERS))
    assert (seen.sent, seen.received) == ((3 << 20, 2 << 20), (2 << 20, 3 << 20))
    assert seen.least(link=1e6) == [2 * BURST_BYTES / 1e6] * 2


def test_arrivals_are_late_where_all_sources_end_together_and_early_where_they_take_turns() -> None:
    together = [worker(0, 1, 3.0, 3.0), worker(1, 1, 3.0, 3.0)]
    assert exchanged(iteration(0, together, seconds=3.0)).arrivals == pytest.approx(1.0)
    assert exchanged(iteration(0, together, seconds=1.5)).arrivals == pytest.approx(0.5)


def test_a_launch_is_judged_by_its_slowest_and_its_median_worker() -> None:
    seen = judge(launch([iteration(0, WORKERS), iteration(1, WORKERS)]), MADE, dropped=0.01)
    least = 2 * BURST_BYTES / (1e6 * PAYLOAD)
    assert seen.exchange == 6.5
    assert seen.least == pytest.approx(least)
    assert seen.ratio == pytest.approx(6.5 / least)
    assert seen.slowest == pytest.approx(2 * BURST_BYTES / 6.0)
    assert seen.middle == pytest.approx((3 * BURST_BYTES / 4.0 + 2 * BURST_BYTES / 6.0) / 2)
    assert (seen.slowest_fraction, seen.middle_fraction) == (
        pytest.approx(least / 6),
        pytest.approx((least / 4 + least / 6) / 2),
    )
    assert (seen.peak_over_input, seen.startup, seen.dropped) == (3.01, 7.0, 0.01)


def test_workers_that_reach_each_other_otherwise_than_by_the_links_are_no_measurement() -> None:
    with pytest.raises(RunFailed, match="rank 0 to rank 1 uses sysv/memory"):
        judge(launch([iteration(0, WORKERS)], lanes="sysv/memory"), MADE, None)


@pytest.mark.parametrize("missing", ["sent_bytes", "flight_seconds", "phases_seconds"])
def test_a_worker_that_did_not_tell_of_its_exchange_is_named(missing: str) -> None:
    with pytest.raises(RunFailed, match="rank 1 did not report its exchange"):
        exchanged(iteration(0, [WORKERS[0], worker(1, 1, 1.0, 1.0, **{missing: None})]))


def test_only_shaped_ports_count_their_drops() -> None:
    ports = [
        {"kind": "tbf", "drops": 1, "packets": 99},
        {"kind": "tbf", "drops": 0, "packets": 100},
        {"kind": "noqueue", "drops": 50, "packets": 50},
    ]
    assert dropped_share(ports) == 1 / 200
    assert dropped_share(ports[2:]) is None


SEEN = Wide(
    workers=4,
    rate=200_000_000,
    chunk=1000,
    sent=25e6,
    wall=2.5,
    exchange=1.5,
    least=1.25,
    slowest=20e6,
    middle=22e6,
    slowest_fraction=0.84,
    middle_fraction=0.9,
    arrivals=0.95,
    dropped=0.002,
    peak_over_input=3.5,
    startup=8.2,
)


def test_the_table_has_a_row_for_each_width() -> None:
    rows = table([SEEN, replace(SEEN, workers=8, dropped=None)]).splitlines()
    assert rows[2] == (
        "| 4 | 200 | 25 | 2500 | 1500 | 1250 | 1.20 | 20.0 | 22.0 | 84% | 90% | 0.95 | 0.20% | 3.50 | 8 |"
    )
    assert rows[3].startswith("| 8 |")
    assert "| - | 3.50 |" in rows[3]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--workers", "2,,4"], "Invalid value for '--workers': '' is not a number from 2 to 200"),
        (["--budget", "0"], "0.0 is not in the range x>0"),
        (["--output", "/no/such/folder/x.json"], "the folder /no/such/folder does not exist"),
    ],
)
def test_wrong_options_are_one_sentence_and_status_2(
    options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = refusal(command.width, *options, capsys=capsys)
    assert sentence in errors
    assert len(errors.strip().splitlines()) == 1


def test_the_stored_measurement_had_links_within_a_quarter_of_what_the_machine_moves() -> None:
    stored = json.loads((ROOT / "results" / "curated" / "width-cpu-2026-11" / "width.json").read_text())
    assert stored["failures"] == []
    for each in stored["widths"]:
        assert each["workers"] * each["rate"] / 8 <= stored["moved_bytes_per_second"] / 4
        assert each["exchange_over_least"] == pytest.approx(each["exchange"] / each["least"])
