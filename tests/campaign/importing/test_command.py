"""`import` on the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from merge_bench.analysis.published import campaign_folder
from merge_bench.cli import main
from merge_bench.records.reader import read_campaign
from tests.campaign.importing.texts import text


def run(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["merge_bench", "import", *map(str, words)])
    with pytest.raises(SystemExit) as leave:
        main()
    assert isinstance(leave.value.code, int)
    return leave.value.code


def test_the_report_is_printed_and_the_campaign_lies_in_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "gadi-v100-optimized-small"
    assert run(monkeypatch, campaign_folder(name) / "logs" / f"{name}.out", "--results", tmp_path) == 0
    printed = capsys.readouterr().out
    (folder,) = tmp_path.iterdir()
    assert f"-{name}-" in folder.name
    assert printed.endswith(f"\nRecords: {folder / 'records.jsonl'}\n")
    assert printed.count("UNVERIFIED") == 1
    assert f" report {folder}\n      (draws everything on one page)\n" in printed


def test_json_is_one_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.out").write_text(text())
    assert run(monkeypatch, tmp_path / "a.out", "--results", tmp_path / "r", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verified"] is False
    assert document["imported"]["program"] == "cudf-merge"
    assert read_campaign(document["records"]).head.campaign_id == document["run_id"]


@pytest.mark.parametrize("json_words", [[], ["--json"]])
def test_a_damaged_text_is_wrong_usage(
    json_words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.out").write_text(text().replace("49.16 ms", "49.16"))
    assert run(monkeypatch, tmp_path / "a.out", "--results", tmp_path / "r", *json_words) == 2
    captured = capsys.readouterr()
    assert captured.err == f"merge_bench: line 13 of {tmp_path / 'a.out'}: '49.16' is not a time\n"
    assert not (tmp_path / "r").exists()
    if json_words:
        assert json.loads(captured.out)["error"]["code"] == "usage"
