"""The Results tab: the table of campaigns, and what chosen ones come to."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path

import msgspec
import pandas as pd
import pytest

from merge_bench.analysis.documents import run_documents
from merge_bench.analysis.summary import summarize_campaign
from merge_bench.dashboard import components
from merge_bench.dashboard.results_tab import (
    ABSOLUTE,
    OF_LINK,
    ResultsContent,
    campaigns_data_frame,
    make_results_content,
)
from merge_bench.records import schema as s
from merge_bench.records.results_folder import ResultsFolder
from merge_bench.report.campaign_figures import CampaignCache, LoadedCampaign
from merge_bench.units import GIB
from merge_bench.view.plot import BoxMarks, Chart, PointMarks
from merge_bench.view.plot.interactive import make_bokeh_figure
from merge_bench.view.text import format_gib
from tests.helpers.charts import bars_of
from tests.helpers.documents import summarized
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign
from tests.view.dashboard.samples import broken, hostile, interleaved, probing

CAMPAIGNS = Path(__file__).parents[2] / "data" / "campaigns"


def load(results: Path, cache: CampaignCache | None = None) -> list[LoadedCampaign]:
    entries = ResultsFolder(results).entries()
    return (cache or CampaignCache()).load(sorted(entries, key=lambda entry: entry.started or 0))


def chosen(
    results: Path, metric: str = "Throughput", axis: str = ABSOLUTE, datasets: tuple[str, ...] = ()
) -> ResultsContent:
    return make_results_content(load(results), metric=metric, axis_unit=axis, dataset_names=datasets)


def chart_of(found: ResultsContent, title: str) -> Chart:
    return next(chart for chart in found.charts if chart.title.startswith(title))


def test_the_table_has_the_numbers_of_the_summary(tmp_path: Path) -> None:
    write_campaign(tmp_path)
    (one,) = load(tmp_path)
    cache = CampaignCache()
    assert cache.read_small_campaigns([one.entry])
    assert not cache.read_small_campaigns([one.entry])
    row = campaigns_data_frame([one.entry], cache.cached_figures).iloc[0]
    assert one.campaign is not None
    document = summarized(one.campaign)
    assert row["Throughput (GiB/s)"] == pytest.approx(document["throughput_bytes_per_second"]["median"] / GIB)
    assert row["Bandwidth (GiB/s)"] == pytest.approx(document["bandwidth_bytes_per_second"]["harmonic_mean"] / GIB)
    assert row["Problem"] == "1,000,000 rows per chunk, 2 workers, polars"
    assert row["Status"] == "verified"


def test_a_campaign_that_was_not_looked_at_has_gaps_and_not_zeros(tmp_path: Path) -> None:
    write_campaign(tmp_path)
    row = campaigns_data_frame([load(tmp_path)[0].entry], lambda _: None).iloc[0]
    assert math.isnan(row["Throughput (GiB/s)"])
    assert row["Status"] == "done"


def test_large_campaigns_are_not_read_for_the_table(tmp_path: Path) -> None:
    write_campaign(tmp_path)
    entry = load(tmp_path)[0].entry
    cache = CampaignCache(small=100)
    assert not cache.read_small_campaigns([entry])
    assert cache.cached_figures(entry) is None
    cache.load([entry])  # but it is known once it was chosen
    assert cache.cached_figures(entry) is not None


def test_an_empty_table_has_columns_of_the_same_kinds(tmp_path: Path) -> None:
    write_campaign(tmp_path)
    full = campaigns_data_frame([load(tmp_path)[0].entry], lambda _: None)
    assert list(campaigns_data_frame((), lambda _: None).dtypes) == list(full.dtypes)


def test_one_campaign_of_two_configs_is_compared_by_block(tmp_path: Path) -> None:
    interleaved(tmp_path, faster=1.3)
    found = chosen(tmp_path)
    ((title, sentence),) = found.verdicts
    assert title.startswith("tuned against default")
    assert sentence.startswith("FASTER")
    assert "1.300 × as fast" in sentence
    speedups = chart_of(found, "Speed-up")
    assert list(bars_of(speedups).values()) == pytest.approx([1.0, 1.3])
    (points,) = [mark for _, mark in speedups.marks_with_groups if isinstance(mark, PointMarks)]
    assert len(points.x) == 8


def test_several_campaigns_are_held_against_the_oldest_and_their_differences_are_told(tmp_path: Path) -> None:
    write_campaign(tmp_path / "a", Script(config="one"))
    write_campaign(tmp_path / "b", Script(config="two", plan=plan(engine="pandas")))
    os.rename(next((tmp_path / "a").iterdir()), tmp_path / "1")
    os.rename(next((tmp_path / "b").iterdir()), tmp_path / "2")
    found = chosen(tmp_path)
    assert found.unjudged.startswith("Not compared")
    assert "engine" in found.unjudged
    assert found.verdicts == ()
    assert [series for _, series in bars_of(chart_of(found, "Throughput"))] == ["A: one", "B: two"]


def test_the_axis_can_be_the_fraction_of_the_link(tmp_path: Path) -> None:
    write_campaign(tmp_path)
    (chart,) = chosen(tmp_path, axis=OF_LINK).charts
    assert list(bars_of(chart).values()) == pytest.approx([100 * (12_000_000 / 0.03) / (12_000_000 / 0.025)])
    assert chart.x.rule == 100.0


def test_a_link_limit_that_was_exceeded_is_said_with_the_words_of_the_command(tmp_path: Path) -> None:
    shutil.copytree(CAMPAIGNS / "run", tmp_path / "run")
    ((name, caution),) = [doubt for doubt in chosen(tmp_path).doubts if doubt[1].code == "limit-exceeded"]
    assert name == "tcp"
    (one,) = load(tmp_path)
    assert one.campaign is not None
    assert caution in [
        each for document in run_documents(summarize_campaign(one.campaign)) for each in document.warnings
    ]


def test_without_a_link_limit_there_is_no_chart_of_it_and_a_note_says_so(tmp_path: Path) -> None:
    shutil.copytree(CAMPAIGNS / "baseline", tmp_path / "baseline")
    found = chosen(tmp_path, axis=OF_LINK)
    assert found.charts == ()
    assert found.notes == ("No link limit was measured: default.",)


def test_why_results_are_not_compared_is_said_without_options_that_the_page_lacks(tmp_path: Path) -> None:
    for kind in ("run", "tables"):
        shutil.copytree(CAMPAIGNS / kind, tmp_path / kind)
    found = chosen(tmp_path)
    assert found.unjudged.startswith("Not compared: A: tcp and B: default differ in ")
    assert "--anyway" not in found.unjudged


def test_published_results_stand_beside_but_never_in_a_comparison(tmp_path: Path) -> None:
    interleaved(tmp_path)
    found = chosen(tmp_path, datasets=("gadi-v100",))
    marks = [mark for _, mark in chart_of(found, "Throughput").marks_with_groups if isinstance(mark, BoxMarks)]
    remarks = [remark for mark in marks if mark.hatched for remark in mark.details["remark"]]
    assert len(remarks) > 1
    assert "-" not in remarks
    assert len(found.verdicts) == 1


def test_network_measurements_are_not_merges(tmp_path: Path) -> None:
    probing(tmp_path)
    found = chosen(tmp_path)
    assert found.charts == ()
    assert "Network tab" in found.notes[0]


def test_broken_results_are_sentences_beside_the_others(tmp_path: Path) -> None:
    broken(tmp_path)
    found = chosen(tmp_path)
    text = "\n".join(found.problems)
    for name in ("empty", "half", "foreign", "array", "newer", "deep", "damaged"):
        assert f"{name}: " in text
    assert "line 10" in text
    assert not chart_of(found, "Throughput").is_empty


def test_a_campaign_larger_than_the_limit_is_read_up_to_it_with_a_sentence(tmp_path: Path) -> None:
    with (write_campaign(tmp_path) / "records.jsonl").open("ab") as stream:
        warning = s.WarningLine(code="x", message="y" * 1000)
        stream.write((msgspec.json.encode(warning) + b"\n") * 100)
    (one,) = load(tmp_path, CampaignCache(limit=50_000))
    assert one.problem is not None
    assert "only the first" in one.problem
    assert one.campaign is not None
    assert one.campaign.launches[0].timed_iterations


def test_what_was_read_goes_on_where_it_ended_and_old_campaigns_are_forgotten(tmp_path: Path) -> None:
    first, second = write_campaign(tmp_path, end=None), write_campaign(tmp_path)
    cache = CampaignCache(most=1)
    entries = {one.entry.folder: one.entry for one in load(tmp_path)}
    cache.load([entries[first]])
    with (first / "records.jsonl").open("r+b") as stream:
        stream.write(b"what was read is not read again")
        stream.seek(0, os.SEEK_END)
        stream.write(msgspec.json.encode(s.CampaignEndLine(status=0)) + b"\n")
    (grown,) = cache.load([entries[first]])
    assert grown.problem is None
    assert grown.campaign is not None
    assert grown.campaign.end is not None
    cache.load([entries[second]])
    (again,) = cache.load([entries[first]])  # from its beginning
    assert again.problem is not None


def test_hostile_names_stay_data(tmp_path: Path) -> None:
    hostile(tmp_path)
    found = chosen(tmp_path)
    assert found.problems == ()
    assert any("<script>" in note for note in found.notes)


def test_every_chart_can_be_drawn(tmp_path: Path) -> None:
    interleaved(tmp_path)
    found = chosen(tmp_path, datasets=("gadi-v100",))
    assert len(found.charts) == 3
    assert all(make_bokeh_figure(chart).renderers for chart in found.charts)


def test_real_tables_are_named_by_their_files_keys_rows_and_engine() -> None:
    entries = [entry for entry in ResultsFolder(CAMPAIGNS).entries() if entry.folder.name == "tables"]
    row = campaigns_data_frame(entries, lambda _: None).iloc[0]
    tables = "orders.parquet ⋈ lines.parquet on o_key = l_key (5,000 / 20,000 rows)"
    assert row["Problem"] == f"{tables}, 2 workers, native"
    assert row["Kind"] == "merge"
    charts = make_results_content(
        CampaignCache().load(entries), metric="Throughput", axis_unit=ABSOLUTE, dataset_names=()
    ).charts
    assert charts


def test_a_campaign_of_several_configs_names_the_one_in_the_table_and_lists_each(tmp_path: Path) -> None:
    shutil.copytree(CAMPAIGNS / "sweep", tmp_path / "sweep")
    (one,) = load(tmp_path)
    cache = CampaignCache()
    cache.read_small_campaigns([one.entry])
    row = campaigns_data_frame([one.entry], cache.cached_figures).iloc[0]
    assert one.campaign is not None
    documents = {run.config.name: run for run in run_documents(summarize_campaign(one.campaign))}
    rates = {name: run.throughput_bytes_per_second.median or 0.0 for name, run in documents.items()}
    fastest = max(rates, key=lambda name: rates[name])
    assert row["Fastest config"] == fastest
    assert row["Throughput (GiB/s)"] == pytest.approx(rates[fastest] / GIB)
    figures = {column.heading: list(column.cells) for column in chosen(tmp_path).figures}
    assert figures["Config"] == list(documents) == ["default", "tcp"]
    assert figures["Throughput (GiB/s)"] == [format_gib(rate) for rate in rates.values()]
    assert figures["Launches"] == ["3", "3"]


def test_small_rates_keep_two_figures_in_tables() -> None:
    rates, counts = pd.Series([0.0018, 12.5, float("nan")]), pd.Series([1, 2_000_000])
    shown = components.make_table_widget(pd.DataFrame({"Rate": rates[:2], "Rows": counts})).formatters
    assert (shown["Rate"].format, shown["Rows"].format) == ("0,0.0000", "0,0")
    assert components.make_table_widget(pd.DataFrame({"Rate": [0.5, 12.0]})).formatters["Rate"].format == "0,0.000"
