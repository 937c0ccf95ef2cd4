"""The error of a run that is not complete, and the warnings about its figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from merge_bench.analysis.summary import summarize_campaign
from merge_bench.records import schema as s
from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import CampaignWriter
from tests.analysis.summaries import append, codes, document
from tests.helpers.synthetic_campaigns import (
    Script,
    interleaved,
    iteration,
    launches,
    plan,
    write_campaign,
    write_head,
    write_start,
)


def test_a_worker_that_died_leaves_what_was_measured(tmp_path: Path) -> None:
    script = Script(walls=(0.10, 0.12), end_status=None)
    folder = write_campaign(tmp_path, script, end=None)
    append(
        folder,
        s.FailureLine(launch=0, code="run-failed", message="rank 1 went silent", host="node0", rank=1),
        s.LaunchEndLine(launch=0, status=3, seconds=9.0),
        s.CampaignEndLine(status=3),
    )
    found = document(folder)
    assert found["error"] == {"code": "run-failed", "message": "rank 1 went silent", "host": "node0", "rank": 1}
    assert found["wall_seconds"]["median"] == pytest.approx(0.11)
    assert found["verified"] is False
    assert codes(found) == ["not-verified", "failed-launches"]
    assert found["warnings"][-1]["message"] == "1 of 1 launches failed; the numbers are from before the failure"


def test_a_launch_that_failed_before_its_first_iteration_has_no_numbers(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, Script(walls=(), end_status=3), end=3)
    append(folder, s.FailureLine(launch=0, code="run-failed", message="no memory"))
    warned = {each["code"]: each["message"] for each in document(folder)["warnings"]}
    assert warned["failed-launches"] == "1 of 1 launches failed; nothing was measured"


def test_whole_launches_make_the_numbers_and_failed_ones_are_counted(tmp_path: Path) -> None:
    scripts = launches(3)
    scripts[0] = replace(scripts[0], walls=(9.0, 9.0), end_status=3)
    found = document(write_campaign(tmp_path, *scripts, end=3))
    # Launches 1 and 2 have medians 0.12 and 0.13.
    assert found["wall_seconds"]["median"] == pytest.approx(0.125)
    assert found["wall_seconds"]["max"] == pytest.approx(0.14)
    assert found["verified"] is True
    assert found["error"]["code"] == "run-failed"
    assert "1 of 3 launches failed; the numbers are from the 2 complete launches" in found["warnings"][0]["message"]


def test_a_launch_that_never_came_up(tmp_path: Path) -> None:
    with CampaignWriter.create(tmp_path, "optimized") as writer:
        write_head(writer, [("optimized", 0)], [plan()])
        writer.write(s.FailureLine(launch=0, code="run-failed", message="no worker came within 30 s"))
        writer.write(s.LaunchEndLine(launch=0, status=3, seconds=30.0))
        writer.write(s.CampaignEndLine(status=3))
    found = document(writer.folder)
    assert found["error"]["message"] == "no worker came within 30 s"
    assert set(found["wall_seconds"].values()) == {None}
    bandwidth = found["bandwidth_bytes_per_second"]
    assert set(bandwidth.pop("spread").values()) == {None}
    assert bandwidth == {"harmonic_mean": None, "min": None, "max": None, "per_worker": []}
    assert found["result_rows"] is None
    assert found["verified"] is False
    assert [each["message"] for each in found["warnings"]] == ["1 of 1 launches failed; nothing was measured"]


def test_a_killed_run_says_so(tmp_path: Path) -> None:
    with CampaignWriter.create(tmp_path, "optimized") as writer:
        script = Script()
        write_head(writer, [("optimized", 0)], [script.plan])
        write_start(writer, script)
        writer.write(iteration(script, 0, 0.1))
    with writer.records.open("ab") as stream:
        stream.write(b'{"kind":"iteration","sch')
    found = document(writer.folder)
    assert found["error"]["code"] == "unfinished"
    assert "after 0 of 1 launches" in found["error"]["message"]
    assert found["wall_seconds"]["median"] == 0.1
    assert found["verified"] is False
    assert codes(found) == ["not-verified", "half-written-line"]


def test_a_wrong_result_comes_before_any_other_failure(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, *launches(2), end=4)
    append(
        folder,
        s.FailureLine(launch=0, code="run-failed", message="rank 1 died"),
        s.FailureLine(launch=1, code="wrong-result", message="1 row is missing"),
    )
    assert document(folder)["error"]["message"] == "1 row is missing"


def test_in_a_killed_sweep_only_the_open_runs_are_in_error(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, Script(), Script(index=1, config="tuned", end_status=None), end=None)
    assert [run["error"] and run["error"]["code"] for run in document(folder)["runs"]] == [None, "unfinished"]


def test_a_failure_of_the_whole_campaign_is_that_of_every_open_run(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, Script(), Script(index=1, config="tuned", end_status=None), end=None)
    append(folder, s.FailureLine(launch=None, code="run-failed", message="interrupted"), s.CampaignEndLine(status=3))
    assert [run["error"] and run["error"]["message"] for run in document(folder)["runs"]] == [None, "interrupted"]


def test_an_overloaded_rank_is_named(tmp_path: Path) -> None:
    def skewed(worker: s.WorkerIteration) -> s.WorkerIteration:
        heavy = s.FrameCounts(left=3_500_000, right=1_500_000)
        return msgspec.structs.replace(worker, received_rows=heavy) if worker.rank == 2 else worker

    found = document(write_campaign(tmp_path, Script(plan=plan(4), worker=skewed)))
    assert codes(found) == ["overloaded-rank"]
    message = found["warnings"][0]["message"]
    assert message == "rank 2 (node0) received 5,000,000 rows, 2.50 × the mean of the other ranks"


def test_outliers_are_flagged_and_kept(tmp_path: Path) -> None:
    walls = (0.10, 0.11, 0.12, 0.11, 5.0)
    found = document(write_campaign(tmp_path, Script(plan=plan(iterations=5), walls=walls)))
    assert codes(found) == ["outliers"]
    assert "iteration 4 of launch 0;" in found["warnings"][0]["message"]
    assert found["wall_seconds"]["max"] == 5.0


def test_an_outlier_of_a_campaign_of_several_configs_names_its_config(tmp_path: Path) -> None:
    walls = (0.10, 0.11, 0.12, 0.11, 5.0)
    scripts = interleaved({"default": [0.1], "tcp": [0.1]})
    folder = write_campaign(tmp_path, scripts[0], replace(scripts[1], plan=scripts[0].plan, walls=walls))
    found = summarize_campaign(read_campaign(folder))
    said = [each.message for one in found.runs for each in one.warnings if each.code == "outliers"]
    assert len(said) == 1
    assert f"iteration 4 of launch 1 ({scripts[1].config});" in said[0]


def test_after_an_interruption_every_run_that_is_not_complete_says_so_and_nothing_else() -> None:
    """Not that it was killed or goes on, beside it."""
    interrupted = read_campaign(Path(__file__).parents[1] / "data" / "campaigns" / "interrupted")
    errors = [one.error for one in summarize_campaign(interrupted).runs if one.error is not None]
    where = "interrupted by SIGINT in launch 3 before its first timed iteration"
    assert {(each.code, each.message) for each in errors} == {("interrupted", where)}
    assert len(errors) == 2


def recorded(launch: int | None) -> s.WarningLine:
    return s.WarningLine(
        launch=launch, code="no-infiniband", message="the UCX wheel has no InfiniBand", remedy="--ucx system"
    )


@pytest.mark.parametrize("places", [(None,), (0,), (0, 1), (None, 0, 1)])
def test_recorded_warnings_come_once(tmp_path: Path, places: tuple[int | None, ...]) -> None:
    folder = write_campaign(tmp_path, *launches(2))
    append(folder, *map(recorded, places))
    assert document(folder)["warnings"] == [
        {"code": "no-infiniband", "message": "the UCX wheel has no InfiniBand", "remedy": "--ucx system"}
    ]


def test_lines_of_a_later_version_are_mentioned(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path)
    with (folder / "records.jsonl").open("a") as stream:
        stream.write('{"schema":1,"kind":"verdict"}\n')
    assert codes(document(folder)) == ["unknown-records"]
