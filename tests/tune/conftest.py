"""The command `tune` without a cluster: the test makes its launches."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from merge_bench import cli
from merge_bench.campaign.planned_launches import PlannedLaunch
from merge_bench.records.writer import CampaignWriter
from merge_bench.tune import tune_campaign

Launch = Callable[[PlannedLaunch, CampaignWriter, object, int], int]
Tune = Callable[..., int]


def no_launch(job: PlannedLaunch, writer: CampaignWriter, progress: object, index: int) -> int:
    raise AssertionError("a launch was made")


@pytest.fixture
def tune(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tune:
    """Runs the command with these words in the test's folder, where it makes the launches; gives its exit status."""

    def run(*words: str | Path, launch: Launch = no_launch) -> int:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(tune_campaign, "launch_merge", launch)
        monkeypatch.setattr(sys, "argv", ["merge-bench", "tune", *map(str, words)])
        with pytest.raises(SystemExit) as leaving:
            cli.main()
        return int(leaving.value.code or 0)

    return run
