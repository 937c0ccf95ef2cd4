"""The list of results in a terminal."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

from click.testing import CliRunner

from merge_bench.cli import cli
from tests.helpers.runs import ROOT
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign

CAMPAIGNS = ROOT / "tests" / "data" / "campaigns"


def listed(folder: Path) -> list[str]:
    done = CliRunner().invoke(cli, ["results", "--results", str(folder)])
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def test_the_newest_is_last_with_when_what_verified_and_throughput(tmp_path: Path) -> None:
    for name in ("one-sender", "interrupted", "p2p"):
        shutil.copytree(CAMPAIGNS / name, tmp_path / name)
    lines = listed(tmp_path)
    assert [line.split() for line in lines[:-2:2]] == [
        ["22", "Nov", "11:01", "done", str(tmp_path / "p2p")],
        ["22", "Nov", "11:03", "interrupted", "0.151", "GiB/s", str(tmp_path / "interrupted")],
        ["25", "Nov", "20:45", "verified", "0.166", "GiB/s", str(tmp_path / "one-sender")],
    ]
    assert lines[3] == "  default and tcp: 20,000 rows per chunk, 2 workers"
    assert {len(line.removesuffix(str(tmp_path / line.rpartition("/")[2]))) for line in lines[:-2:2]} == {41}


def test_an_engine_that_is_not_the_usual_one_and_the_outcome_of_a_tuning_are_named(tmp_path: Path) -> None:
    shutil.copytree(CAMPAIGNS / "tune", tmp_path / "tune")
    for name, engine in (("native", "native"), ("duckdb", "duckdb"), ("dask", "pandas")):
        changes = {"engine": engine, "exchange": "dask" if name == "dask" else "ucx"}
        write_campaign(tmp_path / name, Script(config="default", plan=plan(**changes))).rename(tmp_path / f"of-{name}")
    lines = listed(tmp_path)
    said = {line.rpartition("/")[2]: what.strip() for line, what in itertools.pairwise(lines) if str(tmp_path) in line}
    assert said["of-duckdb"] == "default: 1,000,000 rows per chunk, 2 workers, engine duckdb"
    assert said["of-native"] == said["of-dask"] == "default: 1,000,000 rows per chunk, 2 workers"
    assert said["tune"].startswith(
        "Tuning of default: 20,000 rows per chunk, 2 workers. Found no config faster than default"
    )


def test_a_tuning_without_a_measurement_names_no_rows(tmp_path: Path) -> None:
    (tmp_path / "tune").mkdir()
    records = (CAMPAIGNS / "tune" / "records.jsonl").read_bytes()
    (tmp_path / "tune" / "records.jsonl").write_bytes(records.partition(b"\n")[0] + b"\n")
    assert listed(tmp_path)[1].strip() == "Tuning of default: 2 workers"


def test_damaged_records_are_listed_and_an_empty_folder_names_the_command_that_fills_it(tmp_path: Path) -> None:
    assert listed(tmp_path / "none")[-1].endswith("python -m merge_bench --chunk 1e6")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "records.jsonl").write_text("{")
    (line,) = [line for line in listed(tmp_path) if "broken" in line and "unreadable" in line]
    assert line.endswith(str(tmp_path / "broken"))
