"""Schedules: jobs that are queued at a time of day, once for each day whatever the clock and the service do."""

from __future__ import annotations

import logging
import time as clock
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import msgspec

from merge_bench.errors import MergeBenchError, UsageError
from merge_bench.service.documents import Schedule, ScheduleRequest
from merge_bench.service.rules import Rules, as_typed
from merge_bench.service.store import Store, check_name

KEY = "schedule "
"""The keys of jobs that schedules queued begin with this, and the name of the schedule follows."""
LOOK_SECONDS = 10.0
_LATE_SECONDS, _DAY_SECONDS, _MOST = 600.0, 86400.0, 100
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_LOGGER = logging.getLogger(__name__)


def add(store: Store, rules: Rules, who: str, request: ScheduleRequest) -> Schedule:
    """Check a schedule and keep it; raises UsageError."""
    check_name(request.name)
    command, now = as_typed(rules.words(request.job)), clock.time()
    after = _times(request, now)[2]
    made = Schedule(**msgspec.structs.asdict(request), who=who, command=command, created=now, next=after)
    with store.change():
        known = [each.name for each in store.schedules()]
        if made.name in known:
            raise UsageError(f"there is already a schedule named {made.name}; remove it first, or choose another name")
        if len(known) >= _MOST:
            raise UsageError(f"there are already {_MOST} schedules, which is the limit; remove one first")
        store.put_schedule(made)
    return made


def queue_due(store: Store, rules: Rules, most: int, wake: Callable[[], None]) -> None:
    """Queue the jobs that are due, unless `most` wait, and set next times, all in one transaction."""
    now = clock.time()
    with store.change():
        for old in store.schedules():
            if now < old.next < now + 9 * _DAY_SECONDS:
                continue
            last, message, after = old.last_job, None, now + _DAY_SECONDS
            try:
                before, day, after = _times(old, now)
                if now < old.next:
                    raise UsageError("the clock was set back")
                if old.missed == "skip" and now - before > _LATE_SECONDS:
                    raise UsageError(f"the service did not run on {day} at {old.at}")
                job = store.job(last or 0)
                if job is not None and job.ended is None:
                    raise UsageError(f"the last one, job {last}, had not ended")
                # By its key a night has one job, whatever the clock was set to.
                words, key = rules.words(old.job), f"{KEY}{old.name} {day} {old.at}"
                job, _ = store.add(old.who, words, old.job.settings, most=most, resume=old.job.resume, key=key)
                last = job.id
                wake()
            except MergeBenchError as error:  # for example a full queue, or a config that no longer exists
                message = str(error)
                _LOGGER.warning("schedule %s: no job was queued: %s", old.name, message)
            store.put_schedule(msgspec.structs.replace(old, next=after, last_job=last, message=message))


def _times(request: ScheduleRequest, now: float) -> tuple[float, date, float]:
    """Its last time up to `now` with the day, and its first one after that; raises UsageError."""
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
    moments = [(_moment(day, at, zone), day) for day in around if day.weekday() in days]
    return *max(each for each in moments if each[0] <= now), min(each[0] for each in moments if each[0] > now)


def _moment(day: date, at: time, zone: ZoneInfo) -> float:
    """That time, in seconds; of two the first one, and the next that exists if that one does not."""
    local = datetime.combine(day, at, zone)
    while datetime.fromtimestamp(local.timestamp(), zone).time() != local.time():
        local += timedelta(minutes=1)
    return local.timestamp()
