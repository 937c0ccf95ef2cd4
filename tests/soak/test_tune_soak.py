"""A tuning whose driver is killed ten times: no launch is lost or made twice, and the same is found as without it.

The moments come from `SEED`; set `SOAK_SEED` for others.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from merge_bench.config.reader import read_config
from merge_bench.records.campaign import Campaign, Launch
from merge_bench.records.reader import read_campaign, read_campaign_line
from merge_bench.tune.evaluator import SearchOptions
from merge_bench.tune.result import tuning_result_of
from merge_bench.tune.space import read_space
from tests.helpers.runs import Running, start
from tests.runs.test_campaigns import gone, kill
from tests.tune.clusters import steps
from tests.tune.replays import replay

pytestmark = [pytest.mark.soak, pytest.mark.cluster]

SEED = int(os.environ.get("SOAK_SEED", "2026"))
KILLS = 10
MOST_LAUNCHES, LONGEST = 4, 1.5
"""A command is killed after up to 4 launches, or none, and up to 1.5 times as long as the last launch took."""
FIRST = 5.0
"""Seconds that stand for the last launch where there is none."""
BASELINE = "export UCX_TLS=tcp\nexport MERGE_BENCH_MESSAGE_SIZE=1KiB\n"
SPACE = """
[[setting]]
name = "message-size"
values = [{ label = "1m", set = { MERGE_BENCH_MESSAGE_SIZE = "1MiB" } }]
[[setting]]
name = "transports"
values = [{ label = "sysv", set = { UCX_TLS = "sysv,cma,self" } }]
[[setting]]
name = "mutex"
values = [{ label = "y", set = { UCX_USE_MT_MUTEX = "y" } }]
"""
OPTIONS = SearchOptions(most=4, confirm=6)


class Tuning:
    """The command, as often as it is given, with one folder for results."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.results, self.output = folder, folder / "results", folder / "tuned.cfg"
        (folder / "slow.cfg").write_text(BASELINE)
        (folder / "space.toml").write_text(SPACE)
        self.given: list[Running] = []

    def begin(self) -> Running:
        running = start(
            self.folder / f"command-{len(self.given)}",
            "--space",
            self.folder / "space.toml",
            "--output",
            self.output,
            "--chunk",
            "1e5",
            "--workers",
            "2",
            "--iterations",
            "3",
            "--most-blocks",
            str(OPTIONS.most),
            "--confirm",
            str(OPTIONS.confirm),
            "--seed",
            str(SEED),
            "--results",
            self.results,
            verb=("tune", str(self.folder / "slow.cfg")),
        )
        running.results = self.results
        self.given.append(running)
        return running

    def launches(self) -> list[Launch]:
        """Those that ended well."""
        return [launch for campaign in self.campaigns() for launch in campaign.launches if launch.complete]

    def seconds(self) -> float:
        """How long the last of them took."""
        ends = [launch.end.seconds for launch in self.launches() if launch.end is not None and launch.end.seconds]
        return ends[-1] if ends else FIRST

    def campaigns(self) -> list[Campaign]:
        """All that were begun; more than one where the last had ended, and the command began anew."""
        records = sorted(self.results.glob("*/records.jsonl"))
        return [read_campaign(path) for path in records if read_campaign_line(path.parent) is not None]


def measured(campaign: Campaign) -> dict[int, Any]:
    """What must never change again: the iterations of launches that ended well."""
    return {launch.index: launch.iterations for launch in campaign.launches if launch.complete}


def check(campaign: Campaign, tuning: Tuning, folder: Path) -> None:
    """Every launch that the decisions take is there once, and nothing but them; and they follow from the launches."""
    assert campaign.end is not None
    assert campaign.end.status == 0
    made = Counter(
        (*(launch.run_key or ("", 0)), launch.block_index) for launch in campaign.launches if not launch.interrupted
    )
    anew = replay(campaign, folder, read_space(tuning.folder / "space.toml"), OPTIONS)
    assert made == Counter(anew.asked)
    assert set(made.values()) == {1}
    assert steps(anew.campaign) == steps(campaign)
    assert tuning_result_of(anew.campaign).winner == tuning_result_of(campaign).winner


def check_config(tuning: Tuning, settings: list[str]) -> None:
    """The file that was written sets what these settings set, over the baseline."""
    values = {value.id: dict(value.variables) for value in read_space(tuning.folder / "space.toml").values}
    wanted = {each.name: each.value for each in read_config(tuning.folder / "slow.cfg", {}).variables}
    for setting in settings:
        wanted |= values[setting]
    assert {each.name: each.value for each in read_config(tuning.output, {}).variables} == wanted


def test_a_tuning_that_is_killed_ten_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng, tuning, killed = random.Random(SEED), Tuning(tmp_path), 0
    seen: dict[Path, dict[int, Any]] = {}
    try:
        while killed < KILLS:
            until, moment = len(tuning.launches()) + rng.randint(0, MOST_LAUNCHES), rng.uniform(0.0, LONGEST)
            running = tuning.begin()
            while len(tuning.launches()) < until and running.process.poll() is None:
                time.sleep(0.1)
            end = time.monotonic() + moment * tuning.seconds()
            while time.monotonic() < end and running.process.poll() is None:
                time.sleep(0.002)
            if running.process.poll() is None:
                kill(running)  # and none of its processes lives on
                killed += 1
            else:
                assert running.process.returncode == 0, running.finish().shown()
            for campaign in tuning.campaigns():
                now = measured(campaign)
                before = seen.get(campaign.folder, {})
                assert {index: now.get(index) for index in before} == before
                seen[campaign.folder] = now
        finished = tuning.begin().finish(600)
    finally:
        for running in tuning.given:
            running.end()
    assert finished.status == 0, f"seed {SEED}: {finished.shown()}"
    gone(tuning.given[-1])
    campaigns = tuning.campaigns()
    for campaign in campaigns:
        check(campaign, tuning, tmp_path / "replayed")
    winners = [winner.settings for campaign in campaigns if (winner := tuning_result_of(campaign).winner)]
    assert tuning.output.exists() == bool(winners)
    if winners:
        check_config(tuning, winners[-1])
    launches = [launch for campaign in campaigns for launch in campaign.launches]
    cut = sum(launch.interrupted for launch in launches)
    with capsys.disabled():
        print(
            f"\nseed {SEED}: killed {killed} times, {cut} launches cut off of {len(launches)} in {len(campaigns)}"
            f" tunings; {tuning_result_of(campaigns[-1]).outcome}"
        )
