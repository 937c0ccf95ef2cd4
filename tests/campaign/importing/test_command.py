"""`import` on the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from merge_bench.analysis.compare import compare_campaigns
from merge_bench.analysis.published import campaign_folder
from merge_bench.campaign.importing import import_file
from merge_bench.cli import main
from merge_bench.records.reader import read_campaign
from tests.campaign.importing.samples import NCCL_RING, OSU_BW, PDSDS
from tests.campaign.importing.texts import text
from tests.helpers.documents import summarized


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


def test_network_measurements_of_others_are_shown_compared_listed_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    for name, content in {"old.txt": OSU_BW, "new.txt": OSU_BW.replace("1785.15", "3570.30")}.items():
        (tmp_path / name).write_text(content)
        assert run(monkeypatch, tmp_path / name, "--results", results) == 0
        printed = capsys.readouterr().out
        assert f"{name.partition('.')[0]}, osu_bw, rank 0 to 1: Bandwidth (MB/s" in printed
        assert "OSU micro-benchmarks printed; not verified by merge_bench" in printed
    new, old = sorted(results.iterdir(), key=lambda folder: "-old-" in folder.name)

    def command(*words: str | Path) -> str:
        monkeypatch.setattr(sys, "argv", ["merge_bench", *map(str, words)])
        with pytest.raises(SystemExit) as leave:
            main()
        assert leave.value.code == 0
        return capsys.readouterr().out

    assert "Speed-up over old" in command("compare", old, new)
    last = next(line for line in command("compare", old, new).splitlines() if line.startswith("4,194,304"))
    assert last.split() == ["4,194,304", "1,785", "3,570", "2.00"]
    assert len(json.loads(command("compare", old, new, "--json"))["rows"]) == 46
    assert command("results", "--results", results).count("Network measurement osu: old (imported)") == 1
    assert command("show", old).count("osu_bw") == 1
    assert "osu_bw" in command("export", old)
    page = tmp_path / "report.html"
    command("report", old, new, "--output", page)
    assert "osu_bw" in page.read_text()


def test_one_network_measurement_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text(OSU_BW)
    folder = import_file(tmp_path / "a.txt", tmp_path / "results")
    for words in (["compare", folder], ["compare", folder, folder, "--fail-on", "slower"]):
        monkeypatch.setattr(sys, "argv", ["merge_bench", *map(str, words)])
        with pytest.raises(SystemExit) as leave:
            main()
        assert leave.value.code == 2
    assert "contains only one config; name a second result" in capsys.readouterr().err


def test_collectives_have_time_and_bus_bandwidth_and_the_format_can_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "all_reduce.out").write_text(NCCL_RING)
    assert run(monkeypatch, tmp_path / "all_reduce.out", "--results", tmp_path, "--format", "nccl-tests") == 0
    printed = capsys.readouterr().out
    assert "all_reduce_perf in-place, cuda memory: Mean time of an operation (µs) and Bus bandwidth (GB/s" in printed
    assert "536,870,912" in printed
    assert "selected: not known" in printed
    assert run(monkeypatch, tmp_path / "all_reduce.out", "--results", tmp_path, "--format", "osu") == 2
    assert "has no title such as '# OSU MPI Latency Test" in capsys.readouterr().err


def test_what_prints_a_few_figures_is_shown_and_compared_as_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in {"old.txt": PDSDS, "new.txt": PDSDS.replace("1.3267s", "1.1267s")}.items():
        (tmp_path / name).write_text(content)
        assert run(monkeypatch, tmp_path / name, "--results", tmp_path / "results") == 0
        printed = capsys.readouterr().out
        assert "UNVERIFIED: merge_bench did not verify this imported result" in printed
        assert "q17 (ms)" in printed
    new, old = sorted((tmp_path / "results").iterdir(), key=lambda folder: "-old-" in folder.name)
    document = summarized(read_campaign(old))
    assert (document["verified"], document["verification"]["state"]) == (False, "imported")
    compared = compare_campaigns([read_campaign(old), read_campaign(new)])
    ratios = {each.metric: each.ratio for each in compared.comparisons}
    assert ratios["q17"] == pytest.approx(1.3267 / 1.1267)
    assert ratios["wall"] == pytest.approx(3.3358 / 3.1358)
    assert ratios["q18"] == 1.0
    monkeypatch.setattr(sys, "argv", ["merge_bench", "show", str(old), "--details"])
    with pytest.raises(SystemExit):
        main()
    shown = capsys.readouterr().out
    assert "Imported from" in shown
    assert "pdsds.py" in shown
    assert "exit status" not in shown
