"""Campaigns whose driver is killed at random moments, twice: no launch is lost, and none counts twice."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from merge_bench.records.reader import read_campaign, read_campaign_line
from tests.runs.test_campaigns import Begin, begin, check_each_once, configs, kill

__all__ = ["begin", "configs"]
pytestmark = [pytest.mark.soak, pytest.mark.cluster]

KILLS = 10
LONGEST = 12.0
"""Seconds to the first kill at most: about as long as the four launches take."""


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_driver_that_is_killed_at_a_random_moment(begin: Begin, configs: str, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    command = ("--configs", configs, "--blocks", "2", "--chunk", "5e3", "--seed", str(seed))
    moments = []
    for longest in (LONGEST, LONGEST / 2):
        moments.append(rng.uniform(0, longest))
        running = begin(*command)
        end = time.monotonic() + moments[-1]
        while time.monotonic() < end and running.process.poll() is None:
            time.sleep(0.002)
        if running.process.poll() is not None:
            break
        kill(running)
    finished = begin(*command).finish()
    assert finished.status == 0, f"killed after {moments} s: {finished.shown()}"
    folders = sorted((tmp_path / "results").iterdir())
    begun = [folder for folder in folders if read_campaign_line(folder) is not None]
    for folder in set(folders) - set(begun):  # killed before its first line
        assert (folder / "records.jsonl").read_bytes() == b""
    for folder in begun:  # more than one, if a campaign was done before its driver was killed
        check_each_once(read_campaign(folder), 2)
    assert f'"{begun[-1]}/records.jsonl"' in finished.output
    finished.check_clean()
