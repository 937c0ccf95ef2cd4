"""Schedules: jobs that are queued at a time of day, once a day even if the clock is set or the service starts anew."""

from __future__ import annotations

import logging
import time as clock
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import msgspec

from merge_bench.errors import MergeBenchError, UsageError
from merge_bench.service.documents import Schedule, ScheduleRequest
from merge_bench.service.job_rules import Rules, typed_command
from merge_bench.service.store import Store, check_name

KEY_PREFIX = "schedule "
"""The keys of jobs that schedules queued begin with this, and the name of the schedule follows."""
LOOK_SECONDS = 10.0
_LATE_SECONDS, _DAY_SECONDS, _MOST_SCHEDULES = 600.0, 86400.0, 100
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_LOGGER = logging.getLogger(__name__)


def add(store: Store, rules: Rules, who: str, request: ScheduleRequest) -> Schedule:
    """Check the schedule in `request`, store it for the token named `who`, and return it; raises UsageError."""
    check_name(request.name)
    command, now = typed_command(rules.words(request.job)), clock.time()
    after = _times_around(request, now)[2]
    new = Schedule(**msgspec.structs.asdict(request), who=who, command=command, created=now, next=after)
    with store.transaction():
        names = [each.name for each in store.schedules()]
        if new.name in names:
            raise UsageError(f"there is already a schedule named {new.name}; remove it first, or choose another name")
        if len(names) >= _MOST_SCHEDULES:
            raise UsageError(f"there are already {_MOST_SCHEDULES} schedules, which is the limit; remove one first")
        store.put_schedule(new)
    return new


def queue_due_jobs(store: Store, rules: Rules, most: int, wake: Callable[[], None]) -> None:
    """Queue the jobs of schedules that are due, unless `most` jobs wait, and set next times, in one transaction."""
    now = clock.time()
    with store.transaction():
        for old in store.schedules():
            if now < old.next < now + 9 * _DAY_SECONDS:
                continue
            last, message, after = old.last_job, None, now + _DAY_SECONDS
            try:
                before, day, after = _times_around(old, now)
                if now < old.next:
                    raise UsageError("the clock was set back")
                if old.missed == "skip" and now - before > _LATE_SECONDS:
                    raise UsageError(f"the service did not run on {day} at {old.at}")
                job = store.job(last or 0)
                if job is not None and job.ended is None:
                    raise UsageError(f"the last one, job {last}, had not ended")
                # By its key a night has one job, whatever the clock was set to.
                words, key = rules.words(old.job), f"{KEY_PREFIX}{old.name} {day} {old.at}"
                job, _ = store.add(old.who, words, old.job.settings, most=most, resume=old.job.resume, key=key)
                last = job.id
                wake()
            except MergeBenchError as error:  # for example a full queue, or a config that no longer exists
                message = str(error)
                _LOGGER.warning("schedule %s: no job was queued: %s", old.name, message)
            store.put_schedule(msgspec.structs.replace(old, next=after, last_job=last, message=message))


def _times_around(request: ScheduleRequest, now: float) -> tuple[float, date, float]:
    """The last time of a schedule up to `now`, its day, and the first time after `now`; times in seconds."""
    wrong = f"the time {request.at!r}; give one such as 02:30"
    try:
        at = datetime.strptime(request.at, "%H:%M").time()
        wrong = f"the zone {request.zone!r}; give one such as Europe/Berlin"
        zone = ZoneInfo(request.zone)
        wrong, days = f"the days {request.days!r}; give daily, or days such as mon-fri or sat,sun", set[int]()
        for part in request.days.replace("daily", "mon-sun").split(","):
            first, *rest = map(_DAYS.index, part.split("-"))
            (last,) = rest or (first,)
            days |= {day % 7 for day in range(first, last + 1 + 7 * (last < first))}
    except (KeyError, ValueError, OSError):
        raise UsageError(f"a schedule cannot have {wrong}") from None
    today = datetime.fromtimestamp(now, zone).date()
    around = [today + timedelta(count) for count in range(-8, 9)]
    moments = [(_seconds_at(day, at, zone), day) for day in around if day.weekday() in days]
    return *max(each for each in moments if each[0] <= now), min(each[0] for each in moments if each[0] > now)


def _seconds_at(day: date, at: time, zone: ZoneInfo) -> float:
    """The time `at` on `day`, in seconds; of two the first; if the clock skips it, the next time that exists."""
    local = datetime.combine(day, at, zone)
    while datetime.fromtimestamp(local.timestamp(), zone).time() != local.time():
        local += timedelta(minutes=1)
    return local.timestamp()
