"""The times of a schedule, in zones that change their clocks."""

from __future__ import annotations

import datetime as dt
import itertools
from zoneinfo import ZoneInfo

import hypothesis
import pytest
from hypothesis import strategies as st

from merge_bench.service.schedules import schedule_times_around
from tests.helpers.examples import examples
from tests.service.test_schedules import ZONES, request, seconds

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@pytest.mark.parametrize(
    ("zone", "now", "expected"),
    [
        ("UTC", "2026-11-27T02:29:59+00:00", "2026-11-27T02:30:00+00:00"),
        ("UTC", "2026-11-27T02:30:00+00:00", "2026-11-28T02:30:00+00:00"),
        ("Europe/Berlin", "2026-11-27T00:00:00+00:00", "2026-11-27T01:30:00+00:00"),
        ("Europe/Berlin", "2026-03-28T12:00:00+00:00", "2026-03-29T01:00:00+00:00"),  # 02:30 does not exist: 03:00
        ("Europe/Berlin", "2026-03-29T01:00:00+00:00", "2026-03-30T00:30:00+00:00"),
        ("Europe/Berlin", "2026-10-24T12:00:00+00:00", "2026-10-25T00:30:00+00:00"),  # the first 02:30 of two
        ("Europe/Berlin", "2026-10-25T00:30:00+00:00", "2026-10-26T01:30:00+00:00"),
        ("Europe/Berlin", "2026-10-25T01:15:00+00:00", "2026-10-26T01:30:00+00:00"),
    ],
)
def test_the_next_time_by_hand(zone: str, now: str, expected: str) -> None:
    assert schedule_times_around(request(zone=zone), seconds(now))[2] == seconds(expected)


@hypothesis.example("Europe/Berlin", dt.datetime(2026, 3, 1), dt.time(0), {6}, 30)
@hypothesis.example("Europe/Berlin", dt.datetime(2026, 9, 1), dt.time(0), {6}, -30)
@examples(20)
@hypothesis.given(
    st.sampled_from(ZONES),
    st.datetimes(dt.datetime(2000, 1, 1), dt.datetime(2037, 1, 1)),
    st.times(dt.time(0), dt.time(23, 59)),
    st.sets(st.integers(0, 6), min_size=1),
    st.none() | st.integers(1, 29) | st.integers(-29, -1),
)
def test_times_are_those_of_the_wall_clock_each_once(
    name: str, start: dt.datetime, at: dt.time, weekdays: set[int], near: int | None
) -> None:
    """Minute by minute: a time is when the clock first shows it, or has gone past it."""
    zone = ZoneInfo(name)
    now, change = _near_a_change(start, zone)
    if near is not None:  # the hour that is not there, or is there twice
        wanted = change + dt.timedelta(minutes=near)
        at, weekdays = wanted.time(), {*weekdays, wanted.weekday()}
    days = ",".join(DAYS[day] for day in weekdays)
    latest, day, following = schedule_times_around(request(at=f"{at:%H:%M}", days=days, zone=name), now)
    assert latest <= now < following
    found = []
    walls = [dt.datetime.fromtimestamp(now + 60 * minute, zone) for minute in range(-8 * 1440, 8 * 1440)]
    for before, wall in itertools.pairwise(walls):
        # The days on which the clock shows, or jumps over, the time in this minute; a second showing has fold 1.
        for date in {before.date(), wall.date()}:
            wanted = dt.datetime.combine(date, at.replace(second=0, microsecond=0))
            reached = before.replace(tzinfo=None) < wanted <= wall.replace(tzinfo=None)
            if date.weekday() in weekdays and reached and not wall.fold:
                found.append((wall.timestamp(), date))
    assert max(each for each in found if each[0] <= now) == (latest, day)
    assert min(moment for moment, _ in found if moment > now) == following


def _near_a_change(start: dt.datetime, zone: ZoneInfo) -> tuple[float, dt.datetime]:
    """Some hours before the next change of the clock, and what it shows then; any time if there is none in a year."""
    now = start.replace(tzinfo=dt.UTC, minute=0, second=0, microsecond=0)
    hours = [(now + dt.timedelta(hours=count)).astimezone(zone) for count in range(366 * 24)]
    changes = (before for before, after in itertools.pairwise(hours) if before.utcoffset() != after.utcoffset())
    change = next(changes, hours[12])
    return change.timestamp() - 12 * 3600, change + dt.timedelta(hours=1)
