"""Schedules: when one is due next, and the jobs of due ones, which are queued.

A schedule queues a job at a time of day, once a day even if the clock is set or the service starts anew.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Callable
from zoneinfo import ZoneInfo

import msgspec

from merge_bench.errors import MergeBenchError, UsageError
from merge_bench.service.documents import Schedule, ScheduleRequest
from merge_bench.service.job_rules import JobRules, typed_command_line
from merge_bench.service.store import ServiceStore, check_token_or_schedule_name

KEY_PREFIX = "schedule "
"""The keys of jobs that schedules queued begin with this, and the name of the schedule follows."""
LOOK_SECONDS = 10.0
_LATE_SECONDS, _DAY_SECONDS, _MOST_SCHEDULES = 600.0, 86400.0, 100
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_LOGGER = logging.getLogger(__name__)


def add_schedule(
    store: ServiceStore,
    rules: JobRules,
    token_name: str,
    request: ScheduleRequest,
    *,
    clock: Callable[[], float] = time.time,
) -> Schedule:
    """Check the schedule in `request`, store it for the token named `token_name`, and return it; raises UsageError."""
    check_token_or_schedule_name(request.name)
    command, now = typed_command_line(rules.command_arguments(request.job)), clock()
    after = schedule_times_around(request, now)[2]
    new = Schedule(**msgspec.structs.asdict(request), who=token_name, command=command, created=now, next=after)
    with store.transaction():
        names = [each.name for each in store.list_schedules()]
        if new.name in names:
            raise UsageError(f"there is already a schedule named {new.name}; remove it first, or choose another name")
        if len(names) >= _MOST_SCHEDULES:
            raise UsageError(f"there are already {_MOST_SCHEDULES} schedules, which is the limit; remove one first")
        store.store_schedule(new)
    return new


def queue_due_scheduled_jobs(
    store: ServiceStore,
    rules: JobRules,
    most_waiting: int,
    look_for_jobs_now: Callable[[], None],
    *,
    clock: Callable[[], float] = time.time,
) -> None:
    """Queue the jobs of due schedules, unless `most_waiting` jobs wait, and set next times, in one transaction."""
    now = clock()
    with store.transaction():
        for old in store.list_schedules():
            if now < old.next < now + 9 * _DAY_SECONDS:
                continue
            last, message, after = old.last_job, None, now + _DAY_SECONDS
            try:
                before, day, after = schedule_times_around(old, now)
                if now < old.next:
                    raise UsageError("the clock was set back")
                if old.missed == "skip" and now - before > _LATE_SECONDS:
                    raise UsageError(f"the service did not run on {day} at {old.at}")
                job = store.find_job(last or 0)
                if job is not None and job.ended is None:
                    raise UsageError(f"the last one, job {last}, had not ended")
                # By its key a night has one job, whatever the clock was set to.
                words, key = rules.command_arguments(old.job), f"{KEY_PREFIX}{old.name} {day} {old.at}"
                job, _ = store.add_job(
                    old.who, words, old.job.settings, most_queued=most_waiting, resume=old.job.resume, request_key=key
                )
                last = job.id
                look_for_jobs_now()
            except MergeBenchError as error:  # for example a full queue, or a config that no longer exists
                message = str(error)
                _LOGGER.warning("schedule %s: no job was queued: %s", old.name, message)
            store.store_schedule(msgspec.structs.replace(old, next=after, last_job=last, message=message))


def schedule_times_around(schedule: ScheduleRequest, now: float) -> tuple[float, dt.date, float]:
    """Return the last time of a schedule up to `now`, its day, and the first time after `now`; seconds since the epoch.

    Raises UsageError if time, zone or days of the schedule do not exist.
    """
    wrong = f"the time {schedule.at!r}; give one such as 02:30"
    try:
        at = dt.datetime.strptime(schedule.at, "%H:%M").time()
        wrong = f"the zone {schedule.zone!r}; give one such as Europe/Berlin"
        zone = ZoneInfo(schedule.zone)
        wrong, days = f"the days {schedule.days!r}; give daily, or days such as mon-fri or sat,sun", set[int]()
        for part in schedule.days.replace("daily", "mon-sun").split(","):
            first, *rest = map(_DAYS.index, part.split("-"))
            (last,) = rest or (first,)
            days |= {day % 7 for day in range(first, last + 1 + 7 * (last < first))}
    except (KeyError, ValueError, OSError):
        raise UsageError(f"a schedule cannot have {wrong}") from None
    today = dt.datetime.fromtimestamp(now, zone).date()
    around = [today + dt.timedelta(count) for count in range(-8, 9)]
    moments = [(_epoch_seconds_at(day, at, zone), day) for day in around if day.weekday() in days]
    return *max(each for each in moments if each[0] <= now), min(each[0] for each in moments if each[0] > now)


def _epoch_seconds_at(day: dt.date, time_of_day: dt.time, zone: ZoneInfo) -> float:
    """Seconds since the epoch of a time of day in a time zone.

    Where the clock is set back and the time occurs twice, it is the first; where the clock skips the time, it is the
    next that exists.
    """
    local = dt.datetime.combine(day, time_of_day, zone)
    while dt.datetime.fromtimestamp(local.timestamp(), zone).time() != local.time():
        local += dt.timedelta(minutes=1)
    return local.timestamp()
