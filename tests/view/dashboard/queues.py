"""A queue as a service has it, for views."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from merge_bench.errors import UsageError
from merge_bench.service.documents import Job, JobList
from merge_bench.service.job_rules import options_by_job_command


def job(number: int, state: str, command: str = "merge-bench run", **more: object) -> Job:
    """A job; one that has ended took 100 seconds."""
    ended = None if state in ("queued", "running") else 1200.0
    values = {
        "who": "ci",
        "key": None,
        "words": [],
        "settings": {},
        "resume": False,
        "attempts": 0,
        "cancelled": False,
        "status": None,
        "result": None,
        "message": None,
        "created": 1000.0,
        "started": None if state == "queued" else 1100.0,
        "ended": ended,
    }
    return msgspec.convert(values | {"id": number, "state": state, "command": command} | more, Job)


@dataclass
class FakeQueue:
    """Jobs as a service has them, the newest first; `asked`: what the form sent; `problem`: why it does not answer."""

    found: list[Job]
    refusal_reason: str = ""
    end_reason: str = ""
    is_logged_in: bool = False
    queueable_commands: Mapping[str, Collection[str]] = field(default_factory=options_by_job_command)
    asked: list[tuple[str, list[str], dict[str, str]]] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    log: str = "log of NUMBER"
    problem: str = ""

    def fetch_jobs(self) -> JobList:
        if self.problem:
            raise UsageError(self.problem)
        return JobList(jobs=self.found)

    def fetch_job(self, number: int) -> Job:
        found = next(each for each in self.found if each.id == number)
        return msgspec.structs.replace(found, log=self.log.replace("NUMBER", str(number)))

    def queue_run(self, command: str, configs: Sequence[str], options: Mapping[str, str]) -> Job:
        if options.get("chunk") == "taken":
            raise UsageError("the queue is full")
        self.asked.append((command, list(configs), dict(options)))
        self.found.insert(0, job(100 + len(self.asked), "queued", f"merge-bench {command}"))
        return self.found[0]

    def cancel_job(self, number: int) -> None:
        if number != 3:
            raise UsageError("this job belongs to another token")
        self.cancelled.append(number)
