"""Ctrl-C in a tuning: before its first launch, between two, and within one."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from merge_bench import cli
from merge_bench.campaign.planned_launches import Job
from merge_bench.records import schema as s
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.records.results_folder import TUNE, ResultsFolder
from merge_bench.records.writer import CampaignWriter
from merge_bench.tune import tune_campaign
from merge_bench.tune.tuning_plan import Timing
from tests.helpers.synthetic_campaigns import Script, plan, write_launch, write_start

Moment = Callable[[pytest.MonkeyPatch], None]


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def _script(job: Job, index: int) -> Script:
    return Script(
        index=index,
        config=job.config,
        plan_index=job.plan,
        plan=plan(),
        block=job.block,
        walls=(1.0, 1.0, 1.0),
        measure_link=False,
    )


def _launch(job: Job, writer: CampaignWriter, progress: object, index: int) -> int:
    write_launch(writer, _script(job, index))
    return 0


def before_the_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tune_campaign, "check_host", lambda *given, **more: ctrl_c())


def between_two(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Timing, "note_launch", lambda self, job, seconds: ctrl_c())


def within_one(patch: pytest.MonkeyPatch) -> None:
    def launch(job: Job, writer: CampaignWriter, progress: object, index: int) -> int:
        if index < 4:
            return _launch(job, writer, progress, index)
        from merge_bench.cluster import signals

        write_start(writer, _script(job, index))
        with signals.ignored():  # as `campaign.launch` does
            ctrl_c()
        line = s.FailureLine(
            launch=index,
            config=job.config,
            plan=job.plan,
            block=job.block,
            code="interrupted",
            message="interrupted by SIGINT",
        )
        writer.write(line)
        writer.write(s.LaunchEndLine(launch=index, status=3, seconds=1.0))
        return 3

    patch.setattr(tune_campaign, "launch_merge", launch)


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *moments: Moment) -> tuple[int, Campaign]:
    """The command with launches of its own; its exit status and its campaign."""
    with monkeypatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(tune_campaign, "launch_merge", _launch)
        patch.setattr(tune_campaign, "check_host", lambda *given, **more: None)
        for moment in moments:
            moment(patch)
        words = ["tune", "--only", "mutex,message-size=4m", "--chunk", "1e6", "--workers", "2"]
        patch.setattr(sys, "argv", ["merge-bench", *words])
        with pytest.raises(SystemExit) as leaving:
            cli.main()
    (records,) = (folder / "results").glob("*/records.jsonl")
    return int(leaving.value.code or 0), read_campaign(records)


def listed(folder: Path) -> list[str]:
    """What the list of results calls them."""
    return [entry.status for entry in ResultsFolder(folder / "results").entries() if entry.kind == TUNE]


@pytest.mark.slow
@pytest.mark.parametrize(("moment", "launches"), [(before_the_first, 0), (between_two, 1), (within_one, 5)])
def test_a_signal_at_any_moment_is_recorded_until_the_same_command_resumes_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], moment: Moment, launches: int
) -> None:
    """Between two launches it left no line behind, so the list called the tuning unfinished."""
    status, campaign = run(monkeypatch, tmp_path, moment)
    assert status == 3
    assert "interrupted by SIGINT; run the same command to resume" in capsys.readouterr().err
    assert campaign.end is None
    assert len(campaign.launches) == launches
    lines = [*campaign.failures, *(each for launch in campaign.launches for each in launch.failures)]
    assert [(line.code, line.launch) for line in lines] == [("interrupted", 4 if launches == 5 else None)]
    assert listed(tmp_path) == ["interrupted"]
    status, whole = run(monkeypatch, tmp_path)
    assert (status, whole.failures) == (0, ())
    assert whole.end is not None
    assert listed(tmp_path) == ["done"]
    kept = [launch for launch in whole.launches if not launch.interrupted]
    assert len({(launch.key, launch.block) for launch in kept}) == len(kept) > 4
