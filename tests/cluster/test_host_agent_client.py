"""What a host's agent sends of its processes' logs, and what the driver has of them when the connection is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from merge_bench.cluster.base import ClusterSettings
from merge_bench.cluster.host_agent import TAILS_SILENCE
from merge_bench.cluster.hosts import HostSpec
from merge_bench.cluster.start_on_hosts import HostAgentClient, host_agent_command
from merge_bench.errors import LaunchFailed
from merge_bench.host.description import HostReport
from tests.helpers.fake_agents import started
from tests.helpers.plans import plan_of_two

LIMIT = 60.0  # seconds, for a machine that is busy


class Heard:
    """An agent on this machine, and all that it told."""

    def __init__(self, folder: Path) -> None:
        self.news: list[dict[str, Any]] = []
        argv = ["env", f"TMPDIR={folder}", *host_agent_command()]  # one that is killed leaves its folder
        self.line = HostAgentClient("here", argv, folder / "agent.log", lambda _, news: self.news.append(news))

    def start(self, shell: str) -> None:
        command = ["sh", "-c", shell]
        started = self.line.send_request("start", role="worker-0", argv=command, environment={}, cores=[])(LIMIT)
        self.line.started["worker-0"] = started["pid"]

    def until(self, true: Callable[[], bool], *, pinging: bool = True) -> None:
        deadline = time.monotonic() + LIMIT
        while not true():
            assert time.monotonic() < deadline, (self.line.lost, self.news[-3:])
            if pinging:
                self.line.send_notification("ping")
            time.sleep(0.05)


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[Heard]:
    made = Heard(tmp_path)
    yield made
    made.line.close(time.monotonic() + 5)


def command_line(process: psutil.Process) -> str:
    """Its words; none of a process that has ended."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


def test_last_lines_of_logs_are_sent_without_a_request_and_outlive_the_agent(heard: Heard) -> None:
    heard.start("for n in $(seq 30); do echo line $n; done; exec sleep 600")
    heard.until(lambda: "line 30" in heard.line.tails.get("worker-0", ""))
    assert heard.line.tails["worker-0"].splitlines() == [f"line {n}" for n in range(16, 31)]
    (agent,) = [each for each in psutil.Process().children() if "host_agent" in command_line(each)]
    agent.kill()
    heard.until(lambda: bool(heard.line.exits), pinging=False)
    (ended,) = heard.line.exits
    assert (ended.status, ended.log_tail) == (None, heard.line.tails["worker-0"])


def test_the_lines_that_an_agent_sent_last_are_those_of_a_host_that_does_not_answer(tmp_path: Path) -> None:
    plan = plan_of_two()
    settings = ClusterSettings({}, Path("results"), hosts=(HostSpec("a"), HostSpec("b")))
    with started({"a": HostReport(), "b": HostReport()}, plan, settings, tmp_path) as launcher:
        assert launcher.read_log_tail("worker-1") == "last words of worker-1"
        assert launcher.read_log_tail("worker-7") == ""


@pytest.mark.slow
def test_no_lines_of_logs_are_sent_to_a_driver_that_is_silent(heard: Heard) -> None:
    heard.start("n=0; while :; do n=$((n+1)); echo tick $n; sleep 0.2; done")
    heard.until(lambda: "worker-0" in heard.line.tails)
    time.sleep(TAILS_SILENCE + 1.0)
    told = len(heard.news)
    time.sleep(1.6)
    assert len(heard.news) == told
    heard.until(lambda: len(heard.news) > told)


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    """As ssh is not on a machine without it."""
    with pytest.raises(LaunchFailed, match="far cannot be reached: no-such-program cannot be run here: No such file"):
        HostAgentClient("far", ["no-such-program", "far"], tmp_path / "agent.log", lambda *_: None)


def test_a_host_that_cannot_be_reached_is_reported_with_the_message_of_ssh(tmp_path: Path) -> None:
    said = "echo first word >&2; echo ssh: no route >&2; exit 255"
    line = HostAgentClient("far", ["sh", "-c", said], tmp_path / "agent.log", lambda *_: None)
    with pytest.raises(LaunchFailed, match="far cannot be reached: ssh: no route") as caught:
        line.send_request("describe")(LIMIT)
    assert caught.value.log_tail == "first word\nssh: no route"
    line.close(time.monotonic() + 5)


def test_a_host_that_gives_no_answer_is_reported_with_the_message_of_ssh(tmp_path: Path) -> None:
    line = HostAgentClient(
        "far", ["sh", "-c", "echo patience >&2; exec sleep 600"], tmp_path / "agent.log", lambda *_: None
    )
    deadline = time.monotonic() + LIMIT
    while not (tmp_path / "agent.log").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with pytest.raises(LaunchFailed, match="far did not answer within 1 s: patience") as caught:
        line.send_request("describe")(1.0)
    assert caught.value.log_tail == "patience"
    line.close(time.monotonic())
