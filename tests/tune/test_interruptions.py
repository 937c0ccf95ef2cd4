"""Ctrl-C in a tuning: before its first launch, between two, and within one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from merge_bench.campaign.planned_launches import PlannedLaunch
from merge_bench.cluster import signals
from merge_bench.records import schema as s
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.records.results_folder import TUNE, ResultsFolder
from merge_bench.records.writer import CampaignWriter
from merge_bench.tune import tune_campaign
from tests.helpers.synthetic_campaigns import Script, plan, write_launch, write_start
from tests.tune.conftest import Launch, Tune, no_launch

WORDS = ("--only", "mutex,message-size=4m", "--chunk", "1e6", "--workers", "2")


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def _script(job: PlannedLaunch, index: int) -> Script:
    return Script(
        index=index,
        config=job.config,
        plan_index=job.plan,
        plan=plan(),
        block=job.block,
        walls=(1.0, 1.0, 1.0),
        measure_link=False,
    )


def launch(job: PlannedLaunch, writer: CampaignWriter, progress: object, index: int) -> int:
    write_launch(writer, _script(job, index))
    return 0


def after_the_first(job: PlannedLaunch, writer: CampaignWriter, progress: object, index: int) -> int:
    launch(job, writer, progress, index)
    ctrl_c()
    raise AssertionError("the signal did not end the tuning")


def within_the_fifth(job: PlannedLaunch, writer: CampaignWriter, progress: object, index: int) -> int:
    if index < 4:
        return launch(job, writer, progress, index)
    write_start(writer, _script(job, index))
    with signals.ignore_signals():  # as `campaign.launch` does
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


def campaign_in(folder: Path) -> Campaign:
    (records,) = (folder / "results").glob("*/records.jsonl")
    return read_campaign(records)


def listed(folder: Path) -> list[str]:
    """What the list of results calls them."""
    return [entry.status for entry in ResultsFolder(folder / "results").entries() if entry.kind == TUNE]


@pytest.mark.slow
@pytest.mark.parametrize(("interrupted", "launches"), [(None, 0), (after_the_first, 1), (within_the_fifth, 5)])
def test_a_signal_at_any_moment_is_recorded_until_the_same_command_resumes_it(
    tune: Tune,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    interrupted: Launch | None,
    launches: int,
) -> None:
    """Between two launches it left no line behind, so the list called the tuning unfinished."""
    with monkeypatch.context() as patch:
        if interrupted is None:  # it comes before the first launch
            patch.setattr(tune_campaign, "warn_if_host_busy", lambda *given, **more: ctrl_c())
        assert tune(*WORDS, launch=interrupted or no_launch) == 3
    campaign = campaign_in(tmp_path)
    assert "interrupted by SIGINT; run the same command to resume" in capsys.readouterr().err
    assert campaign.end is None
    assert len(campaign.launches) == launches
    lines = [*campaign.failures, *(each for launch in campaign.launches for each in launch.failures)]
    assert [(line.code, line.launch) for line in lines] == [("interrupted", 4 if launches == 5 else None)]
    assert listed(tmp_path) == ["interrupted"]
    assert tune(*WORDS, launch=launch) == 0
    whole = campaign_in(tmp_path)
    assert whole.failures == ()
    assert whole.end is not None
    assert listed(tmp_path) == ["done"]
    kept = [launch for launch in whole.launches if not launch.interrupted]
    assert len({(launch.run_key, launch.block_index) for launch in kept}) == len(kept) > 4
