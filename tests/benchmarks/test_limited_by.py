"""`benchmarks/limited_by.py` with documents that are made up: what it makes of what runs say."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from benchmarks import command
from benchmarks.limited_by import CASES, HEADINGS, REFERENCE, WatchedRun, judge, true_cost
from tools.reference.measured import Campaign


def document(what: str, wall: float = 0.1, rank: int | None = None, **link: Any) -> dict[str, Any]:
    return {
        "wall_seconds": {"median": wall},
        "bottleneck": {"what": what, "besides": None, "rank": rank, "share": 0.4, "because": "…"},
        "link": {"limit_bytes_per_second": 1e9, "fraction": 0.9, "disturbed": None, **link},
    }


@pytest.mark.parametrize(
    ("case", "said", "right"),
    [
        ("one-core", document("host"), True),
        ("one-core", document("join"), False),
        ("stopped-50", document("host", rank=1), True),
        ("stopped-50", document("host", rank=0), False),
        ("1e3", document("fixed-costs"), True),
        ("1e3", document("partition"), False),
        ("undisturbed", document("host"), False),
        ("link", document("join", limit_bytes_per_second=0.5e9), False),
        ("link", document("join", limit_bytes_per_second=0.5e9, disturbed="…", fraction=None), True),
        ("link", document("join", limit_bytes_per_second=0.9e9), True),  # measured again until it was right
        ("link", document("link", limit_bytes_per_second=0.5e9, fraction=1.04), False),
    ],
)
def test_what_a_run_says_is_judged_by_what_was_done(case: str, said: dict[str, Any], right: bool) -> None:
    documents = {REFERENCE: document("join")} | {case: said}
    verdict = judge(case, documents)
    assert verdict.right is right
    assert len(verdict.cells) == len(HEADINGS)


def test_what_a_busy_host_says_besides_is_judged() -> None:
    busy = document("busy-host")
    busy["bottleneck"]["besides"] = "fixed-costs"
    assert judge("1e4", {"1e4": busy}).right


def test_true_shares_come_from_other_runs() -> None:
    walls = {REFERENCE: document("join", 0.06), "hogs": document("host", 0.1), "1e3": document("x", 0.0016)}
    documents = walls | {"1e4": document("x", 0.0025)}
    assert true_cost("hogs", documents) == pytest.approx(0.4)
    assert true_cost("1e3", documents) == pytest.approx(0.0015 / 0.0016)  # 0.1 µs a row: 1.5 ms without rows
    assert true_cost("1e4", documents) == pytest.approx(0.0015 / 0.0025)
    assert true_cost(REFERENCE, documents) is None
    assert true_cost("1e3", {"1e3": documents["1e3"]}) is None


def test_records_are_followed_as_they_grow(tmp_path: Path) -> None:
    records = tmp_path / "a" / "records.jsonl"
    records.parent.mkdir()
    run = WatchedRun(tmp_path)
    run.follow()
    lines = [
        {"kind": "launch", "workers": [{"pid": 7}, {"pid": 8}]},
        {"kind": "iteration", "warmup": True},
        {"kind": "iteration", "warmup": False},
        {"kind": "link"},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    for end in (len(text) - 5, len(text)):
        records.write_text(text[:end])
        run.follow()
        assert (run.pids, run.timed_iterations, run.link_measured) == ([7, 8], 1, end == len(text))
    run.ended.set()
    assert not run.wait(lambda: True)


def test_a_stored_table_is_one_of_the_page_of_measurements() -> None:
    rows = [[f'"{name}"', case.truth] for name, case in CASES.items()]
    stored = Campaign(**tomllib.loads(command.stored_table("T", 60, "About ÷.", ["a", "b"], rows, ["one failed"])))
    assert (stored.rows, stored.notes, stored.place) == (rows, ["one failed"], 60)
    assert stored.machine
    assert stored.when
