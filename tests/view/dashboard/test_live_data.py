"""What the Live tab is told: how far a campaign is, what each iteration gave, what its workers do."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from merge_bench.dashboard.live_data import (
    RECENT,
    IterationPoints,
    campaign_progress,
    failure_sentences,
    make_live_state,
    seconds_left,
)
from merge_bench.records import schema as s
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import CampaignFollower, read_campaign
from merge_bench.records.writer import CampaignWriter
from merge_bench.report.page.results import source_runs
from merge_bench.units import GIB
from merge_bench.view.plot import Cells
from merge_bench.view.plot.merge import phase_milliseconds
from tests.helpers.documents import summarized
from tests.helpers.synthetic_campaigns import (
    CHUNK_BYTES,
    LANES,
    LEFT_BYTES,
    RIGHT_BYTES,
    Script,
    iteration,
    launches,
    plan,
    write_campaign,
    write_head,
    write_launch,
    write_start,
)

CAMPAIGNS = Path(__file__).parents[2] / "data" / "campaigns"


def timed(campaign: Path, *times: float) -> Campaign:
    """`campaign` with its lines written at `times`, seconds; the rest one second later each."""
    path = campaign / "records.jsonl"
    lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    for number, line in enumerate(lines):
        line["time"] = times[number] if number < len(times) else times[-1] + number - len(times) + 1
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return read_campaign(campaign)


def unfinished(folder: Path, script: Script, iterations: int) -> Path:
    """A campaign whose first launch has made a warm-up and so many timed iterations."""
    with CampaignWriter.create(folder, script.config) as writer:
        write_head(writer, [(script.config, 0)], [script.plan])
        write_start(writer, script)
        writer.write(iteration(script, 0, 0.5, warmup=True))
        for index in range(iterations):
            writer.write(iteration(script, index, 0.1))
    return writer.folder


@pytest.mark.parametrize("kind", ["sweep", "tune"])
def test_each_config_has_the_look_that_it_has_in_the_report(kind: str, tmp_path: Path) -> None:
    """Also where the first launch is not that of the first config, as with blocks in a random order."""
    lines = (CAMPAIGNS / kind / "records.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "records.jsonl").write_bytes(b"".join(line for line in lines if b'"launch":0,' not in line))
    points, follower = IterationPoints(), CampaignFollower(tmp_path)
    points.add_records(follower.read())
    assert follower.campaign is not None
    looks = {source.run.config.name: source.look for source in source_runs([follower.campaign])}
    assert {point.config: point.look for point in points.timed} == looks
    assert points.timed[0].config != next(iter(looks)) or kind == "tune"


def test_each_timed_iteration_is_a_point_and_a_warm_up_is_none(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, Script(), Script(index=1, config="tcp", walls=(0.2,)))
    points = IterationPoints()
    found = points.add_records(CampaignFollower(folder).read())
    assert [(point.number, point.launch, point.index, point.config, point.look) for point in found] == [
        (1, 0, 0, "optimized", 0),
        (2, 0, 1, "optimized", 0),
        (3, 0, 2, "optimized", 0),
        (4, 1, 0, "tcp", 1),
    ]
    assert found[3].throughput == pytest.approx(2 * 2 * CHUNK_BYTES / 0.2)
    assert found[3].bandwidth == pytest.approx((LEFT_BYTES / 0.02 + RIGHT_BYTES / 0.02) / 2)


def test_the_bandwidth_so_far_is_the_one_that_the_report_will_have(tmp_path: Path) -> None:
    def uneven(worker: s.WorkerIteration) -> s.WorkerIteration:
        flight = s.TransferSeconds(left=0.02 + 0.01 * worker.rank, right=0.03 * worker.seconds, union=0.05)
        return msgspec.structs.replace(worker, flight_seconds=flight)

    folder = write_campaign(tmp_path, Script(plan=plan(4), walls=(0.1, 0.3, 0.2), worker=uneven))
    points = IterationPoints()
    points.add_records(CampaignFollower(folder).read())
    report = summarized(read_campaign(folder))["bandwidth_bytes_per_second"]["harmonic_mean"]
    assert points.launch_bandwidth(0) == pytest.approx(report)
    assert points.launch_bandwidth(7) is None


def test_only_what_is_new_becomes_points(tmp_path: Path) -> None:
    script = Script()
    folder = unfinished(tmp_path, script, 2)
    points, follower = IterationPoints(), CampaignFollower(folder)
    assert len(points.add_records(follower.read())) == 2
    with (folder / "records.jsonl").open("ab") as stream:
        stream.write(msgspec.json.encode(iteration(script, 2, 0.3)) + b"\n")
    (new,) = points.add_records(follower.read())
    assert (new.number, new.wall_seconds) == (3, 0.3)


def test_workers_are_medians_of_the_last_iterations(tmp_path: Path) -> None:
    count = 3 * RECENT
    script = Script(plan=plan(iterations=count), end_status=None)
    folder = unfinished(tmp_path, script, 0)
    with (folder / "records.jsonl").open("ab") as stream:
        for index in range(count):
            line = iteration(script, index, 0.1)
            if index >= count - RECENT:
                phases = s.PhaseSeconds(partition=0.02, exchange=0.03, join=0.08)
                workers = [
                    msgspec.structs.replace(w, phases_seconds=phases, overlap_seconds=0.01, seconds=0.15)
                    for w in line.workers
                ]
                line = msgspec.structs.replace(line, workers=workers)
            stream.write(msgspec.json.encode(line) + b"\n")
    worker, _ = make_live_state(read_campaign(folder)).workers
    assert phase_milliseconds(worker) == pytest.approx((10, 10, 20, 80, 30))


def test_pairs_are_those_of_the_last_iteration_with_their_lanes(tmp_path: Path) -> None:
    found = make_live_state(read_campaign(write_campaign(tmp_path, Script(plan=plan(4)))))
    cells = next(mark for _, mark in found.pairs.marks)
    assert isinstance(cells, Cells)
    assert (cells.y[:4], cells.x[:4]) == ([0, 0, 0, 1], [1, 2, 3, 0])
    assert cells.details["lanes"][:2] == [", ".join(LANES), ", ".join(LANES)]
    assert found.rates == ()
    assert cells.values[0] == pytest.approx((LEFT_BYTES + RIGHT_BYTES) / 0.03 / GIB)


def test_pairs_of_few_workers_are_a_table(tmp_path: Path) -> None:
    found = make_live_state(read_campaign(write_campaign(tmp_path)))
    assert found.pairs.empty
    assert [(column.heading, column.cells) for column in found.rates] == [
        ("from \\ to", ["0", "1"]),
        ("0", ["·", "0.373"]),
        ("1", ["0.373", "·"]),
    ]


def test_memory_stays_from_the_last_launch_that_told_it(tmp_path: Path) -> None:
    with CampaignWriter.create(tmp_path, "optimized") as writer:
        write_head(writer, [("optimized", 0)], [plan(launches=2)])
        write_launch(writer, Script())
        write_start(writer, Script(index=1))
    found = make_live_state(read_campaign(writer.folder))
    assert found.memory is not None
    assert (found.launch, found.memory.launch) == (1, 0)
    assert found.memory.workers[1].peak_bytes == 200_000_000 + 1


def test_failures_and_warnings_come_with_what_helps(tmp_path: Path) -> None:
    with CampaignWriter.create(tmp_path, "optimized") as writer:
        write_head(writer, [("optimized", 0)], [plan()])
        for _ in range(3):
            writer.write(s.WarningLine(code="x", message="slow disk", remedy="another disk"))
        writer.write(s.FailureLine(launch=0, config="optimized", plan=0, code="run-failed", message="died", host="n1"))
    assert [(note.kind, note.message, note.remedy) for note in make_live_state(read_campaign(writer.folder)).notes] == [
        ("failed", "died", f"read {writer.folder / 'logs'}"),
        ("warning", "slow disk", "another disk"),
    ]


def test_a_failed_run_says_where_it_failed_and_where_its_logs_are(tmp_path: Path) -> None:
    recorded = Path(__file__).parents[2] / "data" / "campaigns" / "failed"
    shutil.copytree(recorded, tmp_path / "failed")
    log = tmp_path / "failed" / "logs" / "launch-000-worker-1.log"
    log.parent.mkdir()
    log.touch()
    why = "rank 1 (worker worker-1, process 32307 on vm) was killed by signal 9 during the run"
    where, logs = "launch 0, default, after 14 timed iterations, rank 1, vm", f"read {log.parent / 'launch-000-*.log'}"
    found = make_live_state(read_campaign(tmp_path / "failed"))
    assert found.conclusion.count(why) == 1
    assert found.fatal == ()  # because the conclusion says it
    assert [(note.message, note.remedy) for note in found.notes if note.kind == "failed"] == [(where, logs)]
    assert failure_sentences(read_campaign(tmp_path / "failed"), running=False) == (f"{why} ({where}); {logs}",)
    assert failure_sentences(read_campaign(recorded.parent / "run"), running=False) == ()


def test_a_failed_launch_is_not_finished_and_counts_by_its_iterations() -> None:
    progress = campaign_progress(read_campaign(Path(__file__).parents[2] / "data" / "campaigns" / "failed"))
    assert (progress.launches, progress.failed, progress.planned_launches) == (0, 1, 1)
    assert progress.planned_iterations
    assert progress.share == pytest.approx(14 / progress.planned_iterations)
    whole = campaign_progress(read_campaign(Path(__file__).parents[2] / "data" / "campaigns" / "run"))
    assert (whole.launches, whole.failed) == (whole.planned_launches, 0)


def test_an_interrupted_launch_is_not_finished_as_the_command_says() -> None:
    campaign = read_campaign(Path(__file__).parents[2] / "data" / "campaigns" / "interrupted")
    progress = campaign_progress(campaign)
    assert (progress.launches, len(campaign.launches)) == (3, 4)


def test_a_flood_of_warnings_is_cut(tmp_path: Path) -> None:
    with CampaignWriter.create(tmp_path, "optimized") as writer:
        write_head(writer, [("optimized", 0)], [plan()])
        for number in range(70):
            writer.write(s.WarningLine(code="x", message=f"warning {number}"))
    notes = make_live_state(read_campaign(writer.folder)).notes
    assert len(notes) == 51
    assert notes[-1].message == "and 20 more"


def test_the_time_left_is_that_of_whole_launches_like_the_ones_before(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, *launches(2), end=None)
    with_more = folder / "records.jsonl"
    with_more.write_bytes(with_more.read_bytes().replace(b'"launches":2', b'"launches":5'))
    campaign = timed(folder, 0.0)
    first = campaign.launches[0]
    assert first.line is not None
    assert first.end is not None
    length = first.end.time - first.line.time + 1.5
    assert seconds_left(campaign) == pytest.approx(3 * length)
    assert campaign_progress(campaign).launches == 2
    assert campaign_progress(campaign).planned_launches == 5


def test_the_time_left_of_the_first_launch_follows_from_its_iterations(tmp_path: Path) -> None:
    script = Script(plan=plan(iterations=10))
    campaign = timed(unfinished(tmp_path, script, 4), 0, 10, 12, 13, 14, 15, 16)
    # Started 1.5 s before its line at 10; a warm-up and ten iterations of 1 s make 12.5 s, and 7.5 s are over.
    assert seconds_left(campaign) == pytest.approx(5.0)
    assert campaign_progress(campaign).share == pytest.approx(0.4)


def test_iterations_that_are_written_in_bursts_count_by_their_mean(tmp_path: Path) -> None:
    script = Script(plan=plan(iterations=101, warmup=0))
    campaign = timed(unfinished(tmp_path, script, 5), 0, 10, 10.5, 10.5, 10.5, 10.5, 14.5)
    # A warm-up at 10.5 and five iterations until 15.5 took 1 s each.
    assert seconds_left(campaign) == pytest.approx(1.5 + 101 * 1.0 - (15.5 - 10 + 1.5))


def test_nobody_can_tell_the_time_left_before_iterations_or_after_the_end(tmp_path: Path) -> None:
    assert campaign_progress(read_campaign(unfinished(tmp_path / "a", Script(), 0))).left == ""
    assert campaign_progress(read_campaign(write_campaign(tmp_path / "b"))).left == ""
    killed = read_campaign(unfinished(tmp_path / "c", Script(), 3))
    assert campaign_progress(killed, running=False).left == ""
    assert "no end was recorded" in campaign_progress(killed, running=False).doing


def test_a_tuning_that_the_real_command_recorded_counts_without_an_end_that_nobody_knows(tmp_path: Path) -> None:
    recorded = Path(__file__).parents[2] / "data" / "campaigns" / "tune" / "records.jsonl"
    lines = recorded.read_bytes().splitlines(keepends=True)
    whole = campaign_progress(read_campaign(recorded))
    assert (whole.planned_launches, whole.planned_iterations, whole.share) == (None, None, 1.0)
    assert whole.launches == sum(b'"kind":"launch_end"' in line for line in lines)
    assert whole.iterations == sum(b'"kind":"iteration"' in line and b'"warmup":true' not in line for line in lines)
    part = tmp_path / "records.jsonl"
    part.write_bytes(b"".join(lines[: len(lines) // 2]))
    half = campaign_progress(read_campaign(part))
    assert half.share is None  # without a budget of time nobody knows the whole
    assert half.stage is not None
    assert half.stage.doing == "comparing each of 4 candidates alone with default, block 2 of 3"
    assert half.left.startswith("About ")
    assert 0 < half.launches < whole.launches


@pytest.mark.parametrize(("name", "doing"), [("interrupted", "interrupted"), ("failed", "ended with status 3")])
def test_who_pressed_stop_reads_of_an_interruption(name: str, doing: str) -> None:
    assert campaign_progress(read_campaign(CAMPAIGNS / name), running=False).doing == doing


@pytest.mark.parametrize(
    ("status", "share", "doing"), [(0, 1.0, "finished successfully"), (3, 0.99, "ended with status 3")]
)
def test_an_end_is_told_with_its_status(tmp_path: Path, status: int, share: float, doing: str) -> None:
    progress = campaign_progress(read_campaign(write_campaign(tmp_path, end=status)))
    assert (progress.share, progress.doing) == (share, doing)


def test_one_worker_has_no_pairs_and_dask_tells_nothing_of_workers(tmp_path: Path) -> None:
    alone = make_live_state(read_campaign(write_campaign(tmp_path / "a", Script(plan=plan(1)))))
    assert alone.pairs.empty
    assert alone.workers[0].bandwidth.mean is None
    dask = make_live_state(read_campaign(write_campaign(tmp_path / "b", Script(plan=plan(exchange="dask")))))
    assert [worker.bandwidth.mean for worker in dask.workers] == [None, None]
    assert [phase_milliseconds(worker) for worker in dask.workers] == [None, None]
