"""Schedules: every night has one job, whatever the clock, the time zone, the service and other processes do."""

from __future__ import annotations

import datetime as dt
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from merge_bench.errors import UsageError
from merge_bench.service.documents import JobRequest, Schedule, ScheduleRequest
from merge_bench.service.job_rules import JobRules
from merge_bench.service.schedules import add_schedule, queue_due_scheduled_jobs
from merge_bench.service.store import ServiceStore
from tests.helpers.examples import examples

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Havana",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Africa/Casablanca",
    "Asia/Beirut",
    "Pacific/Chatham",
    "America/St_Johns",
)
DAY = 86400.0


def seconds(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()


def request(**given: Any) -> ScheduleRequest:
    return ScheduleRequest(**{"name": "nightly", "at": "02:30", "job": JobRequest(command="run"), **given})


class Nights:
    """A store with schedules, and a clock that the test sets."""

    def __init__(self, folder: Path, most: int = 1000) -> None:
        self.store, self.rules, self.now = ServiceStore(folder / "service.sqlite"), JobRules(folder), 0.0
        self.most = most

    def add(self, now: str, **given: Any) -> Schedule:
        self.now = seconds(now)
        return add_schedule(self.store, self.rules, given.pop("who", "ci"), request(**given), clock=self.clock)

    def change(self, name: str, **changes: Any) -> None:
        """Change a stored schedule unchecked, as another version of the program could leave it."""
        (stored,) = (schedule for schedule in self.store.list_schedules() if schedule.name == name)
        self.store.store_schedule(msgspec.structs.replace(stored, **changes))

    def clock(self) -> float:
        return self.now

    def look(self, now: str | float) -> Schedule:
        """The first schedule, after the service has looked at that time."""
        self.now = seconds(now) if isinstance(now, str) else now
        queue_due_scheduled_jobs(self.store, self.rules, self.most, lambda: None, clock=self.clock)
        return self.store.list_schedules()[0]

    def end(self) -> None:
        """End all jobs."""
        while (job := self.store.start_next_job()) is not None:
            self.store.finish_job(job.id, 0)

    @property
    def keys(self) -> list[str]:
        return [str(job.key).removeprefix("schedule nightly ") for job in reversed(self.store.list_jobs(limit=1000))]


@pytest.fixture
def nights(tmp_path: Path) -> Iterator[Nights]:
    found = Nights(tmp_path, 3)
    yield found
    found.store.close()


@pytest.mark.parametrize(
    ("days", "numbers"),
    [
        ("daily", "0123456"),
        ("mon-fri", "01234"),
        ("sat,sun", "56"),
        ("fri-mon", "0456"),
        ("mon,wed-thu", "023"),
        ("tue", "1"),
    ],
)
def test_days(nights: Nights, days: str, numbers: str) -> None:
    nights.add("2026-11-25T00:00:00+00:00", days=days)
    for hour in range(7 * 24):
        nights.look(seconds("2026-11-30T00:30:00+00:00") + hour * 3600)  # a Monday
        nights.end()
    found = sorted(dt.date.fromisoformat(key.split()[0]).weekday() for key in nights.keys if key >= "2026-11-30")
    assert "".join(map(str, found)) == numbers


@pytest.mark.parametrize(
    "wrong",
    [
        {"at": "25:00"},
        {"at": ""},
        {"at": "02:30:00"},
        {"days": ""},
        {"days": "mon-"},
        {"days": "mon-tue-wed"},
        {"days": "Mon"},
        {"days": "mon,"},
        {"zone": ""},
        {"zone": "Europe"},
        {"zone": "../../etc/passwd"},
        {"zone": "/etc/localtime"},
        {"zone": "Mars/Base"},
        {"zone": "\0"},
        {"zone": "zone.tab"},
        {"zone": "x" * 100},
        {"name": ""},
        {"name": ".."},
        {"name": "a/b"},
        {"name": "a\n"},
        {"name": "-a"},
        {"name": "a b"},
        {"job": JobRequest(command="run", options={"hosts": "x"})},
        {"job": JobRequest(command="serve")},
        {"job": JobRequest(command="run", configs=["/etc/passwd"])},
    ],
)
def test_what_is_wrong_is_refused_with_one_sentence(nights: Nights, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as found:
        nights.add("2026-11-26T12:00:00+00:00", **wrong)
    assert "\n" not in str(found.value)
    assert nights.store.list_schedules() == []
    part = next(iter(wrong))
    if part in ("at", "days", "zone", "name"):
        assert repr(wrong[part]) in str(found.value)


def test_a_night_is_queued_once_with_its_next_time(nights: Nights) -> None:
    given = JobRequest(command="run", settings={"UCX_TLS": "tcp"}, resume=True, key="its own")
    added = nights.add("2026-11-26T12:00:00+00:00", job=given, zone="Europe/Berlin")
    assert (added.next, added.command) == (
        seconds("2026-11-27T01:30:00+00:00"),
        "merge-bench run --config=job-2286e30f.cfg",
    )
    assert nights.look("2026-11-27T01:29:59+00:00") == added
    assert nights.keys == []
    for _ in range(3):
        found = nights.look("2026-11-27T01:30:10+00:00")
    (job,) = nights.store.list_jobs()
    assert (job.who, job.key) == ("ci", "schedule nightly 2026-11-27 02:30")
    assert (job.words, job.settings, job.resume) == (["run", "--config=job-2286e30f.cfg"], {"UCX_TLS": "tcp"}, True)
    assert (found.next, found.last_job, found.message) == (seconds("2026-11-28T01:30:00+00:00"), job.id, None)


@pytest.mark.parametrize(("missed", "keys"), [("skip", []), ("run", ["2026-11-30 02:30"])])
def test_missed_nights(nights: Nights, missed: str, keys: list[str]) -> None:
    nights.add("2026-11-26T12:00:00+00:00", missed=missed)
    found = nights.look("2026-11-30T09:00:00+00:00")
    assert nights.keys == keys
    assert (found.message is None) == (missed == "run")
    assert found.next == seconds("2026-12-01T02:30:00+00:00")
    nights.end()
    assert nights.look("2026-12-01T02:30:09+00:00").message is None
    assert nights.keys == [*keys, "2026-12-01 02:30"]


def test_a_service_that_starts_a_minute_late_has_missed_nothing(nights: Nights) -> None:
    nights.add("2026-11-26T12:00:00+00:00")
    nights.look("2026-11-28T02:31:00+00:00")
    assert nights.keys == ["2026-11-28 02:30"]


@pytest.mark.parametrize("running", [False, True])
def test_nights_do_not_pile_up(nights: Nights, running: bool) -> None:
    nights.add("2026-11-26T12:00:00+00:00", missed="run")
    nights.look("2026-11-27T02:30:00+00:00")
    if running:
        nights.store.start_next_job()
    found = nights.look("2026-11-28T02:30:00+00:00")
    assert nights.keys == ["2026-11-27 02:30"]
    assert "the last one, job 1," in str(found.message)
    if running:
        nights.store.finish_job(1, 0)
    nights.end()
    nights.look("2026-11-28T09:00:00+00:00")
    assert nights.keys == ["2026-11-27 02:30"]  # the night is over
    assert nights.look("2026-11-29T02:30:00+00:00").message is None
    assert nights.keys == ["2026-11-27 02:30", "2026-11-29 02:30"]


def test_a_full_queue_costs_the_night(nights: Nights, caplog: pytest.LogCaptureFixture) -> None:
    nights.add("2026-11-26T12:00:00+00:00")
    for _ in range(3):
        nights.store.add_job("other", ["run"], {}, most_queued=3)
    found = nights.look("2026-11-27T02:30:00+00:00")
    assert "3 jobs are waiting" in str(found.message)
    assert "3 jobs are waiting" in caplog.text
    assert found.next == seconds("2026-11-28T02:30:00+00:00")
    nights.end()
    nights.look("2026-11-27T02:31:00+00:00")
    assert len(nights.store.list_jobs()) == 3
    assert nights.look("2026-11-28T02:30:00+00:00").last_job == 4


def test_what_has_vanished_costs_its_own_nights_only(nights: Nights) -> None:
    nights.add("2026-11-26T12:00:00+00:00", name="a", job=JobRequest(command="run", configs=["tcp"]))
    nights.add("2026-11-26T12:00:00+00:00", name="b", zone="Europe/Berlin", missed="run")
    nights.add("2026-11-26T12:00:00+00:00", name="c")
    nights.change("a", job=JobRequest(command="run", configs=["gone"]))
    nights.change("b", zone="Europe/Gone")
    nights.look("2026-11-27T02:30:00+00:00")
    nights.look("2026-11-27T02:30:15+00:00")
    first, second, third = nights.store.list_schedules()
    assert "no shipped config" in str(first.message)
    assert "Europe/Gone" in str(second.message)
    assert third.message is None
    assert [job.key for job in nights.store.list_jobs()] == ["schedule c 2026-11-27 02:30"]
    nights.end()
    nights.change("a", job=JobRequest(command="run", configs=["tcp"]))
    nights.change("b", zone="Europe/Berlin")
    nights.look("2026-11-28T02:30:00+00:00")
    assert len(nights.store.list_jobs()) == 4
    assert [each.message for each in nights.store.list_schedules()] == [None] * 3


@pytest.mark.slow
@examples(60)
@hypothesis.given(
    st.sampled_from(ZONES),
    st.sampled_from(["skip", "run"]),
    st.sampled_from(["00:00", "00:30", "01:59", "02:30", "23:59"]),
    st.lists(
        st.integers(-40 * 24, 40 * 24).map(lambda hours: hours * 3600.0)
        | st.floats(-7200, 7200)
        | st.sampled_from([-4000 * DAY, 4000 * DAY]),
        max_size=25,
    ),
)
@hypothesis.example("UTC", "skip", "02:30", [40 * DAY, -30 * DAY])
@hypothesis.example("UTC", "run", "02:30", [DAY, -DAY, DAY])
def test_a_clock_that_changes_runs_nothing_twice_and_stops_nothing(
    tmp_path_factory: pytest.TempPathFactory, zone: str, missed: str, at: str, steps: list[float]
) -> None:
    nights = Nights(tmp_path_factory.mktemp("nights"))
    nights.add("2026-10-20T12:00:00+00:00", zone=zone, missed=missed, at=at)
    for step in steps:
        nights.look(min(max(nights.now + step, 2 * DAY), 4e9))
        nights.end()
    keys = nights.keys
    assert len(set(keys)) == len(keys)
    # From now on it goes as it should: each night once, after at most nine that an earlier clock may have had.
    begin = nights.now + 9 * DAY
    nights.look(nights.now + 10)
    while nights.now < begin + 9 * DAY:
        nights.look(min(max(nights.now + 10, nights.store.list_schedules()[0].next + 5), nights.now + DAY / 2))
        nights.end()
    expected = {f"{dt.datetime.fromtimestamp(begin + day * DAY, ZoneInfo(zone)):%Y-%m-%d} {at}" for day in range(1, 8)}
    assert expected <= set(nights.keys)
    assert len(set(nights.keys)) == len(nights.keys)
    nights.store.close()


def test_two_processes_queue_a_night_once(nights: Nights, tmp_path: Path) -> None:
    for number in range(20):
        nights.add("2026-11-26T12:00:00+00:00", name=f"s{number}")
    others = [ServiceStore(tmp_path / "service.sqlite") for _ in range(3)]
    nights.now = seconds("2026-11-27T02:30:00+00:00")
    threads = [
        threading.Thread(
            target=queue_due_scheduled_jobs,
            args=(store, nights.rules, 1000, lambda: None),
            kwargs={"clock": nights.clock},
        )
        for store in (nights.store, *others)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(nights.store.list_jobs()) == 20
    assert {each.message for each in nights.store.list_schedules()} == {None}
    for store in others:
        store.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from merge_bench.service.schedules import queue_due_scheduled_jobs
from merge_bench.service.store import ServiceStore
from tests.service.test_schedules import Nights, seconds
nights = Nights(Path(sys.argv[1]))
kill = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[3] == "before":
    ServiceStore.store_schedule = kill
queue_due_scheduled_jobs(nights.store, nights.rules, 3, lambda: None, clock=lambda: seconds(sys.argv[2]))
kill()
"""


@pytest.mark.parametrize(("when", "jobs"), [("before", 0), ("after", 1)])
def test_a_kill_leaves_a_night_queued_with_its_next_time_or_neither(
    nights: Nights, tmp_path: Path, when: str, jobs: int
) -> None:
    added = nights.add("2026-11-26T12:00:00+00:00")
    now = "2026-11-27T02:30:00+00:00"
    words = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), now, when]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    assert len(nights.store.list_jobs()) == jobs
    assert (nights.store.list_schedules()[0].next == added.next) == (jobs == 0)
    nights.look(now)
    assert nights.keys == ["2026-11-27 02:30"]


def test_schedules_go_with_their_token(nights: Nights) -> None:
    nights.store.add_token("ci", "run")
    nights.add("2026-11-26T12:00:00+00:00", name="a")
    nights.add("2026-11-26T12:00:00+00:00", name="b", who="other")
    nights.store.remove_token("ci")
    assert [each.name for each in nights.store.list_schedules()] == ["b"]


def test_names_are_taken_once_and_there_is_a_limit(nights: Nights) -> None:
    for number in range(100):
        nights.add("2026-11-26T12:00:00+00:00", name=f"s{number}")
    for name, why in (("s1", "a schedule named s1;"), ("more", "already 100 schedules")):
        with pytest.raises(UsageError, match=why):
            nights.add("2026-11-26T12:00:00+00:00", name=name)
    assert len(nights.store.list_schedules()) == 100
