"""`show RESULT` and `results RESULT`: a stored result as the command that made it showed it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from merge_bench.cli import cli
from merge_bench.config.options import RunOptions
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.regressions.gates import RegressionGate
from tests.helpers.documents import summarized
from tests.helpers.synthetic_campaigns import interleaved, write_campaign

CAMPAIGNS = Path(__file__).parents[1] / "data" / "campaigns"


def typed(*words: str | Path) -> Result:
    found = CliRunner().invoke(cli, [str(word) for word in words])
    assert found.exit_code == 0, found.output
    return found


@pytest.mark.parametrize("folder", sorted(CAMPAIGNS.iterdir()), ids=lambda folder: folder.name)
def test_every_kind_of_result_is_shown_whole_and_as_a_document(folder: Path) -> None:
    records = f"{folder}/records.jsonl"
    shown, details = typed("show", folder).stdout, typed("show", folder, "--details").stdout
    assert records in shown
    assert records in details
    assert len(details) >= len(shown)
    assert typed("results", folder).stdout == shown
    before = (folder / "records.jsonl").read_bytes()
    document = json.loads(typed("show", folder, "--json").stdout)
    assert document["records"] == records
    assert (folder / "records.jsonl").read_bytes() == before


def test_the_document_is_that_of_the_run(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, *interleaved({"base": [0.1] * 6, "tuned": [0.2] * 6}))
    assert json.loads(typed("show", folder, "--json").stdout) == summarized(read_campaign(folder))
    assert "tuned against base" in typed("show", folder).stdout
    assert f"show {folder}" in typed("results", "--results", tmp_path).stdout


def test_the_name_of_a_stored_result_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MERGE_BENCH_RESULTS", raising=False)
    folder = write_campaign(tmp_path / "results")
    assert typed("show", folder.name).stdout == typed("show", f"results/{folder.name}").stdout
    (tmp_path / "results").rename(tmp_path / "other")
    other = tmp_path / "other" / folder.name
    assert "records" in typed("results", "--results", "other", other.name).stdout
    assert CliRunner().invoke(cli, ["show", other.name]).exit_code == 2
    monkeypatch.setenv("MERGE_BENCH_RESULTS", "other")
    assert f"other/{other.name}/records.jsonl" in typed("show", other.name).stdout
    options = RunOptions(against=other.name, results="other")
    gate = RegressionGate.from_options(options, choice_count=1, run_count=1)
    assert gate is not None
    assert isinstance(gate.against, Campaign)
