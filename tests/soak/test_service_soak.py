"""Many clients, and a service that is killed again and again: no job is lost, runs twice, or beside another one."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
import urllib.error
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from merge_bench.records.reader import read_campaign_line
from tests.helpers.runs import LIMIT
from tests.service.services import ENDED, RealService

TINY = {"chunk": "1e3", "iterations": 1, "workers": 2, "link-rounds": 0, "verify": "off"}
CLIENTS = 8


@pytest.mark.cluster
@pytest.mark.soak
@pytest.mark.parametrize(("jobs", "kills"), [(16, 3), (200, 20)])
def test_every_accepted_job_ends_once_whatever_happens_to_the_service(tmp_path: Path, jobs: int, kills: int) -> None:
    service = RealService(tmp_path, "--request-limit", "100000")
    accepted: dict[str, int] = {}
    cancelled: set[int] = set()

    def client(seed: int) -> None:
        rng = random.Random(seed)
        for index in range(jobs // CLIENTS):
            key = f"{seed}-{index}"
            body = {"command": "run", "options": {**TINY, "seed": seed}, "resume": rng.random() < 0.5, "key": key}
            accepted[key] = again(service, "POST", "/api/jobs", body)["id"]
            if rng.random() < 0.25:
                time.sleep(rng.random())
                again(service, "DELETE", f"/api/jobs/{accepted[key]}")
                cancelled.add(accepted[key])
            time.sleep(rng.random())

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(CLIENTS)]
    for thread in threads:
        thread.start()
    rng = random.Random(jobs)
    try:
        for _ in range(kills):
            time.sleep(rng.uniform(0.5, 12.0))
            service.kill()
            service.start()
        for thread in threads:
            thread.join()
        deadline = time.monotonic() + LIMIT + 15.0 * jobs
        rows = again(service, "GET", "/api/jobs?limit=1000")["jobs"]
        while not all(row["state"] in ENDED for row in rows):
            assert time.monotonic() < deadline, rows
            time.sleep(0.5)
            rows = again(service, "GET", "/api/jobs?limit=1000")["jobs"]
        assert service.stop() == 0
    finally:
        service.close()
    assert len(set(accepted.values())) == len(accepted) == jobs == len(rows)
    states = Counter(row["state"] for row in rows)
    print(dict(states))
    assert set(states) <= set(ENDED) - {"failed"}
    assert all(row["status"] == 0 for row in rows if row["state"] == "done")
    assert not [row for row in rows if row["state"] == "cancelled" and row["id"] not in cancelled]
    marks: Counter[str] = Counter()
    spans = []
    for folder in service.results.glob("2*"):
        head = read_campaign_line(folder)
        if head is not None:
            assert head.surroundings is not None
            lines = list(map(json.loads, (folder / "records.jsonl").read_bytes().splitlines()))
            spans.append((lines[0]["time"], lines[-1]["time"]))
            if lines[-1].get("status") == 0 and lines[-1]["kind"] == "end":
                marks[head.surroundings["environment"]["MERGE_BENCH_JOB"].rpartition("-")[2]] += 1
    assert marks == Counter(str(row["id"]) for row in rows if row["state"] == "done"), "done campaigns by job"
    spans.sort()
    assert [(one, other) for one, other in itertools.pairwise(spans) if other[0] < one[1]] == [], "two at a time"
    assert service.before.left_after(service.pids, 60) == []


def again(service: RealService, method: str, path: str, body: object = None) -> dict[str, Any]:
    """Ask until there is an answer: the service may have been killed."""
    deadline = time.monotonic() + LIMIT
    while True:
        try:
            status, answer = service.ask(method, path, body)
        except (OSError, urllib.error.URLError, ValueError):
            assert time.monotonic() < deadline
            time.sleep(0.1)
            continue
        assert status in (200, 201), answer
        return answer
