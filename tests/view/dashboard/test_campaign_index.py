"""Which results a page lists and offers."""

from __future__ import annotations

from pathlib import Path

from merge_bench.records.results_folder import ResultsFolder
from merge_bench.view.dashboard.campaign_index import beside, newest_running, offered
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign


def test_campaigns_are_offered_with_their_engine_if_it_is_not_the_usual_one(tmp_path: Path) -> None:
    for engine in ("native", "duckdb"):
        write_campaign(tmp_path, Script(config="a" * 100, plan=plan(engine=engine))).rename(tmp_path / f"of-{engine}")
    labels = {Path(folder).name: label for label, folder in offered(ResultsFolder(tmp_path).entries()).items()}
    assert labels["of-duckdb"].endswith(" workers · engine duckdb · done")
    assert labels["of-native"].endswith(" workers · done")


def test_published_results_are_there_before_any_run(tmp_path: Path) -> None:
    results = tmp_path / "not-yet"
    entries = ResultsFolder(results, also=beside(results)).entries()
    assert {entry.origin for entry in entries} == {"published"}
    assert {entry.kind for entry in entries} == {"import"}
    assert newest_running(entries) is None
