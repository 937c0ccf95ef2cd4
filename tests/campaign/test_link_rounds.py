"""How often the link measurement is repeated, and what else is measured after the merges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import merge_bench
from merge_bench.analysis.documents import run_documents
from merge_bench.analysis.summary import summarize_campaign
from merge_bench.campaign.measure_launch import LINK_ATTEMPTS, link_rounds_to_measure
from merge_bench.errors import RunFailed
from merge_bench.merge import worker
from merge_bench.merge.merger import TransferTotals
from merge_bench.merge.worker import ONE_ROW_MERGES
from merge_bench.records import schema as s
from merge_bench.records.reader import read_campaign
from merge_bench.testing import fake_cluster


@pytest.mark.parametrize(
    ("least", "seconds", "rounds"),
    [
        (5, 1.0, 5),
        (5, 0.02, 5),
        (5, 0.01, 10),
        (5, 0.001, 50),  # no more, whatever they take
        (100, 0.001, 100),
        (1, 1.0, 1),
        (5, 0.0, 5),  # nobody has anything to send, as where no row has a match and a filter drops them all
    ],
)
def test_short_rounds_are_repeated(least: int, seconds: float, rounds: int) -> None:
    assert link_rounds_to_measure(least, seconds) == rounds


@pytest.mark.parametrize(
    ("seconds", "attempts"),
    [
        ([1e-9], 1),
        ([1e3, 1e-9], 2),  # disturbed at first
        ([1e3, 1e3, 1e3, 1e-9], LINK_ATTEMPTS),  # no more, whatever comes
    ],
)
def test_a_limit_that_exchanges_exceed_is_measured_again(
    seconds: list[float], attempts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[int] = Counter()

    def measure_link(rounds: int, *, keep_timelines: bool = True) -> list[TransferTotals]:
        """Rounds that take the seconds of this attempt, after the one round that does not count."""
        rank = worker.current_plugin().launch_state.rank
        took = seconds[max(0, min(calls[rank], len(seconds)) - 1)]
        calls[rank] += 1
        flight = s.TransferSeconds(left=took, right=0.0, union=took)
        return [TransferTotals(s.FrameCounts(left=1000, right=0), flight, {})] * rounds

    monkeypatch.setattr(worker, "measure_link", measure_link)
    with fake_cluster():
        result = merge_bench.run(chunk=1000, iterations=2, workers=2, link_rounds=6, results=tmp_path)
    assert calls == {0: 1 + attempts, 1: 1 + attempts}
    campaign = read_campaign(result.folder)
    (launch,) = campaign.launches
    assert launch.link is not None
    per_attempt = link_rounds_to_measure(6, seconds[0])
    assert launch.link.rounds == [[took] * 2 for took in seconds[:attempts] for _ in range(per_attempt)]
    assert launch.link.limit_bytes_per_second == pytest.approx(1000 / seconds[attempts - 1])
    (link,) = [one.link for one in run_documents(summarize_campaign(campaign))]
    assert link is not None
    # On a busy machine the threads do not have their cores, which is said of a limit that nothing exceeds.
    assert (link.disturbed or "").startswith("exchanges ran ") == (seconds[attempts - 1] > 1)
    assert (link.fraction is None) == (link.disturbed is not None)


def test_merges_of_one_row_and_processor_time_by_phase_are_recorded(tmp_path: Path) -> None:
    with fake_cluster():
        result = merge_bench.run(chunk=1000, iterations=2, workers=2, results=tmp_path)
    (launch,) = read_campaign(result.folder).launches
    assert launch.memory is not None
    assert [len(each.one_row_merge_seconds) for each in launch.memory.workers] == [ONE_ROW_MERGES] * 2
    for iteration in launch.timed_iterations:
        for each in iteration.workers:
            cpu = each.phases_cpu_seconds
            assert cpu is not None
            assert (cpu.partition or 0) + (cpu.exchange or 0) + (cpu.join or 0) == pytest.approx(each.cpu_seconds)


def fail_the_second_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[int] = Counter()

    def measure_link(rounds: int, *, keep_timelines: bool = True) -> list[TransferTotals]:
        rank = worker.current_plugin().launch_state.rank
        calls[rank] += 1
        if calls[rank] > 2:  # the one round that does not count, and one attempt
            raise RuntimeError("the link broke")
        flight = s.TransferSeconds(left=1e3, right=0.0, union=1e3)
        return [TransferTotals(s.FrameCounts(left=1000, right=0), flight, {})] * rounds

    monkeypatch.setattr(worker, "measure_link", measure_link)


def fail_the_merges_of_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure_fixed_costs() -> list[float]:
        raise RuntimeError("no more")

    monkeypatch.setattr(worker, "measure_fixed_costs", measure_fixed_costs)


@pytest.mark.parametrize("fail", [fail_the_second_attempt, fail_the_merges_of_one_row])
def test_what_was_measured_at_the_end_of_a_launch_is_kept_if_the_next_step_fails(
    fail: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch)
    with fake_cluster(), pytest.raises(RunFailed):
        merge_bench.run(chunk=1000, iterations=2, workers=2, link_rounds=6, results=tmp_path)
    (folder,) = tmp_path.iterdir()
    (launch,) = read_campaign(folder).launches
    assert launch.link is not None
    assert len(launch.link.rounds) >= 6
    if fail is fail_the_merges_of_one_row:
        assert launch.memory is not None
        assert all(each.peak_bytes and each.copy_seconds for each in launch.memory.workers)
