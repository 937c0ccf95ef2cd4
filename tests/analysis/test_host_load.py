"""Launches that began while other processes kept the host busy: counted and named, and verdicts on them doubted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from merge_bench.analysis.compare import compare_campaigns
from merge_bench.analysis.diagnostics import BUSY_HOST, busy_host_warnings
from merge_bench.analysis.summary import summarize_campaign
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign

SWEEP = Path(__file__).parents[1] / "data" / "campaigns" / "sweep"
QUIET: dict[str, Any] = {"busy": 0.1, "cores": 2, "processes": []}
BUSY: dict[str, Any] = {"busy": 1.6, "cores": 2, "processes": ["pid 71 yes", "pid 93 mypy"]}


def recorded(folder: Path, *loads: dict[str, Any] | None) -> Campaign:
    """The recorded campaign, with what other processes used of the host as each of its launches began."""
    shutil.copytree(SWEEP, folder / "sweep")
    lines = [json.loads(line) for line in (SWEEP / "records.jsonl").read_text().splitlines()]
    launches = [line for line in lines if line["kind"] == "launch"]
    for line, load in zip(launches, loads, strict=True):
        line["other_load"] = load
    (folder / "sweep" / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_campaign(folder / "sweep")


def test_launches_that_began_on_a_busy_host_are_counted_and_the_processes_named(tmp_path: Path) -> None:
    (line,) = busy_host_warnings(recorded(tmp_path, QUIET, QUIET, BUSY, QUIET, {**BUSY, "busy": 0.8}, QUIET))
    assert line.code == BUSY_HOST
    busy = "up to 1.6 of 2 cores busy (pid 71 yes, pid 93 mypy)"
    assert f"{busy} as 2 of 6 launches started (launches 2, 4)" in line.message
    assert "--wait-for-quiet" in (line.remedy or "")


@pytest.mark.parametrize("loads", [[None] * 6, [QUIET] * 6, [BUSY, *[QUIET] * 5]])
def test_nothing_is_said_of_quiet_launches_and_older_records_nor_twice_of_the_first(
    tmp_path: Path, loads: list[dict[str, Any] | None]
) -> None:
    assert busy_host_warnings(recorded(tmp_path, *loads)) == []


def test_runs_and_verdicts_say_so(tmp_path: Path) -> None:
    quiet, busy = recorded(tmp_path / "a", *[QUIET] * 6), recorded(tmp_path / "b", QUIET, *[BUSY] * 5)
    codes = [[each.code for each in one.warnings] for one in summarize_campaign(busy).runs]
    assert all(BUSY_HOST in found for found in codes)
    found = compare_campaigns([quiet, busy])
    assert [note for note in found.notes if "busy host" in note and note.startswith("B: ")]
    assert not [note for note in found.notes if note.startswith("A: measured on a busy host")]
    decided = [each for each in found.comparisons if each.verdict in ("FASTER", "SLOWER", "EQUIVALENT")]
    assert all("other processes kept" in " ".join(each.caveats) for each in decided)


def test_a_campaign_has_one_warning_for_all_its_configs(tmp_path: Path) -> None:
    documents = summarize_campaign(recorded(tmp_path, QUIET, *[BUSY] * 5)).runs
    (message,) = {each.message for one in documents for each in one.warnings if each.code == BUSY_HOST}
    assert "as 5 of 6 launches started (launches 1, 2, 3, 4, 5)" in message
