"""The table of releases has the figures and verdicts that `compare` and `probe` print of the same records."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks.releases import HEADINGS, release_rows
from merge_bench.analysis.compare import compare_campaigns
from merge_bench.records.reader import read_campaign

CAMPAIGNS = Path(__file__).parents[1] / "data" / "campaigns"


@pytest.fixture
def campaigns(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CAMPAIGNS, tmp_path / "campaigns"))


def test_verdicts_of_merges_are_those_of_compare(campaigns: Path) -> None:
    campaign = read_campaign(campaigns / "sweep")
    rows = list(release_rows(campaign))
    compared = [each for each in compare_campaigns([campaign]).comparisons if each.metric == "throughput"]
    assert {len(row) for row in rows} == {len(HEADINGS)}
    assert [row[-1] for row in rows[1:]] == [each.verdict for each in compared][: len(rows) - 1]


def test_transfers_have_a_row_for_each_size_and_release(campaigns: Path) -> None:
    campaign = read_campaign(campaigns / "p2p")
    rows = list(release_rows(campaign))
    lines = {(line.test, line.size) for launch in campaign.launches for line in launch.probes}
    assert len(rows) == len(lines) * len(campaign.runs)
    assert all("/" in row[2] for row in rows)
