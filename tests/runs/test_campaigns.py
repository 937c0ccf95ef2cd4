"""Real campaigns of several configs: whenever they are interrupted, the same command ends with each launch once."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.records.schema import CampaignEndLine, LaunchLine
from tests.helpers import leftovers
from tests.helpers.runs import Finished, Running, command, start

pytestmark = pytest.mark.cluster

QUICK = ("--chunk", "2e4", "--iterations", "2", "--link-rounds", "0", "--workers", "1")
Begin = Callable[..., Running]


@pytest.fixture
def configs(tmp_path: Path) -> str:
    """Two configs, named as --configs takes them."""
    for name, transports in (("tcp", "tcp"), ("shared", "sysv,cma,tcp")):
        (tmp_path / f"{name}.cfg").write_text(f"UCX_TLS={transports}\n")
    return f"{tmp_path}/tcp.cfg,{tmp_path}/shared.cfg"


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Give the command, as often as asked, with one folder for results; ended with the test."""
    started: list[Running] = []

    def begin(*options: str) -> Running:
        running = start(tmp_path / f"command-{len(started)}", *QUICK, "--results", tmp_path / "results", *options)
        running.results = tmp_path / "results"
        started.append(running)
        return running

    yield begin
    for running in started:
        running.end()


def the(results: Path) -> Campaign:
    (folder,) = results.iterdir()
    return read_campaign(folder)


def check_each_once(campaign: Campaign, blocks: int) -> None:
    """Every config in every block counts once; all of them measured, proved, ended."""
    keys = [(run.config, run.plan) for run in campaign.head.runs]
    wanted = Counter((key, block) for key in keys for block in range(blocks))
    assert Counter((launch.run_key, launch.block_index) for launch in campaign.launches_not_replaced) == wanted
    assert all(
        launch.complete and launch.timed_iterations and launch.verifications
        for launch in campaign.launches_not_replaced
    )
    assert all(launch.end is not None for launch in campaign.launches)
    assert campaign.end is not None
    assert campaign.end.status == 0


def gone(running: Running) -> None:
    """No process of a driver that was killed lives on."""
    deadline = time.monotonic() + 10
    while left := leftovers.processes(running.temp):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def kill(running: Running) -> None:
    os.kill(running.process.pid, signal.SIGKILL)
    running.process.wait()
    gone(running)


def documents(finished: Finished) -> dict[str, dict[str, Any]]:
    """The document of each config, from that of a sweep."""
    document = finished.document
    assert set(document) == {"document_version", "schema", "records", "runs"}
    return {one["config"]["name"]: one for one in document["runs"]}


def test_control_c_a_kill_and_the_same_command_again(begin: Begin, configs: str, tmp_path: Path) -> None:
    """Ctrl-C while the first launch merges, then SIGKILL at some moment of the next one."""
    command = ("--configs", configs)
    first = begin(*command)
    first.until_merging(1)
    os.kill(first.process.pid, signal.SIGINT)
    stopped = first.finish()
    assert stopped.status == 3, stopped.shown()
    assert "run the same command to resume" in stopped.errors
    assert "Traceback" not in stopped.errors
    errors = [one["error"] for one in documents(stopped).values() if one["error"]]  # the first may have just ended
    assert errors
    assert {error["code"] for error in errors} <= {"interrupted", "unfinished"}
    stopped.check_clean()

    moment = random.random() * 2.5
    second, begun = begin(*command), len(the(tmp_path / "results").launches)
    second.until(lambda: sum(isinstance(line, LaunchLine) for line in second.lines()) > begun, "the next launch")
    time.sleep(moment)
    kill(second)
    before = the(tmp_path / "results")
    finished = begin(*command).finish()
    assert finished.status == 0, f"killed {moment:.3f} s after the next launch's line: {finished.shown()}"
    assert f"resuming {before.folder}" in finished.errors
    campaign = the(tmp_path / "results")
    check_each_once(campaign, 1)
    assert [line.status for line in finished.of(CampaignEndLine)] == [3, 0]
    again = {launch.index for launch in campaign.launches} - {launch.index for launch in campaign.launches_not_replaced}
    assert again <= {launch.index for launch in before.launches if launch.end is None or launch.interrupted}
    kept = {launch.index: launch for launch in campaign.launches}
    for launch in before.launches:  # nothing measured is lost
        assert kept[launch.index].iterations == launch.iterations
    found = documents(finished)
    assert [one["run_id"] for one in found.values()] == [f"{campaign.head.campaign_id}/{at}" for at in (0, 1)]
    worker = {launch.run_key: launch.line.workers[0] for launch in campaign.launches_not_replaced}
    for name, transports in (("tcp", "tcp"), ("shared", "sysv,cma,tcp")):
        assert found[name]["verified"] is True
        assert found[name]["error"] is None
        assert worker[name, 0].environment["UCX_TLS"] == transports
    assert "failed-launches" not in json.dumps(finished.document)
    assert campaign.head.surroundings is not None
    assert set(campaign.head.surroundings["clusters"]) == {"tcp/0", "shared/0"}
    finished.check_clean()


def test_a_config_that_always_fails_is_counted_and_stops_no_other(tmp_path: Path) -> None:
    (tmp_path / "broken.cfg").write_text("UCX_RNDV_THRESH=many\n")
    (tmp_path / "sound.cfg").write_text("UCX_TLS=sysv,cma,tcp\n")
    finished = command(tmp_path, *QUICK, "--allow-unknown", "--configs", f"{tmp_path}/broken.cfg,{tmp_path}/sound.cfg")
    finished.check_ended(3)
    found = documents(finished)
    assert found["broken"]["error"]["code"] == "run-failed"
    assert found["broken"]["wall_seconds"]["median"] is None
    assert "1 of 1 launches failed" in json.dumps(found["broken"]["warnings"])
    assert found["sound"]["error"] is None
    assert found["sound"]["verified"] is True
